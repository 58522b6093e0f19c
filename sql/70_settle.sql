-- What follows when tasks become final, or wake.

-- settle: the consequences of tasks that just became final: parents, slots, timers, waits, open children.
-- Only inserts signals and deletes what belongs to these tasks.
create or replace function durable.settle(_tasks uuid[], _now timestamptz) returns int[]
language plpgsql as $$
declare
  _shards int[];
  _some   int[];
begin
  with d as (
    delete from durable.open_child c using durable.task t
    where t.task_id = any (_tasks) and c.parent_id = any (array[coalesce(t.parent_id, t.parent_task)]) and c.child_id = t.task_id
    returning c.parent_id, coalesce(t.parent_run, t.run_id) as run_id, case when t.state <> 'succeeded' then t.task_id::text end as bad
  ), g as (
    insert into durable.signal (shard, id, kind, run_id, task_id, name)
    select durable.shard(d.parent_id::text), durable.uuid7(), 'child', d.run_id, d.parent_id, d.bad
    from (select distinct d.parent_id, d.run_id, d.bad from d) d
    returning shard
  ), k as (
    insert into durable.signal (shard, id, kind, run_id, task_id, name)
    select durable.shard(t.run_id::text), durable.uuid7(), 'cancel', t.run_id, c.child_id, 'cancel:its parent ended'
    from durable.task t join durable.open_child c on c.parent_id = any (array[t.task_id]) where t.task_id = any (_tasks)
    returning shard
  )
  select (select array_agg(g.shard) from g) || (select array_agg(k.shard) from k) into _shards;

  if exists (select from durable.task t where t.task_id = any (_tasks) and t.caps is not null) then
    delete from durable.cap_queue q where q.task_id = any (_tasks);
    _some := durable.free_slots(_tasks, false);
  end if;
  delete from durable.timer m using durable.task t
  where t.task_id = any (_tasks) and t.deadline_at is not null and m.wake_at = any (array[t.deadline_at]) and m.task_id = t.task_id;
  delete from durable.timer m using durable.task t
  where t.task_id = any (_tasks) and t.wake_at is not null and m.wake_at = any (array[t.wake_at]) and m.task_id = t.task_id;
  delete from durable.wait w using durable.task t
  where t.task_id = any (_tasks) and w.run_id = any (array[t.run_id]) and w.task_id = t.task_id;
  return _shards || _some;
end
$$;

-- wake: parked -> ready (or queued for a running slot); a running task gets news. The caller has locked the
-- task rows. Answers with the lines that became ready.
create or replace function durable.wake(_tasks uuid[], _now timestamptz) returns int[]
language plpgsql as $$
declare
  _lines  int[];
  _queued uuid[];
begin
  with b as materialized (
    select t.task_id, t.state, t.wake_at,
           exists (select from unnest(t.caps) c where left(c, 1) in ('r', 'R')) as capped
    from durable.task t where t.task_id = any (_tasks) and t.state in ('active', 'parked')
  ), u as (
    update durable.task t
    set wakes = t.wakes + 1,
        state = case when b.state = 'active' then b.state when b.capped then 'queued' else 'active' end,
        ready_at = case when b.state = 'parked' then _now else t.ready_at end,
        wake_at = null
    from b where t.task_id between b.task_id and b.task_id
    returning t.task_id, case when t.lost >= 2 then -t.line else t.line end as line, t.prio, t.epoch, t.state,
              b.state as was, b.wake_at as slept_to
  ), x as (
    delete from durable.timer m using u
    where u.slept_to is not null and m.wake_at = any (array[u.slept_to]) and m.task_id = u.task_id and not m.deadline
  ), r as (
    insert into durable.ready (line, prio, ready_at, task_id, epoch)
    select u.line, u.prio, _now, u.task_id, u.epoch from u where u.was = 'parked' and u.state = 'active'
  ), h as (
    update durable.held h set news = true from u where u.was = 'active' and h.task_id between u.task_id and u.task_id
  )
  select array_agg(distinct u.line) filter (where u.was = 'parked' and u.state = 'active'),
         array_agg(u.task_id) filter (where u.state = 'queued')
  into _lines, _queued from u;
  if _queued is not null then
    perform durable.line_up(_queued, _now);
  end if;
  return _lines;
end
$$;

-- stop_task: apply a cancel (or a deadline) to one locked task. A running one is told; a waiting one ends at
-- once, unless its workflow has a cleanup to run first. False: it is just being claimed, come back later.
create or replace function durable.stop_task(_task uuid, _why text, _now timestamptz) returns boolean
language plpgsql as $$
declare
  _t       durable.task;
  _cleanup boolean;
begin
  select t.* into _t from durable.task t where t.task_id = _task;
  if _t.finished_at is not null then
    return true;
  end if;
  update durable.held h set stop = true, news = true where h.task_id = _task;
  if found then
    update durable.task t set stop = _why where t.task_id = _task;
    return true;
  end if;
  if _t.state = 'active' then
    delete from durable.ready r
    where r.line = case when _t.lost >= 2 then -_t.line else _t.line end
      and r.prio = _t.prio and r.ready_at = _t.ready_at and r.task_id = _task;
    if not found then
      return false;
    end if;
  end if;
  delete from durable.timer m where m.wake_at = _t.wake_at and m.task_id = _task and not m.deadline;
  delete from durable.cap_queue q where q.task_id = _task;
  select w.has_cleanup into _cleanup from durable.line l join durable.workflow w on w.name = l.workflow where l.line = _t.line;
  if _cleanup and _t.epoch > 0 then
    update durable.task t set stop = _why, wakes = t.wakes + 1, state = 'queued' where t.task_id = _task;
    perform durable.line_up(array[_task], _now);
    return true;
  end if;
  update durable.task t
  set stop = _why, finished_at = _now, wake_at = null, error = durable.stop_error(_why),
      state = case when _why = 'deadline' then 'failed' else 'cancelled' end::durable.task_state
  where t.task_id = _task;
  perform durable.settle(array[_task], _now);
  if _t.parent_id is null then
    perform durable.tell_ends(_task::text);
  end if;
  return true;
end
$$;

create or replace function durable.stop_error(_why text) returns json
language sql immutable as $$
  select case when _why = 'deadline'
    then json_build_object('type', 'DeadlineExceeded', 'message', 'the run was not done at its deadline')
    else json_build_object('type', 'Cancelled', 'message', substr(_why, 8)) end
$$;
