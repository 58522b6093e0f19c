-- What the store keeps. Each hot table is narrow and has one job; the run id leads every key of what
-- belongs to a run, so that retention deletes ranges and never joins.

create schema if not exists durable;

-- In this order: whatever comes from 'succeeded' on is final.
create type durable.task_state as enum
  ('active', 'parked', 'queued', 'delayed', 'succeeded', 'failed', 'cancelled');

create type durable.signal_kind as enum
  ('event', 'wait', 'child', 'cancel', 'slot', 'wake');

-- The test clock: an offset to real time, at most one row. Leases never look at it.
create table durable.clock (
  only_row  boolean primary key default true check (only_row),
  shift     interval not null
);

-- ---------------------------------------------------------------- definitions

create table durable.workflow (
  name                text primary key,
  params              json not null default '{}',
  queue               text not null default 'default',   -- where its runs stand that were started by name only
  has_cleanup         boolean not null default false,
  max_active_runs     int check (max_active_runs > 0),
  max_running         int check (max_running > 0),
  max_active_per_key  int check (max_active_per_key > 0),
  max_running_per_key int check (max_running_per_key > 0),
  deadline            interval check (deadline > interval '0'),
  deadline_action     text not null default 'fail' check (deadline_action in ('fail', 'cancel')),
  registered_at       timestamptz not null
);

-- A line is where claimable tasks stand: one queue and one workflow, as a small number. The same line
-- negated holds tasks that were lost with their worker twice and now run alone.
create table durable.line (
  line      int generated always as identity primary key,
  queue     text not null,
  workflow  text not null references durable.workflow (name),
  unique (queue, workflow)
);

-- ---------------------------------------------------------------- tasks

-- A run is its root task: task_id = run_id and no parent. One that a task of another run started names that run and
-- that task. No index names `state`, `wakes` or `epoch`:
-- parking and waking stay heap-only updates, and no plan can be driven from a state.
create table durable.task (
  task_id      uuid primary key,
  run_id       uuid not null,
  parent_id    uuid,
  parent_run   uuid,
  parent_task  uuid,
  line         int not null,
  state        durable.task_state not null,
  prio         smallint not null,
  epoch        int not null,
  wakes        int not null default 0,
  lost         smallint not null default 0,
  lost_alone   smallint not null default 0,
  ready_at     timestamptz not null,
  wake_at      timestamptz,
  created_at   timestamptz not null,
  started_at   timestamptz,
  finished_at  timestamptz,
  deadline_at  timestamptz,
  deadline_cancels boolean,
  version      text,
  cap_key      text,
  caps         text[],
  cap_scope    text[],
  tags         text[],
  stop         text,
  input        json not null,
  result       json,
  error        json,
  check ((state >= 'succeeded') = (finished_at is not null)),
  check (state <> 'failed' or error is not null),
  check ((parent_run is null) = (parent_task is null)),
  check (parent_run is null or parent_id is null)
) with (fillfactor = 50);

create index task_of_run on durable.task (run_id, parent_id) where parent_id is not null;
create index run_started_by on durable.task (parent_run, parent_task) where parent_run is not null;
create index run_of_line on durable.task (line, task_id) where parent_id is null;
create index run_troubled on durable.task (task_id) where parent_id is null and error is not null;
create index run_tagged on durable.task using gin (tags) where tags is not null;

create table durable.ready (
  line      int not null,
  prio      smallint not null,
  ready_at  timestamptz not null,
  task_id   uuid not null,
  epoch     int not null,
  primary key (line, prio, ready_at, task_id)
);

-- Running means: has a row here. No index by worker alone: only whoever takes over from a dead one would use it, and every
-- claim would pay for it.
create table durable.held (
  task_id     uuid primary key,
  worker_id   uuid not null,
  epoch       int not null,
  claimed_at  timestamptz not null,
  alone       boolean not null default false,
  stop        boolean not null default false,
  news        boolean not null default false
);
create index held_told on durable.held (worker_id) where stop or news;

create table durable.timer (
  wake_at   timestamptz not null,
  task_id   uuid not null,
  deadline  boolean not null default false,
  primary key (wake_at, task_id, deadline)
);

create table durable.open_child (
  parent_id  uuid not null,
  child_id   uuid not null,
  primary key (parent_id, child_id)
);

-- ---------------------------------------------------------------- records

create table durable.journal (
  run_id   uuid not null,
  task_id  uuid not null,
  pos      int not null,
  epoch    int not null,
  kind     text not null,
  name     text not null,
  frame    text,
  body     json,
  ms       int,
  at       timestamptz not null,
  primary key (run_id, task_id, pos)
);
-- What decides where a replay begins. Few rows are of these kinds, and no others pay for them.
create index journal_marks on durable.journal (run_id, task_id, kind, pos) where kind in ('snapshot', 'retry');

-- Values too large for a journal row, once per run.
create table durable.value (
  run_id  uuid not null,
  hash    text not null,
  body    json not null,
  primary key (run_id, hash)
);

create table durable.log (
  run_id   uuid not null,
  task_id  uuid not null,
  id       uuid not null,
  at       timestamptz not null,
  level    text not null,
  step     text,
  message  text not null,
  fields   json,
  primary key (run_id, id)
);

create table durable.progress (
  run_id   uuid not null,
  task_id  uuid not null,
  done     double precision not null,
  total    double precision,
  note     text,
  at       timestamptz not null,
  primary key (run_id, task_id)
);

-- ---------------------------------------------------------------- events and waits

create table durable.event (
  name        text not null,
  event_id    uuid not null,
  payload     json,
  emitted_at  timestamptz not null,
  run_id      uuid,
  primary key (name, event_id)
);
create index event_age on durable.event (emitted_at);

create table durable.wait (
  run_id       uuid not null,
  task_id      uuid not null,
  key          text not null,
  name         text,
  step         text,
  since        timestamptz,
  timeout_at   timestamptz,
  mode         text,
  child_first  uuid,
  child_last   uuid,
  children     uuid[],
  outcome      json,
  primary key (run_id, task_id, key)
);
create index wait_name on durable.wait (name, task_id) where name is not null;

-- Which events a wait step of a run has received: a later wait of the same step gets the next one.
create table durable.delivery (
  run_id    uuid not null,
  step      text not null,
  event_id  uuid not null,
  primary key (run_id, step, event_id)
);

