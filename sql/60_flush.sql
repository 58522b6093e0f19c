-- flush: everything that a worker has to say, in one call and one commit. Nothing here waits for what a
-- user's transaction can hold: parks and ends touch tasks that this worker holds, the rest is inserted.
-- Locks, in order: fence, task, held.
--
-- A worker's sessions forbid scans, hash and merge joins (durable/link.py): a cached plan made while a table was small
-- must not turn into a scan when it has grown. Not in a SET clause as for the pass: five settings changed and restored were
-- a quarter of the cost of a flush with one record.
-- Every access is by primary key, and joins say `key between x and x`, or `first_key = any (array[x])`, instead of `key = x`:
-- after a vacuum has found a queue table empty, a plain equality is planned as a walk through its whole index.
create or replace function durable.flush(
  _worker   uuid,
  _channel  int,
  _flush_no bigint,
  _journal  json,    -- [{r run, t task, p pos, e epoch, k kind, n name, f frame, b body, m ms}]; left out: epoch 1, step, 0 ms
  _ends     json,    -- [{t task, e epoch, s state, r result, x error, m more}]; left out: epoch 1, succeeded, nothing more
  _parks    json,    -- [{t task, e epoch, w wakes, u until, s stop heeded}]
  _effects  json,    -- {values, spawns, events, waits, consumed, expired, gives, wakes, cancels, logs, progress}
  _claim_n  int,
  _claim    json,    -- [{line, prio, at, id}]
  _alone    boolean
) returns json
language plpgsql
set lock_timeout = '250ms'
as $$
declare
  _now     timestamptz;
  _shards  int[];
  _lines   int[];
  _few     boolean := json_array_length(_ends) <= 4;
  _more    uuid[];
  _ended   text;
  _refused json;
  _met     json;
  _claimed json;
  _told    json;
begin
  -- As pass_fence does, and durable.now() with it: a call of each is what a flush of few records costs most.
  update durable.fence f set flush_no = _flush_no
  where f.worker_id = _worker and f.channel = _channel and f.flush_no < _flush_no
  returning statement_timestamp() + coalesce((select c.shift from durable.clock c), interval '0') into _now;
  if not found then
    perform durable.check_fence(_worker, _channel);
    return null;
  end if;

  if _journal is not null then
    insert into durable.journal (run_id, task_id, pos, epoch, kind, name, frame, body, ms, at)
    select coalesce(j.r, j.t), j.t, j.p, coalesce(j.e, 1), coalesce(j.k, 'step'), j.n, j.f, j.b,
           case when j.k is null then coalesce(j.m, 0) else j.m end, _now
    from json_to_recordset(_journal) as j (r uuid, t uuid, p int, e int, k text, n text, f text, b json, m int);
  end if;

  if _effects is not null then
    select e.shards, e.lines, e.met into _shards, _lines, _met from durable.apply_effects(_worker, _effects, _now) e;
  end if;

  if _parks is not null then
    select p.shards, p.refused into _shards, _refused from durable.park(_worker, _parks, _shards, _now) p;
  end if;

  if _ends is not null then
    with e as materialized (
      select x.t, coalesce(x.e, 1) as e, coalesce(x.s, 'succeeded') as s, x.r, x.x, x.m
      from json_to_recordset(_ends) as x (t uuid, e int, s durable.task_state, r json, x json, m boolean)
    ), u as (
      update durable.task t
      set state = e.s, result = e.r, error = e.x, finished_at = _now, epoch = e.e,
          started_at = coalesce(t.started_at, h.claimed_at)
      from e join durable.held h on h.task_id between e.t and e.t
      where t.task_id between e.t and e.t and (h.worker_id = _worker) is true and h.epoch = e.e
      returning t.task_id, t.parent_id is null as of_run, (t.parent_id is not null or t.parent_task is not null or t.caps is not null
                            or t.deadline_at is not null or e.m) as more
    ), d as (
      delete from durable.held h using u where h.task_id between u.task_id and u.task_id
    )
    select array_agg(u.task_id) filter (where u.more), string_agg(u.task_id::text, ',') filter (where u.of_run and _few)
    into _more, _ended from u;
    -- Few ends at a time are told by the commit itself; many are told by the worker, after it.
    if _ended is not null then
      perform durable.tell_ends(_ended);
    end if;
    if _more is not null then
      _shards := _shards || durable.settle(_more, _now);
    end if;
  end if;

  if _claim_n > 0 then
    _claimed := durable.claim(_worker, _claim_n, _claim, _alone, _now);
  end if;

  -- Last, so that a pass that waits for a held row waits only for this commit.
  if exists (select from durable.held h where h.worker_id = _worker and (h.stop or h.news)) then
    _told := durable.tell(_worker);
  end if;

  return json_build_array(date_part('epoch', _now), _claimed, _told, _refused, _met, to_json(_shards), to_json(_lines));
