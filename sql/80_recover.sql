-- What a person does to a run that ended: another chance, or a new run from one of its steps.

-- retry: a failed or cancelled run goes on from what failed. Records stay: a `retry` record says which failures no longer
-- count. An error names them itself (`voids`: positions by task) where there is more than one, or one in a task below.
-- Children and runs that failed with it, or were stopped by its end, go on too. It keeps its version unless another is
-- given (or 'current'). Locks: the task rows, parents first.
create or replace function durable.retry(_task uuid, _notify boolean default true, _version text default null) returns void
language plpgsql as $$
declare
  _t durable.task;
begin
  select t.* into _t from durable.task t where t.task_id = _task for update;
  if _t.task_id is null then
    perform durable.refuse('DU011', format('no run %s', _task), 'It never existed, or was pruned by retention.');
  end if;
  if _t.state not in ('failed', 'cancelled') then
    perform durable.refuse('DU012', format('run %s is %s, and only failed or cancelled runs are retried', _task,
      case when _t.finished_at is null then 'still going on' else _t.state::text end),
      case when _t.finished_at is null then 'Cancel it first, or wait for its end.' else 'Use fork to run it again from a step.' end);
  end if;
  perform durable.reopen(_t, durable.voids_of(_t), durable.now());
  if _version is not null then
    perform durable.take_version(_t, durable.version_of(_t.line, _version));
  end if;
  -- Whoever still waits for it waits on.
  insert into durable.open_child (parent_id, child_id)
  select p.task_id, _task from durable.task p where p.task_id = _t.parent_task and p.finished_at is null on conflict do nothing;
  if _notify then
    perform pg_notify('durable_work', 'a');
  end if;
end
$$;

-- version_of: a version of a line's workflow by its hash or as 'current'; refused where it was never deployed.
create or replace function durable.version_of(_line int, _version text) returns text
language plpgsql stable as $$
declare
  _workflow text := (select l.workflow from durable.line l where l.line = _line);
  _found    text;
begin
  select v.version into _found from durable.version v join durable.workflow w on w.name = v.workflow
  where v.workflow = _workflow and v.version = case when _version = 'current' then w.version else _version end;
  if _found is null then
    perform durable.refuse('DU013', format('no version %s of %L was ever deployed', _version, _workflow),
      'Deployed are: ' || coalesce((select string_agg(v.version, ', ' order by v.deployed_at desc) from durable.version v
                                    where v.workflow = _workflow), 'none') || '.');
  end if;
  return _found;
end
$$;

-- take_version: what is not over of a run goes on as another version, from its records: snapshots fit only the plan that
-- they were taken of. The caller has locked the run.
create or replace function durable.take_version(_t durable.task, _version text) returns void
language plpgsql as $$
begin
  delete from durable.journal j using durable.task t
  where t.run_id = _t.run_id and t.finished_at is null and t.version is distinct from _version
    and j.run_id = t.run_id and j.task_id = t.task_id and j.kind = 'snapshot';
  update durable.task t set version = _version where t.run_id = _t.run_id and t.finished_at is null;
end
$$;

-- voids_of: the failures that a task ended by, positions by task: what its error says, else its last failure.
create or replace function durable.voids_of(_t durable.task) returns json
language sql stable as $$
  select coalesce(_t.error -> 'voids', json_build_object(_t.task_id, array_remove(array[coalesce(
    (_t.error ->> 'pos')::int,
    (select max(j.pos) from durable.journal j where j.run_id = _t.run_id and j.task_id = _t.task_id and j.kind = 'failed'))], null)))
$$;

-- reopen: final -> ready (or queued for a slot), with the failures in _voids taken back, here and in what ended below.
create or replace function durable.reopen(_t durable.task, _voids json, _now timestamptz) returns void
language plpgsql as $$
declare
  _child durable.task;
  _own   int[] := array(select v::int from json_array_elements_text(_voids -> _t.task_id::text) v order by 1);