create table durable.signal (
  shard    smallint not null,
  id       uuid not null,
  kind     durable.signal_kind not null,
  run_id   uuid,
  task_id  uuid,
  name     text,
  primary key (shard, id)
);

-- ---------------------------------------------------------------- caps and keys

create table durable.hold (
  cap_key  text not null,
  slot     int not null,
  task_id  uuid not null,
  primary key (cap_key, slot)
);
create index hold_of on durable.hold (task_id);

create table durable.cap_queue (
  cap_key    text not null,
  prio       smallint not null,
  queued_at  timestamptz not null,
  task_id    uuid not null,
  primary key (cap_key, prio, queued_at, task_id)
);
create index cap_queue_of on durable.cap_queue (task_id);

-- Limits that stand apart from a workflow's own: of a backfill, of a schedule. One for the key of a workflow's cap goes
-- before the workflow's. While it is held, nobody is admitted.
create table durable.cap (
  cap_key  text primary key,
  slots    int check (slots > 0),
  held     boolean not null default false
);

-- The same key returns the same id: runs by workflow, events by name. A key goes with its run or event.
create table durable.once (
  scope       text not null,
  key         text not null,
  id          uuid not null,
  created_at  timestamptz not null,
  primary key (scope, key)
);
create index once_of on durable.once (id);

-- ---------------------------------------------------------------- workers

create table durable.worker (
  worker_id   uuid primary key,
  beat        bigint not null default 0,
  started_at  timestamptz not null,
  info        json not null
) with (fillfactor = 10);

-- One row per logical write connection of a worker. Deleting them is the worker's death.
create table durable.fence (
  worker_id  uuid not null,
  channel    smallint not null,
  flush_no   bigint not null default 0,
  primary key (worker_id, channel)
) with (fillfactor = 10);
-- Time, ids and shards: what every transition uses.

-- now: the runtime's time. STABLE and without a SET clause, so that `wake_at <= durable.now()` is an
-- index condition. Never used for leases.
create or replace function durable.now() returns timestamptz
language sql stable as $$
  select statement_timestamp() + coalesce((select c.shift from durable.clock c), interval '0')
$$;

-- skip_time: move the test clock forward (or back), for everyone in this database, and tell workers and schedulers.
create or replace function durable.skip_time(_by interval) returns timestamptz
language sql volatile as $$
  insert into durable.clock (shift) values (_by)
  on conflict (only_row) do update set shift = durable.clock.shift + excluded.shift;
  select pg_notify('durable_work', 'clock'), pg_notify('durable_schedule', 'clock');
  select statement_timestamp() + (select c.shift from durable.clock c);
$$;

-- uuid7: a time-ordered id, from the server's own clock, to the microsecond: what one session makes one after the other,
-- events above all, keeps its order within a millisecond too.
create or replace function durable.uuid7() returns uuid
language sql volatile as $$
  select encode(overlay(
    uuid_send(gen_random_uuid())
    placing substring(int8send(floor(x.ms)::bigint) from 3) || int2send((28672 + floor((x.ms - floor(x.ms)) * 4096))::int2)
    from 1 for 8), 'hex')::uuid
  from (select extract(epoch from clock_timestamp()) * 1000 as ms) x
$$;

-- first_id: the least id of a moment. Ids of what was made before it are smaller.
create or replace function durable.first_id(_at timestamptz) returns uuid
language sql stable as $$
  select encode(substring(int8send((extract(epoch from _at) * 1000)::bigint) from 3) || '\x00000000000000000000', 'hex')::uuid
$$;

-- shard: what must meet (a name's waits and emits, a parent and its children, a cap's slots and queue)
-- falls into the same shard, and the passes of one shard are serial.
create or replace function durable.shard(_of text) returns smallint
language sql immutable as $$
  select (hashtext(_of) & 15)::smallint
$$;

-- refuse: raise one of our own SQLSTATEs with what to do next.
create or replace function durable.refuse(_code text, _message text, _hint text default null) returns void
language plpgsql as $$
begin
  raise exception using errcode = _code, message = _message, hint = coalesce(_hint, '');
end
$$;

-- tell_ends: these runs have ended, for whoever waits in `await_ends`. Where nobody does, nobody is told: notifications of all
-- sessions are committed one after the other, and each wakes every session that listens to anything. The lock is held until
-- the commit: who begins to wait meanwhile gets it after that, and finds the end by looking.
create or replace function durable.tell_ends(_runs text) returns void
language plpgsql as $$
begin
  if not pg_try_advisory_xact_lock(1146442305, 100) then
    perform pg_notify('durable_done', _runs);
  end if;
end
$$;

-- await_ends: before the first look at a run, in a session that listens to durable_done; until that session ends.
create or replace function durable.await_ends() returns void
language sql as $$
  select pg_advisory_lock_shared(1146442305, 100)
$$;
-- How tasks come into the store. Everything here only inserts: it is safe inside anyone's transaction,
-- at any isolation level, and locks no task, worker or counter.

-- line_of: the number of a queue and workflow; a queue is made by its first use, and none is the workflow's own. A workflow
-- whose version is empty was undeployed, and is unknown.
create or replace function durable.line_of(_queue text, _workflow text) returns int
language plpgsql as $$
declare
  _line int;
begin
  select l.line into _line from durable.line l join durable.workflow w on w.name = l.workflow
  where l.queue = coalesce(_queue, w.queue) and l.workflow = _workflow and w.version is distinct from '';
  if _line is not null then
    return _line;
  end if;
  if not exists (select from durable.workflow w where w.name = _workflow and w.version is distinct from '') then
    perform durable.refuse('DU010', format('unknown workflow %L', _workflow),
      'Registered are: ' || coalesce((select string_agg(w.name, ', ' order by w.name) from durable.workflow w
                                      where w.version is distinct from ''), 'none')
      || '. A worker or client that knows the workflow registers it when it starts; a document is registered by `durable deploy`.');
  end if;
  _queue := coalesce(_queue, (select w.queue from durable.workflow w where w.name = _workflow));
  insert into durable.line (queue, workflow) values (_queue, _workflow)
  on conflict (queue, workflow) do nothing returning line into _line;
  if _line is null then
    select l.line into _line from durable.line l where l.queue = _queue and l.workflow = _workflow;
  end if;
  return _line;