end
$$;

-- tell: what happened to the tasks that a worker runs: [task, wakes, stop, waits]. A row that is locked belongs to a pass that
-- has more news of it, and will say so; two that wait for each other's rows would only wait for the time limit.
create or replace function durable.tell(_worker uuid) returns json
language sql as $$
  with l as materialized (
    select h.task_id from durable.held h where h.worker_id = _worker and (h.stop or h.news) for no key update skip locked
  ), n as (
    update durable.held h set news = false from l where h.task_id between l.task_id and l.task_id returning h.task_id
  )
  select json_agg(json_build_array(t.task_id, t.wakes, t.stop, durable.waits_of(t.run_id, t.task_id)))
  from n join durable.task t on t.task_id between n.task_id and n.task_id
$$;

-- park: held -> parked, for tasks whose every branch waits. Refused where something woke the task since
-- the worker last looked; then the answer has what is new: [task, wakes, stop, waits].
create or replace function durable.park(_worker uuid, _parks json, _shards int[], _now timestamptz, out shards int[], out refused json)
language plpgsql as $$
declare
  _parked uuid[];
  _capped uuid[];
begin
  with p as materialized (
    select x.t, x.e, x.w, to_timestamp(x.u) as u, x.s
    from json_to_recordset(_parks) as x (t uuid, e int, w int, u double precision, s boolean)
  ), u as (
    update durable.task t
    set state = 'parked', epoch = p.e, wake_at = p.u, started_at = coalesce(t.started_at, h.claimed_at)
    from p join durable.held h on h.task_id between p.t and p.t
    where t.task_id between p.t and p.t and (h.worker_id = _worker) is true and h.epoch = p.e and t.wakes = p.w and (t.stop is null or p.s)
    returning t.task_id, p.u, t.caps
  ), d as (
    delete from durable.held h using u where h.task_id between u.task_id and u.task_id
  ), w as (
    insert into durable.timer (wake_at, task_id) select u.u, u.task_id from u where u.u is not null
  )
  select array_agg(u.task_id), array_agg(u.task_id) filter (where u.caps is not null) into _parked, _capped from u;

  select json_agg(json_build_array(t.task_id, t.wakes, t.stop, durable.waits_of(t.run_id, t.task_id))) into refused
  from json_to_recordset(_parks) as x (t uuid) join durable.task t on t.task_id between x.t and x.t
  where x.t <> all (coalesce(_parked, '{}'));
  shards := _shards;
  if _capped is not null then
    shards := shards || durable.free_slots(_capped, true);
  end if;
end
$$;

-- apply_effects: what the records of this flush cause: values, children, events, waits, give-backs, log lines.
create or replace function durable.apply_effects(_worker uuid, _do json, _now timestamptz, out shards int[], out lines int[], out met json)
language plpgsql as $$
declare
  _some   int[];
  _timed  boolean;
  _capped boolean;
