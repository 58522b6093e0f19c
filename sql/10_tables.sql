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
