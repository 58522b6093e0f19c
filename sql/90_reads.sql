-- Views for people and programs that look: psql, the command, the API.

-- run: one row a run, with the state a person means: ready, running, parked, queued, delayed, or how it ended.
create or replace view durable.run as
select t.task_id as run_id, l.workflow, l.queue,
       case when t.state <> 'active' then t.state::text when h.task_id is not null then 'running' else 'ready' end as state,
       t.prio, t.tags, t.version, t.created_at, coalesce(t.started_at, h.claimed_at) as started_at, t.finished_at, t.wake_at,
       t.deadline_at, t.stop, t.cap_key, t.input, t.result, t.error, h.worker_id, t.lost, t.parent_run
from durable.task t
join durable.line l on l.line = t.line
left join durable.held h on h.task_id = t.task_id
where t.parent_id is null;

-- branch: every task of every run, in the same words.
create or replace view durable.branch as
select t.run_id, t.task_id, t.parent_id, t.parent_run, t.parent_task, l.workflow, l.queue,
       case when t.state <> 'active' then t.state::text when h.task_id is not null then 'running' else 'ready' end as state,
       t.created_at, coalesce(t.started_at, h.claimed_at) as started_at, t.finished_at, t.wake_at, t.input, t.result, t.error, h.worker_id
from durable.task t
join durable.line l on l.line = t.line
left join durable.held h on h.task_id = t.task_id;

-- read_journal: the records of a task in their order, one JSON value, by column: [positions, kinds, names, bodies]. An
-- array for each record took half as long again. With a snapshot, only the newest that holds, what follows it, and the
-- records in front of it that it names (operations still open then).
-- A snapshot does not hold if the failure that a retry took back came before it.
create or replace function durable.read_journal(_run uuid, _task uuid) returns json
language sql stable as $$
  with s as materialized (
    select j.pos, string_to_array(nullif(j.frame, ''), ',')::int[] as open from durable.journal j
    where j.run_id = _run and j.task_id = _task and j.kind = 'snapshot'
      and j.pos < coalesce((select min((v.body ->> 'void')::int) from durable.journal v
                            where v.run_id = _run and v.task_id = _task and v.kind = 'retry'), 2147483647)
    order by j.pos desc limit 1
  )
  select json_build_array(json_agg(r.pos), json_agg(r.kind), json_agg(r.name), json_agg(r.body))
  from (
    select j.pos, j.kind, j.name, j.body from s join durable.journal j on j.pos = any (s.open)
    where j.run_id = _run and j.task_id = _task and j.pos < s.pos
    union all
    select j.pos, j.kind, j.name, j.body from durable.journal j
    where j.run_id = _run and j.task_id = _task and j.pos >= coalesce((select s.pos from s), 0)
      and (j.kind <> 'snapshot' or j.pos = (select s.pos from s))
    order by pos
  ) r
$$;

-- read_values: large values of a run by hash.
create or replace function durable.read_values(_run uuid, _hashes text[]) returns json
language sql stable as $$
  select json_object_agg(v.hash, v.body) from durable.value v where v.run_id = _run and v.hash = any (_hashes)
$$;

-- read_children: how tasks ended: [task, state, result, error], in id order.
create or replace function durable.read_children(_first uuid, _last uuid, _ids uuid[]) returns json
language sql stable as $$
  select json_agg(json_build_array(t.task_id, t.state, t.result, t.error) order by t.task_id)
  from durable.task t where t.task_id between _first and _last or t.task_id = any (_ids)
$$;

-- read_logged: log lines of a task at one level, with ids in a range: [step, message, fields]. A line that says where in
-- the journal it belongs (pos) is left out if a retry took that part back.
create or replace function durable.read_logged(_run uuid, _task uuid, _level text, _first uuid, _last uuid) returns json
language sql stable as $$
  select json_agg(json_build_array(l.step, l.message, l.fields))
  from durable.log l
  where l.run_id = _run and l.id between _first and _last and l.task_id = _task and l.level = _level
    and not exists (select from durable.journal v
                    where v.run_id = _run and v.task_id = _task and v.kind = 'retry'
                      and (v.body ->> 'void')::int < (l.fields ->> 'pos')::int and (l.fields ->> 'pos')::int <= v.pos)
$$;