begin
  if _do -> 'values' is not null then
    insert into durable.value (run_id, hash, body)
    select v.r, v.h, v.b from json_to_recordset(_do -> 'values') as v (r uuid, h text, b json)
    on conflict do nothing;
  end if;
  if _do -> 'spawns' is not null then
    select p.lines, p.timed, p.capped into lines, _timed, _capped from durable.place(_do -> 'spawns', _now) p;
    if _capped then
      shards := array(select durable.shard(q.cap_key) from json_to_recordset(_do -> 'spawns') as s (id uuid)
                      join durable.cap_queue q on q.task_id = s.id);
    end if;
    if _timed then
      -- A pass of any shard tells the worker when the next timer is due.
      shards := shards || 0;
    end if;
  end if;
  if _do -> 'events' is not null then
    with e as materialized (
      select x.i, x.n, x.b, x.r from json_to_recordset(_do -> 'events') as x (i uuid, n text, b json, r uuid)
    ), v as (
      insert into durable.event (name, event_id, payload, emitted_at, run_id) select e.n, e.i, e.b, _now, e.r from e
    ), g as (
      insert into durable.signal (shard, id, kind, name)
      select durable.shard(e.n), e.i, 'event', e.n from e returning shard
    )
    select array_agg(g.shard) into _some from g;
    shards := shards || _some;
  end if;
  if _do -> 'consumed' is not null then
    delete from durable.wait w using json_to_recordset(_do -> 'consumed') as c (r uuid, t uuid, k text)
    where w.run_id = any (array[c.r]) and w.task_id = c.t and w.key = c.k;
  end if;
  if _do -> 'waits' is not null then
    select a.shards, a.met into _some, met from durable.add_waits(_do -> 'waits', _now) a;
    shards := shards || _some;
  end if;
  if _do -> 'expired' is not null then
    met := durable.expire_waits(_do -> 'expired', met);
  end if;
  if _do -> 'gives' is not null then
    with u as (
      update durable.task t set ready_at = coalesce(to_timestamp(x.a), _now), epoch = x.e
      from json_to_recordset(_do -> 'gives') as x (t uuid, e int, a double precision) join durable.held h on h.task_id between x.t and x.t
      where t.task_id between x.t and x.t and (h.worker_id = _worker) is true and h.epoch = x.e
      returning t.task_id, case when t.lost >= 2 then -t.line else t.line end as line, t.prio, t.ready_at, t.epoch
    ), d as (
      delete from durable.held h using u where h.task_id between u.task_id and u.task_id
    ), r as (
      insert into durable.ready (line, prio, ready_at, task_id, epoch) select u.line, u.prio, u.ready_at, u.task_id, u.epoch from u
    )
    select array_agg(distinct u.line) into _some from u;
    lines := lines || _some;
  end if;
  if _do -> 'wakes' is not null then
    with g as (
      insert into durable.signal (shard, id, kind, run_id, task_id)
      select durable.shard(x.r::text), durable.uuid7(), 'wake', x.r, x.t from json_to_recordset(_do -> 'wakes') as x (r uuid, t uuid)
      returning shard
    )
    select array_agg(g.shard) into _some from g;
    shards := shards || _some;
  end if;
  if _do -> 'cancels' is not null then
    with g as (
      insert into durable.signal (shard, id, kind, run_id, task_id, name)
      select durable.shard(x.r::text), durable.uuid7(), 'cancel', x.r, x.t, 'cancel:' || x.n
      from json_to_recordset(_do -> 'cancels') as x (r uuid, t uuid, n text)
      returning shard
    )
    select array_agg(g.shard) into _some from g;
    shards := shards || _some;
  end if;
  if _do -> 'logs' is not null then
    insert into durable.log (run_id, task_id, id, at, level, step, message, fields)
    select l.r, l.t, l.i, _now, l.l, l.s, l.m, l.f
    from json_to_recordset(_do -> 'logs') as l (r uuid, t uuid, i uuid, l text, s text, m text, f json)
    on conflict do nothing;
  end if;
  if _do -> 'progress' is not null then
    insert into durable.progress as p (run_id, task_id, done, total, note, at)
    select x.r, x.t, x.d, x.o, x.n, _now
    from json_to_recordset(_do -> 'progress') as x (r uuid, t uuid, d double precision, o double precision, n text)
    order by x.r, x.t
    on conflict (run_id, task_id) do update
      set done = excluded.done, total = excluded.total, note = excluded.note, at = excluded.at;
  end if;
end
$$;

-- add_waits: open waits of running tasks. One that finds its event in the log is met at once, and its task
-- counts as woken, so that a park in the same flush is refused. The others leave a signal for the pass.
create or replace function durable.add_waits(_waits json, _now timestamptz, out shards int[], out met json)
language plpgsql as $$
begin
  with w as materialized (
    select x.r, x.t, x.k, x.n, x.s, to_timestamp(x.since) as since, to_timestamp(x.until) as until, x.mode, x.first, x.last, x.kids
    from json_to_recordset(_waits) as x (r uuid, t uuid, k text, n text, s text, since double precision,
         until double precision, mode text, first uuid, last uuid, kids uuid[])
  ), e as materialized (
    select distinct on (w.r, w.s) w.r, w.t, w.k, w.s, e.event_id, durable.outcome_of(e.event_id, e.payload) as outcome
    from w cross join lateral durable.next_event(w.r, w.s, w.n, w.since) e where w.n is not null and e.event_id is not null
    order by w.r, w.s, w.k
  ), d as (
    -- A pass may be giving the same event to another wait of this step: only one of them inserts this row.
    insert into durable.delivery (run_id, step, event_id) select e.r, e.s, e.event_id from e
    on conflict do nothing returning run_id, step
  ), f as materialized (
    select e.t, e.k, e.outcome from e join d on d.run_id = e.r and d.step = e.s
  ), i as (
    insert into durable.wait (run_id, task_id, key, name, step, since, timeout_at, mode, child_first, child_last, children, outcome)
    select w.r, w.t, w.k, w.n, w.s, w.since, w.until, w.mode, w.first, w.last, w.kids, f.outcome
    from w left join f on f.t = w.t and f.k = w.k
  ), u as (
    update durable.task t set wakes = t.wakes + 1 from (select distinct f.t from f) m where t.task_id between m.t and m.t
    returning t.task_id, t.wakes
  ), g as (
    insert into durable.signal (shard, id, kind, run_id, task_id, name)
    select durable.shard(coalesce(w.n, w.t::text)), durable.uuid7(), 'wait', w.r, w.t, w.k
    from w left join f on f.t = w.t and f.k = w.k where f.t is null
    returning shard
  )
  select (select array_agg(g.shard) from g),
         (select json_agg(json_build_array(f.t, u.wakes, f.k, f.outcome)) from f join u on u.task_id = f.t)
  into shards, met;
