-- Schedules and their ticks. A schedule's cursor only moves forward, and a tick becomes at most one run (and one more
-- for each time that a person asks for it again). This file can be run again over itself; with the other files of the
-- forties it is migration 0003.

-- ---------------------------------------------------------------- tables

-- One per workflow. What is owed is what lies between cursor_at and now: never rows.
create table if not exists durable.schedule (
  workflow         text primary key references durable.workflow (name),
  cron             text,
  every            interval,
  timezone         text not null default 'UTC',
  start_date       timestamptz,
  end_date         timestamptz,
  catchup          text not null default 'false' check (catchup in ('false', 'true', 'latest')),
  catchup_window   interval check (catchup_window > interval '0'),
  overlap          text not null default 'skip' check (overlap in ('queue', 'skip', 'cancel_old', 'allow')),
  jitter           interval check (jitter > interval '0'),
  deadline         interval check (deadline > interval '0'),
  on_deadline      text,
  depends_on_past  boolean not null default false,
  inputs           json not null default '{}',
  queue            text not null default 'default',
  prio             smallint check (prio between 0 and 9),
  tags             text[],
  paused           boolean not null default false,
  paused_by        text,
  paused_at        timestamptz,
  pause_note       text,
  definition       text not null,               -- hash of the timetable: a change of it counts from its deployment
  version          text,                        -- the workflow's version that this was set with
  since            timestamptz not null,        -- ticks count after this: deployment, change, restore
  cursor_at        timestamptz,                 -- the last tick that was decided: made or skipped
  seen_at          timestamptz,                 -- the last look: a tick before it was not missed, it waits
  next_at          timestamptz,                 -- when to look again; null: when somebody changes something
  waiting          text,                        -- why an owed tick does not start; null: nothing waits
  once_done        boolean not null default false,
  state            text not null default 'active' check (state in ('active', 'ended', 'removed')),
  by               text,
  changed_at       timestamptz not null,
  check ((cron is null) <> (every is null))
) with (fillfactor = 70);
create index if not exists schedule_due on durable.schedule (next_at)
  where next_at is not null and not paused and state = 'active';

-- What a schedule still owed when its timetable was changed: these ticks keep the version and inputs of their time.
create table if not exists durable.owed_span (
  workflow    text not null references durable.schedule (workflow),
  until       timestamptz not null,
  after       timestamptz not null,
  cron        text,
  every       interval,
  timezone    text not null,
  start_date  timestamptz,
  inputs      json not null,
  version     text,
  primary key (workflow, until)
);

-- Which run a tick became. outcome: how that run ended, once retention has taken it.
create table if not exists durable.tick (
  workflow        text not null,
  tick            timestamptz not null,
  attempt         int not null default 0,
  run_id          uuid not null,
  interval_start  timestamptz,
  made_at         timestamptz not null,
  kind            text not null check (kind in ('schedule', 'backfill', 'manual', 'event')),
  backfill_id     uuid,
  version         text,
  outcome         text,
  primary key (workflow, tick, attempt)
);
create unique index if not exists tick_of_run on durable.tick (run_id);
create index if not exists tick_age on durable.tick (made_at) where outcome is not null;

-- The history that a person reads: every skip, late tick, misfire, clock jump, pause, change and end. What concerns all
-- schedules stands under the workflow '*'.
create table if not exists durable.schedule_note (
  id          uuid primary key,
  workflow    text not null,
  at          timestamptz not null,
  kind        text not null,
  first_tick  timestamptz,
  last_tick   timestamptz,
  ticks       int,
  note        text not null,
  by          text
);
create index if not exists schedule_note_of on durable.schedule_note (workflow, at);
create index if not exists schedule_note_age on durable.schedule_note (at);