begin
  for _child in
    select c.* from durable.task c
    where c.run_id = _t.run_id and c.parent_id = _t.task_id and durable.ended_with(c, _t, _voids) for update
  loop
    perform durable.reopen(_child, case when _voids -> _child.task_id::text is null then durable.voids_of(_child) else _voids end, _now);
    insert into durable.open_child (parent_id, child_id) values (_t.task_id, _child.task_id) on conflict do nothing;
  end loop;
  for _child in
    select c.* from durable.task c
    where c.parent_run = _t.run_id and c.parent_task = _t.task_id and durable.ended_with(c, _t, _voids) for update
  loop
    perform durable.reopen(_child, durable.voids_of(_child), _now);
    insert into durable.open_child (parent_id, child_id) values (_t.task_id, _child.task_id) on conflict do nothing;
  end loop;
  insert into durable.journal (run_id, task_id, pos, epoch, kind, name, body, at)
  select _t.run_id, _t.task_id, coalesce(max(j.pos), -1) + 1, _t.epoch, 'retry', 'retry',
         case when cardinality(_own) > 1 then json_build_object('void', _own[1], 'voids', _own)
              else json_build_object('void', _own[1]) end, _now
  from durable.journal j where j.run_id = _t.run_id and j.task_id = _t.task_id;
  -- An event that was delivered but never recorded is to be received again.
  delete from durable.delivery d
  where d.run_id = _t.run_id and d.step like _t.task_id || '/%' and not exists (
    select from durable.journal j where j.run_id = _t.run_id and j.task_id = _t.task_id
      and j.kind = 'event' and j.body ->> 'event' = d.event_id::text);
  update durable.task t
  set state = 'queued', finished_at = null, error = null, result = null, stop = null, wake_at = null,
      epoch = greatest(t.epoch, 1), lost = 0, lost_alone = 0, deadline_at = null, ready_at = _now
  where t.task_id = _t.task_id;
  perform durable.line_up(array[_t.task_id], _now);
end
$$;

-- ended_with: whether a child's end belongs to its parent's: it failed it, is named by what is taken back, or was stopped
-- with the parent or by its end. One that is named may have succeeded: it handed failures to its parent as data.
create or replace function durable.ended_with(_child durable.task, _parent durable.task, _voids json) returns boolean
language sql immutable as $$
  select _child.finished_at is not null and (
    _voids -> _child.task_id::text is not null
    or (_child.state in ('failed', 'cancelled')
        and (_child.task_id::text = _parent.error ->> 'child' or _child.error ->> 'message' = 'its parent ended'
             or _child.stop = _parent.stop
             or (_parent.stop = 'deadline' and _child.stop = durable.starters_deadline())
             or _child.task_id::text in (select json_array_elements_text(_parent.error -> 'children')))))
$$;

-- fork: a new run that takes over the records of another up to (not with) a position, with the old or a new
-- input, and its version unless another is given (or 'current'). Inserts only.
create or replace function durable.fork(
  _run uuid, _pos int, _input json default null, _id uuid default null, _notify boolean default true, _version text default null)
returns uuid
language plpgsql as $$
declare
  _t   durable.task;
  _new uuid := coalesce(_id, durable.uuid7());
  _as  text;
begin
  select t.* into _t from durable.task t where t.task_id = _run and t.parent_id is null;
  if _t.task_id is null then
    perform durable.refuse('DU011', format('no run %s', _run), 'It never existed, or was pruned by retention.');
  end if;
  if exists (select from durable.open_child c where c.parent_id = _run) then
    perform durable.refuse('DU012', format('run %s still has children that run', _run), 'Cancel it first, or wait for its end.');
  end if;
  _as := case when _version is null then _t.version else durable.version_of(_t.line, _version) end;
  if _input is not null then
    perform durable.check_input((select l.workflow from durable.line l where l.line = _t.line), _input);
  end if;
  insert into durable.journal (run_id, task_id, pos, epoch, kind, name, frame, body, ms, at)
  select _new, _new, j.pos, 0, j.kind, j.name, j.frame, j.body, j.ms, j.at
  from durable.journal j
  where j.run_id = _run and j.task_id = _run and j.pos < _pos and (j.kind <> 'snapshot' or _as is not distinct from _t.version);
  insert into durable.delivery (run_id, step, event_id)
  select _new, _new || '/' || regexp_replace(j.name, '#\d+$', ''), (j.body ->> 'event')::uuid
  from durable.journal j where j.run_id = _new and j.kind = 'event'
  on conflict do nothing;
  insert into durable.value (run_id, hash, body) select _new, v.hash, v.body from durable.value v where v.run_id = _run;
  perform durable.start_runs(json_build_array(json_build_object(
    'id', _new, 'line', _t.line, 'prio', _t.prio, 'epoch', 1, 'input', coalesce(_input, _t.input), 'version', _as,
    'cap', _t.cap_key, 'tags', to_json(_t.tags), 'deadline', extract(epoch from _t.deadline_at - _t.created_at))), _notify);
  return _new;
end
$$;