end
$$;

-- register: workflows as a worker or client knows them, and their lines on the given queues. Where something changed, a cap
-- may have been raised: whoever stands in line for a slot is looked at. Locks: the workflow's row, only then.
create or replace function durable.register(_workflows json, _queues text[]) returns table (line int, queue text, workflow text)
language plpgsql as $$
declare
  _deployed text := (select string_agg(w.name, ', ' order by w.name) from json_to_recordset(_workflows) as x (name text)
                     join durable.workflow w on w.name = x.name where w.version <> '');
begin
  if _deployed is not null then
    perform durable.refuse('DU012', format('deployed already, so no program can register it: %s', _deployed),
      'Give the program''s workflow another name.');
  end if;
  update durable.workflow w set version = null
  from json_to_recordset(_workflows) as x (name text) where w.name = x.name and w.version = '';
  with u as (
    insert into durable.workflow as w (name, params, queue, has_cleanup, max_active_runs, max_running,
                                       max_active_per_key, max_running_per_key, deadline, deadline_action, registered_at)
    select x.name, coalesce(x.params, '{}'), coalesce(x.queue, 'default'), coalesce(x.has_cleanup, false), x.max_active_runs, x.max_running,
           x.max_active_per_key, x.max_running_per_key, make_interval(secs => x.deadline), coalesce(x.deadline_action, 'fail'),
           durable.now()
    from json_to_recordset(_workflows) as x (name text, params json, queue text, has_cleanup boolean, max_active_runs int,
         max_running int, max_active_per_key int, max_running_per_key int, deadline double precision, deadline_action text)
    order by x.name
    on conflict (name) do update
      set params = excluded.params, queue = excluded.queue, has_cleanup = excluded.has_cleanup,
          max_active_runs = excluded.max_active_runs, max_running = excluded.max_running,
          max_active_per_key = excluded.max_active_per_key, max_running_per_key = excluded.max_running_per_key,
          deadline = excluded.deadline, deadline_action = excluded.deadline_action, registered_at = excluded.registered_at
      where (w.params::text, w.queue, w.has_cleanup, w.max_active_runs, w.max_running,
             w.max_active_per_key, w.max_running_per_key, w.deadline, w.deadline_action)
            is distinct from
            (excluded.params::text, excluded.queue, excluded.has_cleanup, excluded.max_active_runs, excluded.max_running,
             excluded.max_active_per_key, excluded.max_running_per_key, excluded.deadline, excluded.deadline_action)
    returning w.name
  )
  insert into durable.signal (shard, id, kind, name)
  select durable.shard(q.cap_key), durable.uuid7(), 'slot', q.cap_key
  from (select distinct q.cap_key, split_part(substr(q.cap_key, 3), chr(31), 1) as workflow
        from durable.cap_queue q) q join u on u.name = q.workflow;
  return query
    select durable.line_of(q, x.name), q, x.name
    from json_to_recordset(_workflows) as x (name text) cross join unnest(_queues) q;
end
$$;

-- place: new tasks, each ready, delayed or queued for a slot. Answers with the lines that became ready, whether a timer
-- was set, whether somebody waits for a slot, and which workflows were undeployed. active_cap: a cap of its own instead of
-- the workflow's max_active_runs; empty: none. The JSON is read twice and no more: it is half of the cost of a bulk start.
create or replace function durable.place(_tasks json, _now timestamptz, out lines int[], out timed boolean, out capped boolean,
                                         out gone text)
language plpgsql as $$
declare
  _all     int[];
  _active  int[];
  _other   int[];
  _owned   boolean;
  _current json;
begin
  select array_agg(distinct x.line), bool_or(x.active_cap is not null), bool_or(x.at > _now or x.deadline is not null)
  into _all, _owned, timed
  from json_to_recordset(_tasks) as x (line int, active_cap text, at timestamptz, deadline double precision);
  select json_object_agg(l.line, w.version) filter (where w.version is not null),
         coalesce(array_agg(l.line) filter (where coalesce(w.max_active_runs, k.slots) is not null), '{}'),
         coalesce(array_agg(l.line) filter (
           where coalesce(w.max_running, w.max_active_per_key, w.max_running_per_key) is not null), '{}'),
         string_agg(distinct w.name, ', ') filter (where w.version = '')
  into _current, _active, _other, gone
  from durable.line l join durable.workflow w on w.name = l.workflow
  left join durable.cap k on k.cap_key = 'a:' || w.name
  where l.line = any (_all);
  capped := _owned or _active <> '{}' or _other <> '{}';

  with s as materialized (
    select x.id, coalesce(x.run, x.id) as run, x.parent, x.parent_run, x.parent_task, x.line, coalesce(x.prio, 5)::smallint as prio,
           coalesce(x.epoch, 0) as epoch, greatest(x.at, _now) as at, x.deadline,
           case when x.deadline is not null then durable.deadline_cancels(x.line) end as cancels,
           coalesce(x.version, _current ->> x.line::text) as version, x.cap, x.tags,
           coalesce(x.input, '{}') as input,
           case when x.at > _now then 'delayed'::durable.task_state when x.line = any (_other) then 'queued'
                when x.active_cap is not null then case when x.active_cap = '' then 'active' else 'queued' end::durable.task_state
                when x.line = any (_active) then 'queued' else 'active' end as state
    from json_to_recordset(_tasks) as x (id uuid, run uuid, parent uuid, line int, prio int, epoch int, at timestamptz,
         deadline double precision, version text, cap text, tags text[], active_cap text, input json, parent_run uuid,
         parent_task uuid)
  ), t as (
    insert into durable.task (task_id, run_id, parent_id, parent_run, parent_task, line, state, prio, epoch, ready_at, wake_at, created_at,
                              deadline_at, deadline_cancels, version, cap_key, tags, input)
    select s.id, s.run, s.parent, s.parent_run, s.parent_task, s.line, s.state, s.prio, s.epoch, s.at,
           case when s.state = 'delayed' then s.at end, _now,
           s.at + make_interval(secs => s.deadline), s.cancels, s.version, s.cap, s.tags, s.input
    from s
  ), r as (
    insert into durable.ready (line, prio, ready_at, task_id, epoch)
    select s.line, s.prio, s.at, s.id, s.epoch from s where s.state = 'active'
  ), w as (
    insert into durable.timer (wake_at, task_id, deadline)
    select s.at, s.id, false from s where s.state = 'delayed'
    union all
    select s.at + make_interval(secs => s.deadline), s.id, true from s where s.deadline is not null
  ), c as (
    insert into durable.open_child (parent_id, child_id)
    select coalesce(s.parent, s.parent_task), s.id from s where s.parent is not null or s.parent_task is not null
  )
  select array_agg(distinct s.line) filter (where s.state = 'active') into lines from s;

  if capped then
    perform durable.want_slots(
      array(select x.id from json_to_recordset(_tasks) as x (id uuid, line int, active_cap text)
            where x.line = any (_active || _other) or x.active_cap <> ''),
      _now,
      case when _owned then (select json_object_agg(x.id, x.active_cap)
                             from json_to_recordset(_tasks) as x (id uuid, active_cap text)) end);
  end if;
