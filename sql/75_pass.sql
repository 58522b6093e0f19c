-- The pass: signals and timers, applied by whoever comes first. Passes of one shard are serial.

-- pass: apply the signals of some shards, fire due timers, then claim for this worker what became ready. By key only, as
-- for flush: the planner's settings are those of the worker's session.
-- Answers [now, claimed, told, lines made ready, more to do, shards signalled, next timer, other workers with news].
create or replace function durable.pass(
  _worker   uuid,
  _channel  int,
  _flush_no bigint,
  _shards   int[],
  _timers   boolean,
  _claim_n  int,
  _claim    json,
  _alone    boolean,
  _limit    int default 500
) returns json
language plpgsql
set lock_timeout = '250ms'
as $$
declare
  _now     timestamptz := durable.now();
  _shard   int;
  _lines   int[];
  _some    int[];
  _more    boolean := false;
  _again   boolean;
  _claimed json;
  _told    json;
begin
  if not durable.pass_fence(_worker, _channel, _flush_no) then
    return null;
  end if;
  if _timers then
    select f.lines, f.more into _some, _again from durable.fire_timers(_now, _limit) f;
    _lines := _lines || _some;
    _more := _more or _again;
  end if;
  foreach _shard in array _shards loop
    -- One look into an index instead of a lock: a signal that commits after it brings a hint of its own.
    continue when not exists (select from durable.signal g where g.shard = _shard);
    select a.lines, a.more into _some, _again from durable.apply_signals(_shard, _now, _limit) a;
    _lines := _lines || _some;
    _more := _more or _again;
  end loop;
  if _claim_n > 0 then
    _claimed := durable.claim(_worker, _claim_n, _claim, _alone, _now);
  end if;
  if exists (select from durable.held h where h.worker_id = _worker and (h.stop or h.news)) then
    _told := durable.tell(_worker);
  end if;
  return json_build_array(extract(epoch from _now), _claimed, _told, to_json(_lines), _more,
    (select json_agg(distinct s.shard) from generate_series(0, 15) g (n)
     cross join lateral (select q.shard from durable.signal q where q.shard = g.n limit 1) s),
    (select extract(epoch from m.wake_at - _now) from durable.timer m order by m.wake_at limit 1),
    (select json_agg(distinct h.worker_id) from durable.held h where h.news and h.worker_id <> _worker));
end
$$;

-- fire_timers: due timers wake their tasks; a delayed one becomes ready; a deadline asks for a stop.
-- Locks: timer, then task (both skip locked).
create or replace function durable.fire_timers(_now timestamptz, _limit int, out lines int[], out more boolean)
language plpgsql as $$
declare
  _wakes   uuid[];
  _delayed uuid[];
  _some    int[];
begin
  with due as materialized (
    select m.wake_at, m.task_id, m.deadline from durable.timer m
    where m.wake_at <= _now order by m.wake_at, m.task_id limit _limit for update skip locked
  ), k as materialized (
    select d.wake_at, d.task_id, d.deadline, t.run_id, t.state, t.deadline_cancels from due d
    cross join lateral (select t.run_id, t.state, t.deadline_cancels from durable.task t where t.task_id = d.task_id for update skip locked) t
  ), x as (
    delete from durable.timer m using k where m.wake_at = any (array[k.wake_at]) and m.task_id = k.task_id and m.deadline = k.deadline
  ), s as (
    insert into durable.signal (shard, id, kind, run_id, task_id, name)
    select durable.shard(k.run_id::text), durable.uuid7(), 'cancel', k.run_id, k.task_id,
           case when k.deadline_cancels then 'cancel:the run was not done at its deadline' else 'deadline' end
    from k where k.deadline
  )
  select (select count(*) from due) >= _limit,
         array_agg(k.task_id) filter (where not k.deadline and k.state <> 'delayed'),
         array_agg(k.task_id) filter (where not k.deadline and k.state = 'delayed')
  into more, _wakes, _delayed from k;

  if _wakes is not null then
    lines := durable.wake(_wakes, _now);
  end if;
  if _delayed is not null then
    update durable.task t set state = 'queued', wake_at = null where t.task_id = any (_delayed);
    perform durable.line_up(_delayed, _now);
    select array_agg(distinct t.line) into _some from durable.task t where t.task_id = any (_delayed) and t.state = 'active';
    lines := lines || _some;
  end if;
end
$$;

-- apply_signals: up to _limit signals of one shard, serial with every other pass of it. What cannot be applied
-- now (its task is locked by a flush) is put back.
create or replace function durable.apply_signals(_shard int, _now timestamptz, _limit int, out lines int[], out more boolean)
language plpgsql as $$
declare
  _batch durable.signal[];
  _kinds durable.signal_kind[];
  _some  int[];
  _one   durable.signal;