end
$$;

-- next_event: the oldest event of a name that this wait step of this run has not received yet. A table, so that the planner
-- puts it in place of its call.
create or replace function durable.next_event(_run uuid, _step text, _name text, _since timestamptz)
returns table (event_id uuid, payload json)
language sql stable rows 1 as $$
  select e.event_id, e.payload from durable.event e
  where e.name = _name and (_since is null or e.emitted_at >= _since)
    and not exists (select from durable.delivery d where d.run_id = _run and d.step = _step and d.event_id = e.event_id)
  order by e.event_id limit 1
$$;

create or replace function durable.outcome_of(_event uuid, _payload json) returns json
language sql immutable as $$
  select json_build_object('event', _event, 'payload', _payload)
$$;

-- expire_waits: a wait whose time is over has timed out, unless an outcome came first: that one stays. Like every
-- outcome it wakes its task, so that a park that is on its way is refused. Locks: task.
create or replace function durable.expire_waits(_expired json, _met json) returns json
language plpgsql as $$
declare
  _all json;
begin
  perform from durable.task t
  where t.task_id = any (array(select x.t from json_to_recordset(_expired) as x (t uuid))) order by t.task_id for update;
  with w as (
    update durable.wait w set outcome = '{"timeout": true}'
    from json_to_recordset(_expired) as x (r uuid, t uuid, k text)
    where w.run_id = any (array[x.r]) and w.task_id = x.t and w.key = x.k and w.outcome is null
    returning w.task_id
  )
  update durable.task t set wakes = t.wakes + 1 from (select distinct w.task_id from w) o where t.task_id between o.task_id and o.task_id;
  select json_agg(m) into _all from (
    select m from json_array_elements(_met) m
    union all
    select json_build_array(w.task_id, t.wakes, w.key, w.outcome)
    from json_to_recordset(_expired) as x (r uuid, t uuid, k text)
    join durable.wait w on w.run_id = any (array[x.r]) and w.task_id = x.t and w.key = x.k
    join durable.task t on t.task_id between x.t and x.t) a;
  return _all;
end
$$;

-- record_in_transaction: the last statement of a transaction step, after the user's own. The fence stands here, at
-- the end, so that a reaper never waits for user code. Locks: fence.
create or replace function durable.record_in_transaction(_worker uuid, _channel int, _flush_no bigint, _row json, _value json)
returns void
language plpgsql as $$
begin
  if not exists (select from durable.held h
                 where h.task_id = (_row ->> 't')::uuid and h.worker_id = _worker and h.epoch = coalesce((_row ->> 'e')::int, 1)) then
    perform durable.refuse('DU001', format('worker %s no longer holds task %s', _worker, _row ->> 't'));
  end if;
  if _value is not null then
    insert into durable.value (run_id, hash, body)
    values ((_value ->> 'r')::uuid, _value ->> 'h', _value -> 'b') on conflict do nothing;
  end if;
  insert into durable.journal (run_id, task_id, pos, epoch, kind, name, frame, body, ms, at)
  select coalesce(j.r, j.t), j.t, j.p, coalesce(j.e, 1), coalesce(j.k, 'step'), j.n, j.f, j.b,
         case when j.k is null then coalesce(j.m, 0) else j.m end, durable.now()
  from json_to_record(_row) as j (r uuid, t uuid, p int, e int, k text, n text, f text, b json, m int);
  if not durable.pass_fence(_worker, _channel, _flush_no) then
    perform durable.refuse('DU001', 'a newer call of this channel has passed the fence');
  end if;
end
$$;