end
$$;

-- deadline_cancels: whether a run of this line that is past its deadline was cancelled, and has not failed.
create or replace function durable.deadline_cancels(_line int) returns boolean
language sql stable as $$
  select w.deadline_action = 'cancel' from durable.line l join durable.workflow w on w.name = l.workflow where l.line = _line
$$;

-- start_runs: root tasks in bulk. Where a run's idempotency key was used before, nothing is made and the
-- answer names the run that has it. Waits only for an open transaction that holds the same key.
create or replace function durable.start_runs(_runs json, _notify boolean default true)
returns table (asked uuid, run_id uuid)
language plpgsql as $$
#variable_conflict use_column
declare
  _now   timestamptz := durable.now();
  _new   json := _runs;
  _lines int[];
  _timed boolean;
  _gone  text;
begin
  -- The word alone, first: most runs are started without a key, and an input that holds it only costs a look.
  if position('"key"' in _runs::text) > 0
     and exists (select from json_to_recordset(_runs) as x (key text) where x.key is not null) then
    insert into durable.once (scope, key, id, created_at)
    select distinct on (x.scope, x.key) x.scope, x.key, x.id, _now
    from json_to_recordset(_runs) as x (id uuid, scope text, key text)
    where x.key is not null order by x.scope, x.key
    on conflict (scope, key) do nothing;
    return query
      select x.id, o.id from json_to_recordset(_runs) as x (id uuid, scope text, key text)
      join durable.once o on o.scope = x.scope and o.key = x.key where o.id <> x.id;
    _new := (select coalesce(json_agg(r), '[]') from json_array_elements(_runs) r
             where r ->> 'key' is null or exists (
               select from durable.once o
               where o.scope = r ->> 'scope' and o.key = r ->> 'key' and o.id = (r ->> 'id')::uuid));
  end if;
  select p.lines, p.timed, p.gone into _lines, _timed, _gone from durable.place(_new, _now) p;
  if _gone is not null then
    perform durable.refuse_undeployed(_gone);
  end if;
  if _notify and _lines is not null then
    perform pg_notify('durable_work', 'r' || array_to_string(_lines, ','));
  end if;
  -- Timers and waits for slots that no worker knows of yet: it learns of them by its next pass.
  if _notify and (_lines is null or _timed) then
    perform pg_notify('durable_work', 's');
  end if;
end
$$;

-- start_alike: many runs of one line that differ in nothing but their inputs, ready at once. What start_runs would do, at
-- two thirds of the cost: nothing is looked up for each, and only the inputs are JSON. Runs that must stand in line for a slot
-- take the usual way.
create or replace function durable.start_alike(_line int, _prio int, _ids uuid[], _inputs json) returns void
language plpgsql as $$
declare
  _now     timestamptz := durable.now();
  _name    text;
  _version text;
  _capped  boolean;
begin
  select w.name, w.version, coalesce(w.max_active_runs, k.slots, w.max_running, w.max_active_per_key, w.max_running_per_key) is not null
  into _name, _version, _capped
  from durable.line l join durable.workflow w on w.name = l.workflow left join durable.cap k on k.cap_key = 'a:' || w.name
  where l.line = _line;
  if _version = '' then
    perform durable.refuse_undeployed(_name);
  end if;
  if _capped then
    perform durable.start_runs((
      select json_agg(json_build_object('id', _ids[e.n], 'line', _line, 'prio', _prio, 'input', e.input))
      from json_array_elements(_inputs) with ordinality as e (input, n)));
    return;
  end if;
  insert into durable.task (task_id, run_id, line, state, prio, epoch, ready_at, created_at, version, input)
  select _ids[e.n], _ids[e.n], _line, 'active', _prio, 0, _now, _now, _version, e.input
  from json_array_elements(_inputs) with ordinality as e (input, n);
  insert into durable.ready (line, prio, ready_at, task_id, epoch) select _line, _prio, _now, i, 0 from unnest(_ids) i;
  perform pg_notify('durable_work', 'r' || _line);
end
$$;

create or replace function durable.refuse_undeployed(_workflow text) returns void
language sql as $$
  select durable.refuse('DU010', format('unknown workflow %L', _workflow), 'It was undeployed. Deploy it again to start it.')
$$;

-- spawn: start one run by name, from anywhere, inside the caller's own transaction.
create or replace function durable.spawn(
  _workflow text,
  _input    json default '{}',
  _queue    text default null,
  _prio     int default 5,
  _key      text default null,
  _start_at timestamptz default null,
  _tags     text[] default null,
  _cap_key  text default null,
  _deadline interval default null,
  _notify   boolean default true
) returns uuid
language plpgsql as $$
declare
  _id   uuid := durable.uuid7();
  _line int := durable.line_of(_queue, _workflow);
  _had  uuid;
begin
  perform durable.check_input(_workflow, _input);
  if _prio not between 0 and 9 then
    perform durable.refuse('DU013', format('priority %s is not between 0 (first) and 9', _prio));
  end if;
  select s.run_id into _had from durable.start_runs(json_build_array(json_build_object(
    'id', _id, 'line', _line, 'prio', _prio, 'at', _start_at, 'input', _input,
    'tags', to_json(_tags), 'cap', _cap_key, 'key', _key, 'scope', 'run:' || _workflow,
    'deadline', extract(epoch from coalesce(_deadline, (select w.deadline from durable.workflow w where w.name = _workflow))))),
    _notify) s;
  return coalesce(_had, _id);