begin
  more := false;
  if not pg_try_advisory_xact_lock(1146442305, _shard) then
    return;
  end if;
  -- A new statement, hence a new snapshot: it sees whatever committed before the lock was ours.
  with d as (
    delete from durable.signal g
    where g.ctid = any (array(select q.ctid from durable.signal q where q.shard = _shard order by q.id limit _limit))
    returning g.*
  )
  select array_agg(d.*::durable.signal order by d.id), array_agg(distinct d.kind) into _batch, _kinds from d;
  if _batch is null then
    return;
  end if;
  more := cardinality(_batch) >= _limit;

  if _kinds && '{event, wait}' then
    _some := durable.match_events(_batch, _now, _limit);
    lines := lines || _some;
  end if;
  if _kinds && '{child, wait}' then
    _some := durable.join_children(_batch, _now);
    lines := lines || _some;
  end if;
  if not _kinds && '{cancel, slot, wake}' then
    return;
  end if;
  for _one in
    select distinct on (b.kind, coalesce(b.name, ''), b.task_id) b.* from unnest(_batch) b where b.kind in ('cancel', 'slot', 'wake')
  loop
    if _one.kind = 'slot' then
      _some := durable.admit(_one.name, _now);
      lines := lines || _some;
    elsif _one.kind = 'cancel' then
      _some := durable.stop_below(_one, _now);
      lines := lines || _some;
    else
      perform from durable.task t where t.task_id = _one.task_id for update skip locked;
      if found then
        _some := durable.wake(array[_one.task_id], _now);
        lines := lines || _some;
      else
        insert into durable.signal select (_one).*;
      end if;
    end if;
  end loop;
end
$$;

-- match_events: give waits the events of their name. Each match is applied once: passes of a name are serial,
-- an outcome that is set never changes, and a step receives an event once. An event's signal carries the last
-- waiter that was looked at, while there are more of them than one pass takes. Triggers get theirs first.
-- Locks: task and wait (skip locked).
create or replace function durable.match_events(_batch durable.signal[], _now timestamptz, _limit int) returns int[]
language plpgsql as $$
declare
  _woken uuid[];
begin
  perform durable.catch_events(_batch);
  with n as materialized (
    select distinct on (b.name) b.name, b.task_id from unnest(_batch) b where b.kind = 'event'
    order by b.name, b.task_id nulls first
  ), p as materialized (
    -- In the order of task_id, which no index but that of names has: statistics cannot lead elsewhere.
    select n.name, w.run_id, w.task_id from n cross join lateral (
      select w.run_id, w.task_id from durable.wait w
      where w.name = n.name and w.outcome is null and (n.task_id is null or w.task_id > n.task_id)
      order by w.task_id limit _limit) w
  ), o as materialized (
    select w.run_id, w.task_id, w.key, w.name, w.step, w.since
    from (select distinct p.name, p.run_id, p.task_id from p) t
    join durable.wait w on w.run_id = any (array[t.run_id]) and w.task_id = t.task_id
    where w.name = t.name and w.outcome is null
    union
    select w.run_id, w.task_id, w.key, w.name, w.step, w.since
    from unnest(_batch) b join durable.wait w on w.run_id = any (array[b.run_id]) and w.task_id = b.task_id and w.key = b.name
    where b.kind = 'wait' and w.name is not null and w.outcome is null
  ), f as materialized (
    select o.*, e.event_id, durable.outcome_of(e.event_id, e.payload) as outcome,
           row_number() over (partition by o.run_id, o.step order by o.key) = 1 as first
    from o cross join lateral durable.next_event(o.run_id, o.step, o.name, o.since) e where e.event_id is not null
  ), k as materialized (
    select f.* from f
    join durable.task t on t.task_id between f.task_id and f.task_id
    join durable.wait w on w.run_id = any (array[f.run_id]) and w.task_id = f.task_id and w.key = f.key
    where f.first and w.outcome is null for update of t, w skip locked
  ), v as (
    insert into durable.delivery (run_id, step, event_id) select k.run_id, k.step, k.event_id from k
    on conflict do nothing returning run_id, step, event_id
  ), u as (
    update durable.wait w set outcome = k.outcome
    from k join v on v.run_id = k.run_id and v.step = k.step and v.event_id = k.event_id
    where w.run_id = any (array[k.run_id]) and w.task_id = k.task_id and w.key = k.key
    returning w.task_id, w.key
  ), g as (
    -- Locked now, or another wait of its step took the event: the wait asks again.
    insert into durable.signal (shard, id, kind, run_id, task_id, name)
    select durable.shard(f.name), durable.uuid7(), 'wait', f.run_id, f.task_id, f.key
    from f where (f.task_id, f.key) not in (select u.task_id, u.key from u)
  ), a as (
    insert into durable.signal (shard, id, kind, task_id, name)
    select durable.shard(m.name), durable.uuid7(), 'event', m.last[1], m.name
    from (select p.name, array_agg(p.task_id order by p.task_id desc) as last from p group by p.name having count(*) >= _limit) m
  )
  select array_agg(distinct u.task_id) into _woken from u;
  if _woken is null then
    return null;
  end if;
  return durable.wake(_woken, _now);
