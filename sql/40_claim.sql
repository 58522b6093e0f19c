-- Claims: ready -> held.

-- waits_of: the wait rows of a task: [key, outcome, timeout].
create or replace function durable.waits_of(_run uuid, _task uuid) returns json
language sql stable as $$
  select json_agg(json_build_array(w.key, w.outcome, date_part('epoch', w.timeout_at)))
  from durable.wait w where w.run_id = _run and w.task_id = _task
$$;

-- claim: up to _n tasks for a worker, the best and oldest of the given lines, in any order. _from has one {line, prio, at, id}
-- per line: where the last claim began, a hint that skips dead index entries. Answers with what a worker needs to begin or
-- continue each, by position:
-- [task, line, epoch, priority, ready at, input, run, parent, wakes, stop, waits, version]
-- A line is negative where the task runs alone. A run of a program that nothing has happened to yet has the first six only.
-- The fence is the caller's. In plpgsql, which keeps its plan: before version 18 the server plans an SQL function anew
-- with every call. Locks: ready rows (skip locked).
create or replace function durable.claim(_worker uuid, _n int, _from json, _alone boolean, _now timestamptz) returns json
language plpgsql as $$
declare
  _rows    tid[];
  _claimed json;
begin
  -- One line is the common case, and a statement of half the size.
  if json_array_length(_from) = 1 then
    select array_agg(x.ctid) into _rows from (
      select q.ctid from durable.ready q
      where q.line = (_from -> 0 ->> 'line')::int
        and (q.prio, q.ready_at, q.task_id) >= (coalesce((_from -> 0 ->> 'prio')::smallint, 0::smallint),
                                                coalesce(to_timestamp((_from -> 0 ->> 'at')::double precision), '-infinity'),
                                                coalesce((_from -> 0 ->> 'id')::uuid, '00000000-0000-0000-0000-000000000000'))
      order by q.line, q.prio, q.ready_at, q.task_id limit _n for update skip locked) x;
  else
    with l as materialized (
      select x.line, coalesce(x.prio, 0)::smallint as prio, coalesce(to_timestamp(x.at), '-infinity') as at,
             coalesce(x.id, '00000000-0000-0000-0000-000000000000') as id
      from json_to_recordset(_from) as x (line int, prio int, at double precision, id uuid)
    ), want as materialized (
      select m.line, m.prio, m.at, m.id, count(*) as n from (
        select l.line, l.prio, l.at, l.id from l cross join lateral (
          select q.prio, q.ready_at, q.task_id from durable.ready q
          where q.line = l.line and (q.prio, q.ready_at, q.task_id) >= (l.prio, l.at, l.id)
          order by q.line, q.prio, q.ready_at, q.task_id limit _n) r
        order by r.prio, r.ready_at, r.task_id limit _n) m
      group by 1, 2, 3, 4
    )
    select array_agg(x.at_row) into _rows from want v cross join lateral (
      select q.ctid as at_row from durable.ready q
      where q.line = v.line and (q.prio, q.ready_at, q.task_id) >= (v.prio, v.at, v.id)
      order by q.line, q.prio, q.ready_at, q.task_id limit v.n for update skip locked) x;
  end if;
  if _rows is null then
    return null;
  end if;
  with d as (
    delete from durable.ready where ctid = any (_rows) returning task_id, epoch, prio, ready_at, line
  ), h as (
    insert into durable.held (task_id, worker_id, epoch, claimed_at, alone)
    select d.task_id, _worker, d.epoch + 1, _now, _alone from d
  )
  select json_agg(case
    when d.epoch = 0 and t.run_id = t.task_id and t.wakes = 0 and t.stop is null and t.version is null
    then json_build_array(t.task_id, d.line, 1, d.prio, date_part('epoch', d.ready_at), t.input)
    else json_build_array(t.task_id, d.line, d.epoch + 1, d.prio, date_part('epoch', d.ready_at), t.input, t.run_id, t.parent_id,
                          t.wakes, t.stop, case when d.epoch > 0 then durable.waits_of(t.run_id, t.task_id) end, t.version) end)
  into _claimed from d join durable.task t on t.task_id between d.task_id and d.task_id;
  return _claimed;
end
$$;