end
$$;

-- check_input: refuse an input that does not fit the parameters that the workflow was registered with.
create or replace function durable.check_input(_workflow text, _input json) returns void
language plpgsql as $$
declare
  _params json := (select w.params from durable.workflow w where w.name = _workflow);
  _fault  text;
begin
  if json_typeof(_input) <> 'object' then
    perform durable.refuse('DU013', format('input of %L is not a JSON object but %s', _workflow, json_typeof(_input)),
      'Pass the workflow''s arguments by name, for example {"order_id": 42}.');
  end if;
  _fault := durable.input_fault(_params, _input);
  if _fault is not null then
    perform durable.refuse('DU013', format('wrong arguments for %L: %s', _workflow, _fault),
      format('Required: %s. Optional: %s.', _params -> 'required', _params -> 'optional'));
  end if;
end
$$;

-- input_fault: what is wrong with the keys of an input; null where it fits or the workflow takes anything.
create or replace function durable.input_fault(_params json, _input json) returns text
language plpgsql immutable as $$
declare
  _wrong text;
begin
  if json_typeof(_input) is distinct from 'object' then
    return format('not a JSON object but %s', coalesce(json_typeof(_input), 'nothing'));
  end if;
  if _params ->> 'required' is null then
    return null;
  end if;
  select string_agg(format('missing %L', n), ', ') into _wrong
  from json_array_elements_text(_params -> 'required') n where _input -> n is null;
  if _wrong is null and not coalesce((_params ->> 'open')::boolean, false) then
    select string_agg(format('unknown %L', k), ', ') into _wrong from json_object_keys(_input) k
    where k not in (select json_array_elements_text(_params -> 'required')
                    union all select json_array_elements_text(_params -> 'optional'));
  end if;
  return _wrong;
end
$$;

-- emit: append an event to the log of its name. Whoever waits is found after the commit.
create or replace function durable.emit(_name text, _payload json default 'null', _key text default null, _notify boolean default true)
returns uuid
language plpgsql as $$
declare
  _id uuid := durable.uuid7();
  _had uuid;
begin
  if coalesce(_name, '') = '' then
    perform durable.refuse('DU013', 'an event needs a name');
  end if;
  if _key is not null then
    insert into durable.once (scope, key, id, created_at) values ('event:' || _name, _key, _id, durable.now())
    on conflict (scope, key) do nothing;
    select o.id into _had from durable.once o where o.scope = 'event:' || _name and o.key = _key;
    if _had <> _id then
      return _had;
    end if;
  end if;
  insert into durable.event (name, event_id, payload, emitted_at) values (_name, _id, _payload, durable.now());
  insert into durable.signal (shard, id, kind, name) values (durable.shard(_name), _id, 'event', _name);
  if _notify then
    perform pg_notify('durable_work', 's' || durable.shard(_name));
  end if;
  return _id;
end
$$;

-- cancel: ask for a run (or one task of it) to end, with everything below it. Applied after the commit.
create or replace function durable.cancel(_task uuid, _reason text default 'cancelled by a person', _notify boolean default true)
returns void
language plpgsql as $$
declare
  _run uuid := (select t.run_id from durable.task t where t.task_id = _task);
begin
  if _run is null then
    perform durable.refuse('DU011', format('no run %s', _task), 'It never existed, or was pruned by retention.');
  end if;
  insert into durable.signal (shard, id, kind, run_id, task_id, name)
  values (durable.shard(_run::text), durable.uuid7(), 'cancel', _run, _task, 'cancel:' || _reason);
  if _notify then
    perform pg_notify('durable_work', 's' || durable.shard(_run::text));
  end if;
end
$$;
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
-- Workers: registration, the fence, and what happens to the tasks of one that is gone.

-- enlist: a worker under a fresh id, with a fence row for each of its write connections. Asked again under the same
-- id, because the answer was lost, it changes nothing.
create or replace function durable.enlist(_worker uuid, _channels int, _info json) returns void
language sql as $$
  insert into durable.worker (worker_id, started_at, info) values (_worker, clock_timestamp(), _info) on conflict do nothing;
  insert into durable.fence (worker_id, channel) select _worker, c from generate_series(0, _channels - 1) c on conflict do nothing;
$$;

-- pass_fence: the first statement of every write of a worker. True: go on. False: this very write was
-- applied before and its answer was lost. DU001: the worker was declared dead. Locks: its own fence row.
create or replace function durable.pass_fence(_worker uuid, _channel int, _flush_no bigint) returns boolean
language plpgsql as $$
begin
  update durable.fence f set flush_no = _flush_no
  where f.worker_id = _worker and f.channel = _channel and f.flush_no < _flush_no;
  if found then
    return true;
  end if;
  perform durable.check_fence(_worker, _channel);
  return false;
end
$$;

-- check_fence: why a write did not pass. Null: its number was used before. DU001: the worker was declared dead.
create or replace function durable.check_fence(_worker uuid, _channel int) returns boolean
language plpgsql as $$
begin
  if not exists (select from durable.fence f where f.worker_id = _worker and f.channel = _channel) then
    perform durable.refuse('DU001', format('worker %s lost its lease; its tasks were given to others', _worker));
  end if;
  return null;
end
$$;

-- renew: one beat of a worker, answered with everyone's beats. Locks: its own worker row, for an instant.
create or replace function durable.renew(_worker uuid) returns table (worker_id uuid, beat bigint)
language plpgsql as $$
#variable_conflict use_column
begin
  update durable.worker w set beat = w.beat + 1 where w.worker_id = _worker;
  if not found then
    perform durable.refuse('DU001', format('worker %s lost its lease; its tasks were given to others', _worker));
  end if;
  return query select w.worker_id, w.beat from durable.worker w where w.worker_id <> _worker;
end
$$;

-- give_back: every task that a worker holds becomes ready again. Charged: it was lost with its worker; one
-- that was lost while it ran alone too often is stopped for good. Locks: task rows in id order, then held.
create or replace function durable.give_back(_worker uuid, _charge boolean, _quarantine int) returns int
language plpgsql as $$
declare
  _now  timestamptz := durable.now();
  _bad  uuid[];
  _count int;