end
$$;

-- join_children: decide waits for children. all: none open. first_failure: none open, or one did not
-- succeed. any: one is final. Locks: task (skip locked).
create or replace function durable.join_children(_batch durable.signal[], _now timestamptz) returns int[]
language plpgsql as $$
declare
  _woken   uuid[] := '{}';
  _wait    durable.wait;
  _outcome json;
begin
  for _wait in
    select distinct on (w.run_id, w.task_id, w.key) w.* from unnest(_batch) b
    join durable.wait w on w.run_id = any (array[b.run_id]) and w.task_id = b.task_id and (b.kind = 'child' or w.key = b.name)
    where b.kind in ('child', 'wait') and w.name is null and w.outcome is null
  loop
    _outcome := durable.join_outcome(_wait, _batch);
    continue when _outcome is null;
    perform from durable.task t where t.task_id = _wait.task_id for update skip locked;
    if not found then
      insert into durable.signal (shard, id, kind, run_id, task_id, name)
      values (durable.shard(_wait.task_id::text), durable.uuid7(), 'wait', _wait.run_id, _wait.task_id, _wait.key);
      continue;
    end if;
    update durable.wait w set outcome = _outcome
    where w.run_id = _wait.run_id and w.task_id = _wait.task_id and w.key = _wait.key;
    _woken := _woken || _wait.task_id;
  end loop;
  if _woken = '{}' then
    return null;
  end if;
  return durable.wake(_woken, _now);
end
$$;

-- join_outcome: what a wait for children has come to, null while it is open. The children themselves are
-- looked through once, when the wait is new; after that a failed child is named by its own signal.
create or replace function durable.join_outcome(_wait durable.wait, _batch durable.signal[]) returns json
language plpgsql stable as $$
declare
  _one uuid;
begin
  if _wait.mode = 'any' or (_wait.mode = 'first_failure' and exists (
       select from unnest(_batch) b where b.kind = 'wait' and b.task_id = _wait.task_id and b.name = _wait.key)) then
    select t.task_id into _one from durable.task t
    where (t.task_id between _wait.child_first and _wait.child_last or t.task_id = any (_wait.children))
      and t.finished_at is not null and (_wait.mode = 'any' or t.state <> 'succeeded') limit 1;
  elsif _wait.mode = 'first_failure' then
    select b.name::uuid into _one from unnest(_batch) b
    where b.kind = 'child' and b.task_id = _wait.task_id and b.name is not null
      and (b.name::uuid between _wait.child_first and _wait.child_last or b.name::uuid = any (_wait.children)) limit 1;
  end if;
  if _one is not null then
    return json_build_object('first', _one);
  end if;
  if exists (select from durable.open_child c where c.parent_id = _wait.task_id
             and (c.child_id between _wait.child_first and _wait.child_last or c.child_id = any (_wait.children))) then
    return null;
  end if;
  return '{"done": true}';
end
$$;

-- starters_deadline: why a run is stopped whose starter was not done in time.
create or replace function durable.starters_deadline() returns text
language sql immutable as $$
  select 'cancel:the run that started it was not done at its deadline'
$$;

-- stop_below: a cancel for a task and every open task below it, from the top: a child that ends before its parent
-- has heard of the cancel would look like a failure to it. A run that one of them started is cancelled, whatever
-- stopped its starter: the deadline was not its own. Answers with the lines where one is ready to clean up.
create or replace function durable.stop_below(_signal durable.signal, _now timestamptz) returns int[]
language plpgsql as $$
declare
  _below durable.signal := _signal;
  _child record;
  _lines int[];
  _some  int[];
begin
  perform from durable.task t where t.task_id = _signal.task_id for update skip locked;
  if not found or not durable.stop_task(_signal.task_id, _signal.name, _now) then
    insert into durable.signal (shard, id, kind, run_id, task_id, name)
    select durable.shard(_signal.run_id::text), durable.uuid7(), 'cancel', _signal.run_id, _signal.task_id, _signal.name
    where exists (select from durable.task t where t.task_id = _signal.task_id);
    return null;
  end if;
  _lines := array(select case when t.lost >= 2 then -t.line else t.line end from durable.task t
                  where t.task_id = _signal.task_id and t.state = 'active');
  for _child in
    select t.task_id, t.run_id, t.parent_run is not null as own_run
    from durable.open_child c join durable.task t on t.task_id between c.child_id and c.child_id where c.parent_id = _signal.task_id
  loop
    _below.task_id := _child.task_id;
    _below.run_id := _child.run_id;
    _below.name := case when _child.own_run and _signal.name = 'deadline'
                        then durable.starters_deadline() else _signal.name end;
    _some := durable.stop_below(_below, _now);
    _lines := _lines || _some;
  end loop;
  return _lines;
end
$$;