begin
  perform from durable.task t
  where t.task_id in (select h.task_id from durable.held h where h.worker_id = _worker)
  order by t.task_id for update;

  with d as (
    delete from durable.held h where h.worker_id = _worker returning h.task_id, h.epoch, h.alone, h.claimed_at
  ), u as (
    update durable.task t
    set lost = t.lost + case when _charge then 1 else 0 end,
        lost_alone = t.lost_alone + case when _charge and d.alone then 1 else 0 end,
        ready_at = _now, epoch = d.epoch, wakes = t.wakes + 1,
        started_at = coalesce(t.started_at, d.claimed_at)
    from d where t.task_id = d.task_id
    returning t.task_id, t.line, t.prio, t.epoch, t.lost, t.lost_alone
  ), r as (
    insert into durable.ready (line, prio, ready_at, task_id, epoch)
    select case when u.lost >= 2 then -u.line else u.line end, u.prio, _now, u.task_id, u.epoch
    from u where u.lost_alone < _quarantine
  )
  select count(*), array_agg(u.task_id) filter (where u.lost_alone >= _quarantine) into _count, _bad from u;

  if _bad is not null then
    update durable.task t
    set state = 'failed', finished_at = _now,
        error = json_build_object('type', 'Quarantined', 'message', format(
          'its worker died %s times while it ran this task alone; `durable runs retry` gives it another chance', t.lost_alone))
    where t.task_id = any (_bad);
    perform durable.settle(_bad, _now);
    perform durable.tell_ends(array_to_string(_bad, ','));
  end if;
  return _count;
end
$$;

-- bury: declare a worker dead, if its beat is still the one that the reaper has watched; null if it is not. Waits for a write in
-- flight, never for user code. Locks: worker, fence, task, held.
create or replace function durable.bury(_worker uuid, _beat bigint, _quarantine int default 3) returns int
language plpgsql set lock_timeout = '1s' as $$
begin
  delete from durable.worker w where w.worker_id = _worker and w.beat = _beat;
  if not found then
    return null;
  end if;
  delete from durable.fence f where f.worker_id = _worker;
  return durable.give_back(_worker, true, _quarantine);
end
$$;

-- leave: a worker goes of its own will; what it still holds is given back and charged to nobody.
create or replace function durable.leave(_worker uuid) returns int
language plpgsql as $$
declare
  _count int;
begin
  delete from durable.worker w where w.worker_id = _worker;
  delete from durable.fence f where f.worker_id = _worker;
  _count := durable.give_back(_worker, false, 1000000);
  perform pg_notify('durable_work', 'a');
  return _count;
end
$$;

-- held_by: what the store thinks a worker runs, after an answer was lost; as `claim` answers.
create or replace function durable.held_by(_worker uuid) returns json
language sql stable as $$
  select coalesce(json_agg(json_build_array(
    t.task_id, t.line, h.epoch, t.prio, date_part('epoch', t.ready_at), t.input, t.run_id, t.parent_id, t.wakes, t.stop,
    durable.waits_of(t.run_id, t.task_id), t.version)), '[]')
  from durable.held h join durable.task t on t.task_id = h.task_id where h.worker_id = _worker
$$;
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
-- Caps: how many runs of a workflow, or of one key of it, may be active or running. Exact: a slot is a row
-- with a unique number. Cap keys: a:/A: active (workflow/key), r:/R: running; b: of a backfill, s: of a schedule whose
-- workflow has no cap: both active.

-- caps_of: the cap keys that a task of this line and key falls under. _own stands for max_active_runs; empty: none.
create or replace function durable.caps_of(_line int, _key text, _own text default null) returns text[]
language sql stable as $$
  select array_remove(array[
    case when _own is not null then nullif(_own, '') when coalesce(w.max_active_runs, k.slots) is not null then 'a:' || w.name end,
    case when w.max_active_per_key is not null and _key is not null then 'A:' || w.name || chr(31) || _key end,
    case when w.max_running is not null then 'r:' || w.name end,
    case when w.max_running_per_key is not null and _key is not null then 'R:' || w.name || chr(31) || _key end], null)
  from durable.line l join durable.workflow w on w.name = l.workflow
  left join durable.cap k on k.cap_key = 'a:' || w.name
  where l.line = _line
$$;

create or replace function durable.cap_limit(_cap text) returns int
language sql stable as $$
  select coalesce((select case when c.held then 0 else c.slots end from durable.cap c where c.cap_key = _cap),
    (select case left(_cap, 1) when 'a' then w.max_active_runs when 'A' then w.max_active_per_key
                               when 'r' then w.max_running when 'R' then w.max_running_per_key end
     from durable.workflow w where w.name = split_part(substr(_cap, 3), chr(31), 1)))
$$;

-- want_slots: new tasks of a capped workflow stand in line. A task or run below one that holds an active slot
-- of the same cap uses that one: otherwise a cap of 1 would wait for itself.
create or replace function durable.want_slots(_tasks uuid[], _now timestamptz, _own json) returns void
language plpgsql as $$
begin
  update durable.task t
  set caps = nullif(array(select c from unnest(durable.caps_of(t.line, t.cap_key, _own ->> t.task_id::text)) c
                          where c <> all (coalesce(p.scope, '{}')) order by c), '{}'),
      cap_scope = nullif(coalesce(p.scope, '{}') || array(
                         select c from unnest(durable.caps_of(t.line, t.cap_key, _own ->> t.task_id::text)) c
                         where left(c, 1) not in ('r', 'R') and c <> all (coalesce(p.scope, '{}'))), '{}')
  from (select n.task_id, q.cap_scope as scope from durable.task n
        left join durable.task q on q.task_id = coalesce(n.parent_id, n.parent_task) where n.task_id = any (_tasks)) p
  where t.task_id between p.task_id and p.task_id;
  perform durable.line_up(array(select t.task_id from durable.task t where t.task_id = any (_tasks) and t.state = 'queued'), _now);
end
$$;

-- line_up: queued tasks into the queue of every cap they still need; a task that needs none is ready.
create or replace function durable.line_up(_tasks uuid[], _now timestamptz) returns int[]
language plpgsql as $$
declare
  _shards int[];
begin
  with q as (
    insert into durable.cap_queue (cap_key, prio, queued_at, task_id)
    select c, t.prio, _now, t.task_id
    from durable.task t cross join unnest(t.caps) c
    where t.task_id = any (_tasks)
      and not exists (select from durable.hold h where h.task_id = t.task_id and h.cap_key = c)
    returning cap_key
  ), g as (
    insert into durable.signal (shard, id, kind, name)
    select durable.shard(k.cap_key), durable.uuid7(), 'slot', k.cap_key from (select distinct q.cap_key from q) k
    returning shard
  )
  select array_agg(g.shard) into _shards from g;
  perform durable.make_ready(array(
    select t.task_id from durable.task t where t.task_id = any (_tasks)
      and not exists (select from durable.cap_queue q where q.task_id = t.task_id)), _now);
  return _shards;
end
$$;

-- make_ready: queued or delayed -> ready.
create or replace function durable.make_ready(_tasks uuid[], _now timestamptz) returns int[]
language sql as $$
  with u as (
    update durable.task t set state = 'active', ready_at = _now, wake_at = null
    where t.task_id = any (_tasks)
    returning t.task_id, case when t.lost >= 2 then -t.line else t.line end as line, t.prio, t.epoch
  ), r as (
    insert into durable.ready (line, prio, ready_at, task_id, epoch) select u.line, u.prio, _now, u.task_id, u.epoch from u
  )
  select array_agg(distinct u.line) from u
$$;

-- free_slots: release the slots of tasks (only the running ones, at a park) and ask for the next in line.
create or replace function durable.free_slots(_tasks uuid[], _running_only boolean) returns int[]
language sql as $$
  with d as (
    delete from durable.hold h
    where h.task_id = any (_tasks) and (not _running_only or left(h.cap_key, 1) in ('r', 'R')) returning h.cap_key
  ), g as (
    insert into durable.signal (shard, id, kind, name)
    select durable.shard(k.cap_key), durable.uuid7(), 'slot', k.cap_key from (select distinct d.cap_key from d) k
    returning shard
  )
  select array_agg(g.shard) from g
$$;

-- admit: give free slots of a cap to the tasks in its line, best priority first and oldest first. A task
-- takes all the slots it still needs, or none; what is free then is told to the scheduler, which may owe a run. Runs
-- inside the pass of the cap's shard.
create or replace function durable.admit(_cap text, _now timestamptz) returns int[]
language plpgsql as $$
declare
  _lines  int[] := case when left(_cap, 1) = 'b' then durable.admit_others(_cap, _now) end;
  _free   int := durable.free_slots_of(_cap);
  _task   uuid;
  _ready  uuid[] := '{}';
  _took   boolean;
  _locked boolean := false;
  _told   boolean;
begin
  if _free <= 0 then
    return _lines;
  end if;
  for _task in
    select q.task_id from durable.cap_queue q where q.cap_key = _cap order by q.prio, q.queued_at, q.task_id limit _free + 100
  loop
    exit when cardinality(_ready) >= _free;
    _took := durable.take_slots(_task);
    if _took then
      _ready := _ready || _task;
    end if;
    _locked := _locked or _took is null;
  end loop;
  delete from durable.cap_queue q where q.task_id = any (_ready);
  if left(_cap, 1) in ('a', 's', 'b', 'r') and cardinality(_ready) < _free then
    _told := durable.slot_free(_cap, _now);
  end if;
  if _locked or not coalesce(_told, true) then
    -- Whoever has it may look at other slots than the one that is free now: ask again.
    insert into durable.signal (shard, id, kind, name) values (durable.shard(_cap), durable.uuid7(), 'slot', _cap);
  end if;
  return _lines || durable.make_ready(_ready, _now);
end
$$;

-- free_slots_of: how many slots of a cap are to be given away. One where nobody is in line: whoever may want it counts anew.
create or replace function durable.free_slots_of(_cap text) returns int
language plpgsql as $$
begin
  if not exists (select from durable.cap_queue q where q.cap_key = _cap) then
    return 1;
  end if;
  return coalesce(durable.cap_limit(_cap), 1000000) - (select count(*) from durable.hold h where h.cap_key = _cap);
end
$$;

-- admit_others: the slots that a backfill's runs need besides their own, first to whoever is best there: a fresh tick goes
-- before them, whichever slot was freed first.
create or replace function durable.admit_others(_cap text, _now timestamptz) returns int[]
language plpgsql as $$
declare
  _other text;
  _lines int[];
begin
  for _other in
    select q.cap_key from durable.cap_queue q
    where q.cap_key <> _cap and q.task_id = (
      select b.task_id from durable.cap_queue b where b.cap_key = _cap order by b.prio, b.queued_at, b.task_id limit 1)
    order by q.cap_key
  loop
    _lines := _lines || durable.admit(_other, _now);
  end loop;
  return _lines;
end
$$;

-- free_slot: a number that nobody holds: the next above all, or where the numbers are used up the first in between, which
-- is near in a long row. Null: full. Whoever was admitted before a cap was lowered still counts.
create or replace function durable.free_slot(_cap text, _limit int) returns int
language plpgsql as $$
declare
  _top int := coalesce((select max(h.slot) from durable.hold h where h.cap_key = _cap), 0);
begin
  if _top < _limit then
    return _top + 1;
  end if;
  if (select count(*) from durable.hold h where h.cap_key = _cap) >= _limit then
    return null;
  end if;
  if not exists (select from durable.hold h where h.cap_key = _cap and h.slot = 1) then
    return 1;
  end if;
  return (
    select h.slot + 1 from durable.hold h
    where h.cap_key = _cap and not exists (select from durable.hold n where n.cap_key = _cap and n.slot = h.slot + 1)
    order by h.slot limit 1);
end
$$;

-- take_slots: all slots that a queued task stands in line for, or none; null where another pass has the task.
create or replace function durable.take_slots(_task uuid) returns boolean
language plpgsql as $$
declare
  _cap   text;
  _limit int;
  _slot  int;
  _got   int;
begin
  perform from durable.task t where t.task_id = _task for update skip locked;
  if not found then
    return null;
  end if;
  if not exists (select from durable.task t where t.task_id = _task and t.state = 'queued') then
    return false;
  end if;
  for _cap in select q.cap_key from durable.cap_queue q where q.task_id = _task order by q.cap_key loop
    _limit := durable.cap_limit(_cap);
    continue when _limit is null;
    loop
      _slot := durable.free_slot(_cap, _limit);
      _got := 0;
      exit when _slot is null;
      insert into durable.hold (cap_key, slot, task_id) values (_cap, _slot, _task) on conflict do nothing;
      get diagnostics _got = row_count;
      -- Another pass took this very number: look again, there may be more.
      exit when _got = 1;
    end loop;
    if _got = 0 then
      delete from durable.hold h using durable.cap_queue q
      where h.task_id = _task and q.task_id = _task and h.cap_key = q.cap_key;
      return false;
    end if;
  end loop;
  return true;
end
$$;

-- holders: the tasks that hold the slots which a queued task stands in line for, with how many there are of each cap.
create or replace function durable.holders(_task uuid)
returns table (cap_key text, slots int, run_id uuid, task_id uuid, workflow text, since timestamptz)
language sql stable as $$
  select q.cap_key, durable.cap_limit(q.cap_key), t.run_id, t.task_id, l.workflow, t.created_at
  from durable.cap_queue q
  join durable.hold h on h.cap_key = q.cap_key
  join durable.task t on t.task_id = h.task_id
  join durable.line l on l.line = t.line
  where q.task_id = _task
  order by q.cap_key, h.slot
$$;
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
-- Retention: finished runs and old events, a small batch at a time. The cost of a batch is its own rows, however
-- many runs there are. One pruner at a time: whoever comes second gets null.

-- prune_runs: up to _limit runs that ended before _before, in the order of their ids, with all that belongs to them and
-- their keys. A run with a task that still goes on stays, and so does one whose starter may still ask for its result.
-- Ids are ordered by time, so no index on ends is needed, and a task's end stays a heap-only update. One batch looks at
-- so many tasks and no more: reached is where the next one begins, null when there is none. Locks: the run's rows
-- (skip locked).
create or replace function durable.prune_runs(
  _before timestamptz, _limit int default 500, _after uuid default null,
  out pruned int, out reached uuid, out keys int)
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
  _most int := _limit * 4;
  _old  uuid[];
begin
  if not pg_try_advisory_xact_lock(1146442307, 0) then
    return;
  end if;
  with s as materialized (
    select t.task_id, t.parent_id, t.parent_task, t.finished_at from durable.task t
    where t.task_id > coalesce(_after, '00000000-0000-0000-0000-000000000000') and t.task_id < durable.first_id(_before)
    order by t.task_id limit _most
  ), o as materialized (
    select s.task_id from s
    where s.parent_id is null and s.finished_at < _before
      and not exists (select from durable.task c
                      where c.run_id = s.task_id and c.parent_id is not null and c.finished_at is null)
      and not exists (select from durable.task p where p.task_id = s.parent_task and p.finished_at is null)
    order by s.task_id limit _limit
  ), k as (
    select t.task_id from o join durable.task t on t.task_id = o.task_id for update of t skip locked
  )
  select (select array_agg(k.task_id) from k),
         case when (select count(*) from o) = _limit then (select o.task_id from o order by o.task_id desc limit 1)
              when (select count(*) from s) = _most then (select s.task_id from s order by s.task_id desc limit 1) end
  into _old, reached;
  pruned := coalesce(cardinality(_old), 0);
  keys := 0;
  if pruned > 0 then
    delete from durable.journal j where j.run_id = any (_old);
    delete from durable.value v where v.run_id = any (_old);
    delete from durable.log l where l.run_id = any (_old);
    delete from durable.progress p where p.run_id = any (_old);
    delete from durable.wait w where w.run_id = any (_old);
    delete from durable.delivery d where d.run_id = any (_old);
    -- A tick outlives its run: the next one may depend on how it ended.
    update durable.tick i set outcome = t.state::text from durable.task t
    where i.run_id = any (_old) and t.task_id = i.run_id;
    delete from durable.task t where t.run_id = any (_old) and t.parent_id is not null;
    delete from durable.task t where t.task_id = any (_old);
    delete from durable.once o where o.id = any (_old);
    get diagnostics keys = row_count;
  end if;
end
$$;

-- prune_events: up to _limit events emitted in [_after, _before), oldest first, and their keys. An event that a
-- pass still has to look at stays; a wait that is open without a signal has looked at every older event already.
create or replace function durable.prune_events(
  _before timestamptz, _limit int default 500, _after timestamptz default null,
  out pruned int, out reached timestamptz, out keys int)
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
  _busy text[];
  _old  uuid[];
begin
  if not pg_try_advisory_xact_lock(1146442307, 1) then
    return;
  end if;
  pruned := 0;
  keys := 0;
  -- A backlog of signals is worked off first.
  if (select count(*) from (select from durable.signal limit 1000) s) >= 1000 then
    return;
  end if;
  _busy := array(
    select g.name from durable.signal g where g.kind = 'event'
    union
    select w.name from durable.signal g
    join durable.wait w on w.run_id = g.run_id and w.task_id = g.task_id and w.key = g.name
    where g.kind = 'wait' and w.name is not null);
  with o as materialized (
    select e.name, e.event_id, e.emitted_at from durable.event e
    where e.emitted_at >= coalesce(_after, '-infinity') and e.emitted_at < _before and e.name <> all (_busy)
    order by e.emitted_at limit _limit
  ), d as (
    delete from durable.event e using o where e.name = o.name and e.event_id = o.event_id
    returning e.event_id, o.emitted_at
  )
  select array_agg(d.event_id), case when count(*) = _limit then max(d.emitted_at) end, count(*)
  into _old, reached, pruned from d;
  delete from durable.once o where o.id = any (_old);
  get diagnostics keys = row_count;
end
$$;

-- prune: one batch of each, for a person with psql. Call again while it does not answer zeros.
create or replace function durable.prune(_before timestamptz, _limit int default 500) returns table (runs int, events int, keys int)
language sql as $$
  select r.pruned, e.pruned, r.keys + e.keys from durable.prune_runs(_before, _limit) r, durable.prune_events(_before, _limit) e
$$;
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
