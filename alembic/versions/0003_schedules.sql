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
  origin           text not null default 'person' check (origin in ('definition', 'person')),
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

-- ---------------------------------------------------------------- slots

-- slot_free: a cap has a slot to spare and nobody in line. A schedule that waits is looked at now; a backfill is told.
-- False: its row is locked, so whoever has it may have counted before; ask again. Locks: the schedule (skip locked).
create or replace function durable.slot_free(_cap text, _now timestamptz) returns boolean
language plpgsql as $$
declare
  _workflow text := substr(_cap, 3);
begin
  if left(_cap, 1) = 'b' then
    perform pg_notify('durable_schedule', _cap);
    return true;
  end if;
  -- Without a look at `waiting`: what a look that goes on will write there cannot be seen yet.
  perform from durable.schedule s where s.workflow = _workflow for update skip locked;
  if not found then
    return not exists (select from durable.schedule s where s.workflow = _workflow);
  end if;
  update durable.schedule s set next_at = _now
  where s.workflow = _workflow and s.waiting is not null and s.state = 'active' and coalesce(s.next_at > _now, true);
  if found then
    perform pg_notify('durable_schedule', _workflow);
  end if;
  return true;
end
$$;

-- ---------------------------------------------------------------- looks

-- schedule_fact: a schedule with what a look at it must know. active_cap: what its runs count under, as `place` takes it;
-- active: how many unfinished runs count there now, those in line included (and parked ones only where max_active_runs says
-- how many: without it max_running does); past: how the run of its last tick ended, or
-- 'open'; victims: the unfinished runs that a newer tick may cancel, oldest first.
create or replace view durable.schedule_fact as
select s.*, w.params, w.version as current_version, c.active_cap,
       case when c.active_cap <> '' then 1 else coalesce(case when o.held then 0 else o.slots end, w.max_active_runs, w.max_running) end as slots,
       o.slots as own_slots,
       (select count(*) from durable.hold h where h.cap_key = k.key)::int
       + (select count(*) from durable.cap_queue q where q.cap_key = k.key)::int as active,
       case when s.depends_on_past then (
         select coalesce(i.outcome, case when t.finished_at is null then 'open' else t.state::text end)
         from durable.tick i left join durable.task t on t.task_id = i.run_id
         where i.workflow = s.workflow and i.tick <= greatest(s.cursor_at, s.since)
         order by i.tick desc, i.attempt desc limit 1) end as past,
       case when s.overlap = 'cancel_old' then array(
         select i.run_id from durable.tick i
         where i.kind = 'schedule' and i.workflow = s.workflow and i.run_id in (
           select h.task_id from durable.hold h where h.cap_key = k.key
           union all select q.task_id from durable.cap_queue q where q.cap_key = k.key)
         order by i.tick, i.attempt) else '{}' end as victims,
       exists (select from durable.owed_span o where o.workflow = s.workflow) as has_spans,
       durable.now() as now
from durable.schedule s
join durable.workflow w on w.name = s.workflow
left join durable.cap o on o.cap_key = 'a:' || s.workflow
cross join lateral (
  select case when s.overlap = 'allow' and not s.depends_on_past and s.cron is distinct from '@continuous' then ''
              when s.overlap <> 'allow' and coalesce(w.max_active_runs, o.slots) is not null then null
              when s.depends_on_past or s.cron = '@continuous' then 's:' || s.workflow end as active_cap) c
cross join lateral (
  select coalesce(nullif(c.active_cap, ''), case when coalesce(w.max_active_runs, o.slots) is null and w.max_running is not null
                                                 then 'r:' else 'a:' end || s.workflow) as key) k;

-- look_at_schedules: lock what is due, the longest due first, and answer with the facts. The facts are read after the lock:
-- what another scheduler has committed before is seen. Locks: schedules (skip locked), until the caller's commit.
create or replace function durable.look_at_schedules(_limit int) returns setof durable.schedule_fact
language plpgsql as $$
declare
  _names text[];
begin
  select array_agg(d.workflow) into _names from (
    select s.workflow from durable.schedule s
    where s.next_at <= durable.now() and not s.paused and s.state = 'active'
    order by s.next_at limit _limit for update skip locked) d;
  if _names is not null then
    return query select f.* from durable.schedule_fact f where f.workflow = any (_names) order by f.next_at, f.workflow;
  end if;
end
$$;

-- lock_schedule: one schedule with its facts, for whoever changes it; none while there is no schedule. Locks: the
-- workflow's row, so that two first schedules of one workflow come one after the other; then the schedule.
create or replace function durable.lock_schedule(_workflow text) returns setof durable.schedule_fact
language plpgsql as $$
begin
  perform from durable.workflow w where w.name = _workflow for no key update;
  if not found then
    perform durable.line_of('default', _workflow);
  end if;
  perform from durable.schedule s where s.workflow = _workflow for update;
  return query select f.* from durable.schedule_fact f where f.workflow = _workflow;
end
$$;

-- apply_looks: what schedulers or people have decided about schedules that they hold locked: runs, skips, cursors. One
-- statement of one transaction, so that a tick and its cursor are never apart. Answers with the runs that were made.
create or replace function durable.apply_looks(_looks json, _ticks json, _notes json, _cancels json, _spans json)
returns uuid[]
language plpgsql as $$
declare
  _made uuid[] := durable.make_ticks(_ticks);
begin
  perform durable.cancel(x.run, x.reason) from json_to_recordset(_cancels) as x (run uuid, reason text);
  perform durable.note_ticks(n) from json_array_elements(_notes) n;
  update durable.schedule s
  set cursor_at = greatest(s.cursor_at, x.cursor), seen_at = greatest(s.seen_at, x.seen), next_at = x.next_at,
      waiting = x.waiting, state = case when x.ended then 'ended' else s.state end,
      once_done = s.once_done or (s.cron is not distinct from '@once' and x.made)
  from json_to_recordset(_looks) as x (workflow text, cursor timestamptz, seen timestamptz, next_at timestamptz,
       waiting text, ended boolean, made boolean)
  where s.workflow = x.workflow;
  update durable.owed_span o set after = x.after
  from json_to_recordset(_spans) as x (workflow text, until timestamptz, after timestamptz)
  where o.workflow = x.workflow and o.until = x.until and x.after is not null;
  delete from durable.owed_span o using json_to_recordset(_spans) as x (workflow text, until timestamptz, after timestamptz)
  where o.workflow = x.workflow and o.until = x.until and x.after is null;
  return _made;
end
$$;

-- make_ticks: a run for each tick that has none of this attempt yet; which runs those are. Only inserts; waits for
-- whoever is making the same tick.
create or replace function durable.make_ticks(_ticks json) returns uuid[]
language plpgsql as $$
declare
  _now  timestamptz := durable.now();
  _made uuid[];
begin
  if json_array_length(_ticks) = 0 then
    return '{}';
  end if;
  with i as (
    insert into durable.tick (workflow, tick, attempt, run_id, interval_start, made_at, kind, backfill_id, version)
    select x.workflow, x.tick, coalesce(x.attempt, 0), x.run, x.start, _now, x.kind, x.backfill, coalesce(x.version, w.version)
    from json_to_recordset(_ticks) as x (workflow text, tick timestamptz, attempt int, run uuid, start timestamptz,
         kind text, backfill uuid, version text)
    join durable.workflow w on w.name = x.workflow
    order by x.workflow, x.tick, x.attempt
    on conflict do nothing returning run_id
  )
  select coalesce(array_agg(i.run_id), '{}') into _made from i;
  perform durable.start_runs((
    select json_agg(json_build_object(
      'id', x.run, 'line', durable.line_of(x.queue, x.workflow), 'prio', x.prio, 'version', x.version, 'tags', x.tags,
      'active_cap', x.active_cap, 'deadline', extract(epoch from w.deadline), 'input', x.input))
    from json_to_recordset(_ticks) as x (workflow text, run uuid, queue text, prio int, version text, tags json,
         active_cap text, input json)
    join durable.workflow w on w.name = x.workflow
    -- Nearly always it is all of them: no search through a long list then.
    where cardinality(_made) = json_array_length(_ticks) or x.run = any (_made)))
  where _made <> '{}';
  return _made;
end
$$;

-- note_ticks: a line of a schedule's history. One about ticks goes on with the line before it, when that says the same of
-- the ticks just before these.
create or replace function durable.note_ticks(_note json) returns void
language plpgsql as $$
declare
  _now timestamptz := durable.now();
  _x   record;
begin
  select x.* into _x from json_to_record(_note) as x (workflow text, kind text, text text, first timestamptz,
       last timestamptz, ticks int, follows timestamptz, by text);
  update durable.schedule_note n set last_tick = _x.last, ticks = n.ticks + _x.ticks, at = _now
  where n.id = (select p.id from durable.schedule_note p where p.workflow = _x.workflow order by p.at desc, p.id desc limit 1)
    and n.kind = _x.kind and n.note = _x.text and n.last_tick = _x.follows and n.by is not distinct from _x."by";
  if not found then
    insert into durable.schedule_note (id, workflow, at, kind, first_tick, last_tick, ticks, note, by)
    values (durable.uuid7(), _x.workflow, _now, _x.kind, _x.first, _x.last, _x.ticks, _x.text, _x."by");
  end if;
end
$$;

-- next_look: when the first schedule is to be looked at; null: none is.
create or replace function durable.next_look() returns timestamptz
language sql stable as $$
  select s.next_at from durable.schedule s
  where s.next_at is not null and not s.paused and s.state = 'active' order by s.next_at limit 1
$$;

-- look_earlier: schedules whose next tick comes sooner than was thought. Locks: their rows.
create or replace function durable.look_earlier(_looks json) returns void
language sql as $$
  update durable.schedule s set next_at = x.at from json_to_recordset(_looks) as x (workflow text, at timestamptz)
  where s.workflow = x.workflow and s.next_at > x.at
$$;

-- note_clock: the database's clock was moved, as a scheduler has seen it on its own. One line, however many see it: they
-- come one after the other.
create or replace function durable.note_clock(_by double precision) returns void
language plpgsql as $$
declare
  _now timestamptz := durable.now();
begin
  perform pg_advisory_xact_lock(1146442308, 0);
  insert into durable.schedule_note (id, workflow, at, kind, note)
  select durable.uuid7(), '*', _now, 'clock', format('the database''s clock went %s by %s; %s',
    case when _by < 0 then 'back' else 'forward' end, justify_hours(make_interval(secs => round(abs(_by)))),
    case when _by < 0 then 'ticks that were decided are not made again' else 'what fell in between counts as missed' end)
  where not exists (select from durable.schedule_note n where n.workflow = '*' and n.kind = 'clock'
                    and n.at between _now - interval '1 minute' and _now + interval '1 minute');
end
$$;

-- ---------------------------------------------------------------- what people do

-- put_schedule: a schedule as it was set, with where its ticks begin. The caller holds lock_schedule.
create or replace function durable.put_schedule(_row json) returns void
language plpgsql as $$
declare
  _now timestamptz := durable.now();
  _x   record;
begin
  select x.* into _x from json_to_record(_row) as x (
    workflow text, cron text, every double precision, timezone text, start_date timestamptz, end_date timestamptz,
    catchup text, catchup_window double precision, overlap text, jitter double precision, deadline double precision,
    on_deadline text, depends_on_past boolean, inputs json, queue text, prio int, tags text[], paused boolean,
    definition text, version text, since timestamptz, origin text, by text, max_active_runs int);
  perform durable.line_of(_x.queue, _x.workflow);
  insert into durable.schedule as s (workflow, cron, every, timezone, start_date, end_date, catchup, catchup_window, overlap,
    jitter, deadline, on_deadline, depends_on_past, inputs, queue, prio, tags, paused, paused_by, paused_at, definition,
    version, since, next_at, origin, by, changed_at)
  values (_x.workflow, _x.cron, make_interval(secs => _x.every), _x.timezone, _x.start_date, _x.end_date, _x.catchup,
    make_interval(secs => _x.catchup_window), _x.overlap, make_interval(secs => _x.jitter), make_interval(secs => _x.deadline),
    _x.on_deadline, _x.depends_on_past, _x.inputs, _x.queue, _x.prio, nullif(_x.tags, '{}'), _x.paused,
    case when _x.paused then _x."by" end, case when _x.paused then _now end, _x.definition, _x.version, _x.since, _now,
    coalesce(_x.origin, 'person'), _x."by", _now)
  on conflict (workflow) do update
    set cron = excluded.cron, every = excluded.every, timezone = excluded.timezone, start_date = excluded.start_date,
        end_date = excluded.end_date, catchup = excluded.catchup, catchup_window = excluded.catchup_window,
        overlap = excluded.overlap, jitter = excluded.jitter, deadline = excluded.deadline, on_deadline = excluded.on_deadline,
        depends_on_past = excluded.depends_on_past, inputs = excluded.inputs, queue = excluded.queue, prio = excluded.prio,
        tags = excluded.tags, definition = excluded.definition, version = excluded.version, since = excluded.since,
        next_at = excluded.next_at, state = 'active', origin = excluded.origin, by = excluded.by,
        changed_at = excluded.changed_at;
  insert into durable.cap (cap_key, slots) values ('s:' || _x.workflow, 1) on conflict do nothing;
  if _x.max_active_runs is null then
    delete from durable.cap c where c.cap_key = 'a:' || _x.workflow and not c.held;
    update durable.cap c set slots = null where c.cap_key = 'a:' || _x.workflow;
  else
    insert into durable.cap as c (cap_key, slots) values ('a:' || _x.workflow, _x.max_active_runs)
    on conflict (cap_key) do update set slots = excluded.slots;
  end if;
  -- A raised limit frees slots.
  insert into durable.signal (shard, id, kind, name)
  values (durable.shard('a:' || _x.workflow), durable.uuid7(), 'slot', 'a:' || _x.workflow);
  perform pg_notify('durable_work', 's' || durable.shard('a:' || _x.workflow));
  perform pg_notify('durable_schedule', _x.workflow);
end
$$;

-- keep_owed: what the former timetable of a schedule still owes. Locks: nothing; the caller holds lock_schedule.
create or replace function durable.keep_owed(_workflow text, _after timestamptz, _until timestamptz) returns void
language sql as $$
  insert into durable.owed_span (workflow, until, after, cron, every, timezone, start_date, inputs, version)
  select s.workflow, _until, _after, s.cron, s.every, s.timezone, s.start_date, s.inputs, s.version
  from durable.schedule s where s.workflow = _workflow
  on conflict do nothing
$$;

-- remove_schedule: no more ticks; its history and the run of each tick stay. False: there was none. Locks: the schedule.
create or replace function durable.remove_schedule(_workflow text, _by text) returns boolean
language plpgsql as $$
begin
  update durable.schedule s set state = 'removed', next_at = null, waiting = null, changed_at = durable.now(), by = _by
  where s.workflow = _workflow and s.state <> 'removed';
  if not found then
    return false;
  end if;
  delete from durable.owed_span o where o.workflow = _workflow;
  perform durable.release_runs(_workflow);
  perform durable.note_ticks(json_build_object('workflow', _workflow, 'kind', 'removed', 'text', 'the schedule was removed', 'by', _by));
  return true;
end
$$;

-- pause_schedule: no more ticks until it is unpaused. With _hold, runs that stand in line for a slot stay there, manual ones
-- too. False: it was paused before. Locks: the schedule.
create or replace function durable.pause_schedule(_workflow text, _by text, _note text, _hold boolean) returns boolean
language plpgsql as $$
declare
  _now timestamptz := durable.now();
begin
  if _hold then
    insert into durable.cap as c (cap_key, held) values ('a:' || _workflow, true) on conflict (cap_key) do update set held = true;
  end if;
  update durable.schedule s set paused = true, paused_by = _by, paused_at = _now, pause_note = _note
  where s.workflow = _workflow and not s.paused;
  if not found then
    return false;
  end if;
  perform durable.note_ticks(json_build_object('workflow', _workflow, 'kind', 'paused', 'text', coalesce(_note, 'no reason given'), 'by', _by));
  return true;
end
$$;

-- unpause_schedule: ticks count again, from where the caller has decided. The caller holds lock_schedule.
create or replace function durable.unpause_schedule(_workflow text, _by text, _note text) returns void
language plpgsql as $$
begin
  update durable.schedule s set paused = false, paused_by = _by, paused_at = null, pause_note = _note where s.workflow = _workflow;
  perform durable.release_runs(_workflow);
  perform durable.note_ticks(json_build_object('workflow', _workflow, 'kind', 'unpaused', 'text', coalesce(_note, 'no reason given'), 'by', _by));
  perform pg_notify('durable_schedule', _workflow);
end
$$;

-- release_runs: runs that a pause holds in line may start again.
create or replace function durable.release_runs(_workflow text) returns void
language plpgsql as $$
declare
  _cap text := 'a:' || _workflow;
begin
  delete from durable.cap c where c.cap_key = _cap and c.held and c.slots is null;
  update durable.cap c set held = false where c.cap_key = _cap and c.held;
  insert into durable.signal (shard, id, kind, name) values (durable.shard(_cap), durable.uuid7(), 'slot', _cap);
  perform pg_notify('durable_work', 's' || durable.shard(_cap));
end
$$;

-- ---------------------------------------------------------------- retention

-- prune_ticks: up to _limit ticks whose run retention has taken, and as many lines of history. The last tick of a workflow
-- stays: the next may depend on it.
create or replace function durable.prune_ticks(_before timestamptz, _limit int default 500, out ticks int, out notes int)
language plpgsql as $$
begin
  ticks := 0;
  notes := 0;
  if not pg_try_advisory_xact_lock(1146442307, 4) then
    return;
  end if;
  delete from durable.tick t where t.ctid = any (array(
    select i.ctid from durable.tick i
    where i.outcome is not null and i.made_at < _before
      and exists (select from durable.tick j where j.workflow = i.workflow and j.tick > i.tick)
    order by i.made_at limit _limit));
  get diagnostics ticks = row_count;
  delete from durable.schedule_note n where n.ctid = any (array(
    select o.ctid from durable.schedule_note o where o.at < _before order by o.at limit _limit));
  get diagnostics notes = row_count;
end
$$;
-- Backfills: ticks of the past, made on demand. A backfill is a row with a cursor; a run is made only when one of its slots
-- is free, under a cap of its own and behind fresh ticks, so that ten thousand ticks are never ten thousand rows.

create table if not exists durable.backfill (
  id            uuid primary key,
  workflow      text not null,
  first         timestamptz not null,             -- the first and the last tick, both included
  last          timestamptz not null,
  cron          text,                             -- the timetable as it was: a changed schedule changes no backfill
  every         interval,
  timezone      text not null,
  start_date    timestamptz,
  max_active    int not null check (max_active > 0),
  reprocess     text not null check (reprocess in ('none', 'failed', 'completed')),
  newest_first  boolean not null default false,
  prio          smallint not null check (prio between 0 and 9),
  state         text not null default 'running' check (state in ('running', 'paused', 'cancelled', 'done')),
  cursor_at     timestamptz,                      -- the last tick that was decided: made or left out
  total         int not null,
  made          int not null default 0,
  skipped       int not null default 0,
  ended         json,                             -- how its runs ended, once it is over: {state: count}
  waiting       text,                             -- why the next tick is not made, besides a free slot
  by            text,
  note          text,
  created_at    timestamptz not null,
  ended_at      timestamptz,
  check (first <= last),
  check ((ended_at is null) = (state in ('running', 'paused')))
);
create index if not exists backfill_open on durable.backfill (id) where state = 'running';
create index if not exists backfill_of on durable.backfill (workflow, created_at);
create index if not exists backfill_age on durable.backfill (ended_at) where ended_at is not null;
create index if not exists tick_of_backfill on durable.tick (backfill_id) where backfill_id is not null;

-- backfill_runs: the runs of a backfill, each with how it ended or 'open'.
create or replace function durable.backfill_runs(_id uuid) returns table (tick timestamptz, attempt int, run_id uuid, state text)
language sql stable as $$
  select i.tick, i.attempt, i.run_id, coalesce(i.outcome, case when t.finished_at is null then 'open' else t.state::text end)
  from durable.tick i left join durable.task t on t.task_id = i.run_id
  where i.backfill_id = _id
$$;

-- backfill_states: how many runs of a backfill stand how.
create or replace function durable.backfill_states(_id uuid) returns json
language sql stable as $$
  select coalesce(json_object_agg(s.state, s.n), '{}')
  from (select u.state, count(*) as n from durable.backfill_runs(_id) u group by u.state) s
$$;

-- backfill_active: how many of its runs have not ended.
create or replace function durable.backfill_active(_id uuid) returns int
language sql stable as $$
  select (select count(*) from durable.hold h where h.cap_key = 'b:' || _id)::int
         + (select count(*) from durable.cap_queue q where q.cap_key = 'b:' || _id)::int
$$;

-- ---------------------------------------------------------------- what people do

-- create_backfill: a backfill as it was planned. Only inserts.
create or replace function durable.create_backfill(_row json) returns uuid
language plpgsql as $$
declare
  _now timestamptz := durable.now();
  _x   durable.backfill := json_populate_record(null::durable.backfill, _row);
  _s   durable.schedule := (select s from durable.schedule s where s.workflow = _row ->> 'workflow' and s.state <> 'removed');
begin
  if _s.workflow is null then
    perform durable.refuse('DU011', format('%L has no schedule, so there are no ticks to make', _x.workflow), 'Set a schedule first.');
  end if;
  if _x.newest_first and _s.depends_on_past then
    perform durable.refuse('DU013', format('newest_first: each tick of %L depends on the one before', _x.workflow),
      'Make them oldest first.');
  end if;
  insert into durable.backfill (id, workflow, first, last, cron, every, timezone, start_date, max_active, reprocess,
                                newest_first, prio, total, by, note, created_at)
  values (_x.id, _x.workflow, _x.first, _x.last, _s.cron, _s.every, _s.timezone, _s.start_date, _x.max_active, _x.reprocess,
          _x.newest_first, least(9, greatest(8, coalesce(_s.prio, 5) + 1)), _x.total, _x."by", _x.note, _now);
  insert into durable.cap (cap_key, slots) values ('b:' || _x.id, _x.max_active);
  perform durable.note_backfill(_x.id, 'backfill', _x."by", format('begun, %s at a time, reprocess %s', _x.max_active, _x.reprocess));
  perform pg_notify('durable_schedule', 'b:' || _x.id);
  return _x.id;
end
$$;

-- note_backfill: a line of the history of its schedule.
create or replace function durable.note_backfill(_id uuid, _kind text, _by text, _text text) returns void
language sql as $$
  insert into durable.schedule_note (id, workflow, at, kind, first_tick, last_tick, ticks, note, by)
  select durable.uuid7(), b.workflow, durable.now(), _kind, b.first, b.last, b.total, format('backfill %s: %s', b.id, _text), _by
  from durable.backfill b where b.id = _id
$$;

-- switch_backfill: running <-> paused, or either -> cancelled, which also cancels its unfinished runs. Locks: the backfill.
create or replace function durable.switch_backfill(_id uuid, _state text, _by text default current_user, _note text default null)
returns void
language plpgsql as $$
declare
  _had text;
begin
  select b.state into _had from durable.backfill b where b.id = _id for update;
  if _had is null then
    perform durable.refuse('DU011', format('no backfill %s', _id), 'It never existed, or was pruned by retention.');
  end if;
  if _had in ('cancelled', 'done') then
    perform durable.refuse('DU012', format('backfill %s is over: it is %s', _id, _had), 'Create another one.');
  end if;
  if _had = _state then
    return;
  end if;
  update durable.backfill b set state = _state, ended_at = case when _state = 'cancelled' then durable.now() end where b.id = _id;
  if _state = 'cancelled' then
    perform durable.cancel(u.run_id, 'its backfill was cancelled') from durable.backfill_runs(_id) u where u.state = 'open';
  end if;
  perform durable.note_backfill(_id, 'backfill', _by, _state || coalesce(': ' || _note, ''));
  perform pg_notify('durable_schedule', 'b:' || _id);
end
$$;

-- backfills: one, those of a workflow, or all, newest first; each with how its runs stand: {state: count}.
create or replace function durable.backfills(_id uuid default null, _workflow text default null, _limit int default 50)
returns table (id uuid, workflow text, first timestamptz, last timestamptz, max_active int, reprocess text, newest_first boolean,
               prio smallint, state text, cursor_at timestamptz, total int, made int, skipped int, runs json, waiting text,
               by text, note text, created_at timestamptz, ended_at timestamptz)
language sql stable as $$
  select b.id, b.workflow, b.first, b.last, b.max_active, b.reprocess, b.newest_first, b.prio, b.state, b.cursor_at, b.total,
         b.made, b.skipped, coalesce(b.ended, durable.backfill_states(b.id)), b.waiting, b.by, b.note, b.created_at, b.ended_at
  from durable.backfill b
  where (_id is null or b.id = _id) and (_workflow is null or b.workflow = _workflow)
  order by b.created_at desc, b.id desc limit _limit
$$;

-- ---------------------------------------------------------------- what the scheduler does

-- open_backfills: those that may make a run now, or may be over.
create or replace function durable.open_backfills(_limit int) returns setof uuid
language sql stable as $$
  select b.id from durable.backfill b
  where b.state = 'running' and durable.backfill_active(b.id) < b.max_active
  order by b.id limit _limit
$$;

-- lock_backfill: one running backfill with what a look must know; none while another scheduler looks. The facts are read
-- after the lock. Locks: the backfill (skip locked), until the caller's commit.
create or replace function durable.lock_backfill(_id uuid) returns table (
  id uuid, workflow text, first timestamptz, last timestamptz, cron text, every interval, timezone text, start_date timestamptz,
  max_active int, reprocess text, newest_first boolean, prio smallint, cursor_at timestamptz, waiting text,
  created_at timestamptz, active int, inputs json, queue text, tags text[], depends_on_past boolean, params json)
language plpgsql as $$
begin
  perform from durable.backfill b where b.id = _id and b.state = 'running' for update skip locked;
  if not found then
    return;
  end if;
  return query
    select b.id, b.workflow, b.first, b.last, b.cron, b.every, b.timezone, b.start_date, b.max_active, b.reprocess, b.newest_first,
           b.prio, b.cursor_at, b.waiting, b.created_at, durable.backfill_active(b.id), s.inputs, s.queue, s.tags, s.depends_on_past, w.params
    from durable.backfill b
    join durable.schedule s on s.workflow = b.workflow
    join durable.workflow w on w.name = b.workflow
    where b.id = _id;
end
$$;

-- past_ticks: the newest run of each tick in a range, how it ended, or 'open'; and how it stood at another time, 'new' if
-- it was not there yet: a backfill does what was planned, whatever ends meanwhile.
create or replace function durable.past_ticks(_workflow text, _first timestamptz, _last timestamptz, _then timestamptz)
returns table (tick timestamptz, attempt int, run_id uuid, state text, was text)
language sql stable as $$
  select n.tick, n.attempt, n.run_id, n.state,
         case when n.made_at > _then then 'new' when n.finished_at > _then then 'open' else n.state end
  from (
    select distinct on (i.tick) i.tick, i.attempt, i.run_id, i.made_at, t.finished_at,
           coalesce(i.outcome, case when t.task_id is null then 'succeeded' when t.finished_at is null then 'open' else t.state::text end) as state
    from durable.tick i left join durable.task t on t.task_id = i.run_id
    where i.workflow = _workflow and i.tick between _first and _last
    order by i.tick, i.attempt desc) n
$$;

-- advance_backfill: what one look has decided: runs, what is left out, and whether that was all. The caller holds
-- lock_backfill. Answers how many runs were made.
create or replace function durable.advance_backfill(
  _id uuid, _ticks json, _skipped int, _cursor timestamptz, _waiting text, _over boolean
) returns int
language plpgsql as $$
declare
  _made int := cardinality(durable.make_ticks(_ticks));
begin
  update durable.backfill b
  set cursor_at = coalesce(_cursor, b.cursor_at), made = b.made + _made, waiting = _waiting,
      skipped = b.skipped + _skipped + json_array_length(_ticks) - _made
  where b.id = _id;
  if _over then
    update durable.backfill b set state = 'done', ended_at = durable.now(), ended = durable.backfill_states(_id) where b.id = _id;
    delete from durable.cap c where c.cap_key = 'b:' || _id;
    perform durable.note_backfill(_id, 'backfill', null, (
      select format('done: %s made, %s left out; %s', b.made, b.skipped, b.ended) from durable.backfill b where b.id = _id));
  end if;
  return _made;
end
$$;

-- prune_backfills: up to _limit backfills that were over before this.
create or replace function durable.prune_backfills(_before timestamptz, _limit int default 500) returns int
language plpgsql as $$
declare
  _old uuid[];
begin
  with d as (
    delete from durable.backfill b where b.id in (
      select o.id from durable.backfill o where o.ended_at < _before order by o.ended_at limit _limit for update skip locked)
    returning b.id
  )
  select coalesce(array_agg(d.id), '{}') into _old from d;
  delete from durable.cap c where c.cap_key in (select 'b:' || o from unnest(_old) o);
  return cardinality(_old);
end
$$;
-- Deadlines of schedules: a tick whose run has not ended, or that has no run, when its deadline is over raises one alert.
-- A watch's cursor moves forward over ticks whose deadline was decided, once each. What ends a run that takes too long is
-- another thing: the deadline of its workflow.

create table if not exists durable.deadline_watch (
  workflow    text primary key,
  definition  text not null,                      -- of the schedule, as it was looked at
  deadline    interval not null,
  cursor_at   timestamptz not null,               -- the last tick whose deadline was decided
  next_at     timestamptz                         -- when the next one is over; null: not known before a tick is made
);
create index if not exists deadline_watch_due on durable.deadline_watch (next_at);
create index if not exists schedule_deadline on durable.schedule (workflow) where deadline is not null;

create table if not exists durable.alert (
  id             uuid not null unique,
  workflow       text not null,
  tick           timestamptz not null,
  last_tick      timestamptz not null,            -- several that did not start stand in one alert
  ticks          int not null,
  kind           text not null check (kind in ('late', 'not started', 'skipped')),
  run_id         uuid,
  due_at         timestamptz not null,
  raised_at      timestamptz not null,
  callback       text,
  callback_run   uuid,
  callback_note  text,                            -- why the callback was not started
  primary key (workflow, tick)
);
create index if not exists alert_age on durable.alert (raised_at);

-- watch_deadlines: begin to watch schedules with a deadline, from the ticks on whose deadline was to come when it was set;
-- look anew where the timetable or the deadline was changed. Locks: only watches that change.
create or replace function durable.watch_deadlines() returns void
language plpgsql as $$
declare
  _now timestamptz := durable.now();
begin
  delete from durable.deadline_watch w using durable.schedule s
  where s.workflow = w.workflow and (s.deadline is null or s.state = 'removed');
  insert into durable.deadline_watch (workflow, definition, deadline, cursor_at, next_at)
  select s.workflow, s.definition, s.deadline, greatest(s.since - interval '1 microsecond', s.changed_at - s.deadline), _now
  from durable.schedule s
  where s.deadline is not null and s.state <> 'removed' and not exists (
    select from durable.deadline_watch w
    where w.workflow = s.workflow and w.definition = s.definition and w.deadline = s.deadline)
  order by s.workflow
  on conflict (workflow) do update
    set definition = excluded.definition, deadline = excluded.deadline, next_at = excluded.next_at;
end
$$;

-- next_deadline_tick: the first tick after an instant that has a run: what a schedule without a timetable goes by.
create or replace function durable.next_deadline_tick(_workflow text, _after timestamptz) returns timestamptz
language sql stable as $$
  select i.tick from durable.tick i
  where i.workflow = _workflow and i.tick > _after and i.attempt = 0 and i.kind = 'schedule' order by i.tick limit 1
$$;

-- due_deadlines: watches whose next deadline is over, each with its schedule, locked until the end of the transaction.
-- Locks: watches (skip locked).
create or replace function durable.due_deadlines(_limit int) returns table (
  workflow text, cron text, every interval, timezone text, start_date timestamptz, end_date timestamptz, since timestamptz,
  deadline interval, on_deadline text, queue text, schedule_cursor timestamptz, paused boolean, state text,
  cursor_at timestamptz, now timestamptz)
language plpgsql as $$
declare
  _due text[];
begin
  select array_agg(d.workflow) into _due from (
    select w.workflow from durable.deadline_watch w
    where w.next_at <= durable.now()
       or w.next_at is null and durable.next_deadline_tick(w.workflow, w.cursor_at) <= durable.now() - w.deadline
    order by w.next_at limit _limit for update skip locked) d;
  return query
    select s.workflow, s.cron, s.every, s.timezone, s.start_date, s.end_date, s.since, s.deadline, s.on_deadline, s.queue,
           s.cursor_at, s.paused, s.state, w.cursor_at, durable.now()
    from durable.deadline_watch w join durable.schedule s on s.workflow = w.workflow
    where w.workflow = any (_due) order by s.workflow;
end
$$;

-- deadline_ticks: the runs of a schedule's ticks after one instant and not after another, with when each was made and
-- ended; one that retention has taken ended long ago.
create or replace function durable.deadline_ticks(_workflow text, _after timestamptz, _until timestamptz, _limit int)
returns table (tick timestamptz, run_id uuid, made_at timestamptz, finished_at timestamptz)
language sql stable as $$
  select i.tick, i.run_id, i.made_at, case when i.outcome is not null then i.made_at else t.finished_at end
  from durable.tick i left join durable.task t on t.task_id = i.run_id
  where i.workflow = _workflow and i.tick > _after and i.tick <= _until and i.attempt = 0 and i.kind = 'schedule'
  order by i.tick limit _limit
$$;

-- left_out: the spans of ticks that were skipped in a range, with why.
create or replace function durable.left_out(_workflow text, _after timestamptz, _until timestamptz)
returns table (first_tick timestamptz, last_tick timestamptz, note text)
language sql stable as $$
  select n.first_tick, n.last_tick, n.note from durable.schedule_note n
  where n.workflow = _workflow and n.kind = 'skipped' and n.last_tick > _after and n.first_tick <= _until
$$;

-- raise_alerts: what one look at a watch has decided. Each alert is raised once, and starts the callback once, in the same
-- transaction. The caller holds the watch. Answers how many were new.
create or replace function durable.raise_alerts(_workflow text, _alerts json, _cursor timestamptz, _next_at timestamptz) returns int
language plpgsql as $$
declare
  _new   int := 0;
  _alert durable.alert;
begin
  for _alert in
    insert into durable.alert (id, workflow, tick, last_tick, ticks, kind, run_id, due_at, raised_at, callback)
    select durable.uuid7(), _workflow, x.tick, x.last_tick, x.ticks, x.kind, x.run_id, x.due_at, durable.now(),
           (select s.on_deadline from durable.schedule s where s.workflow = _workflow)
    from json_to_recordset(_alerts) as x (tick timestamptz, last_tick timestamptz, ticks int, kind text, run_id uuid, due_at timestamptz)
    order by x.tick
    on conflict do nothing returning *
  loop
    _new := _new + 1;
    perform durable.call_back(_alert);
  end loop;
  update durable.deadline_watch w set cursor_at = greatest(w.cursor_at, _cursor), next_at = _next_at where w.workflow = _workflow;
  return _new;
end
$$;

-- postpone_watch: look again later. The caller holds the watch.
create or replace function durable.postpone_watch(_workflow text, _by interval) returns void
language sql as $$
  update durable.deadline_watch w set next_at = durable.now() + _by where w.workflow = _workflow
$$;

-- call_back: start the workflow that an alert names, with the alert as its input; where that cannot be, say why.
create or replace function durable.call_back(_alert durable.alert) returns void
language plpgsql as $$
declare
  _of    durable.workflow := (select w from durable.workflow w where w.name = _alert.callback);
  _input json;
  _fault text;
  _queue text;
begin
  if _alert.callback is null then
    return;
  end if;
  _input := durable.offered(_of.params, json_build_object(
    'workflow', _alert.workflow, 'tick', durable.iso(_alert.tick), 'kind', _alert.kind, 'run_id', _alert.run_id,
    'due_at', durable.iso(_alert.due_at), 'ticks', _alert.ticks, 'last_tick', durable.iso(_alert.last_tick), 'alert_id', _alert.id));
  _fault := case when _of.name is null or _of.version = '' then 'no such workflow' else durable.input_fault(_of.params, _input) end;
  if _fault is not null then
    update durable.alert a set callback_note = _fault where a.workflow = _alert.workflow and a.tick = _alert.tick;
    perform durable.add_note(_alert.workflow, 'deadline', null,
      format('the callback %s was not started: %s', _alert.callback, _fault), _alert.tick, _alert.last_tick, _alert.ticks);
    return;
  end if;
  -- Where somebody serves it: the queue of the schedule before others.
  select l.queue into _queue from durable.line l join durable.schedule s on s.workflow = _alert.workflow
  where l.workflow = _alert.callback order by l.queue <> s.queue, l.queue <> 'default', l.queue limit 1;
  update durable.alert a
  set callback_run = durable.spawn(_alert.callback, _input, coalesce(_queue, 'default'), _key => 'alert ' || _alert.id)
  where a.workflow = _alert.workflow and a.tick = _alert.tick;
end
$$;

-- alerts: the newest alerts, of one workflow or of all.
create or replace function durable.alerts(_workflow text default null, _limit int default 50) returns setof durable.alert
language sql stable as $$
  select a.* from durable.alert a where _workflow is null or a.workflow = _workflow
  order by a.raised_at desc, a.tick desc limit _limit
$$;

-- prune_alerts: up to _limit alerts that were raised before this.
create or replace function durable.prune_alerts(_before timestamptz, _limit int default 500) returns int
language plpgsql as $$
declare
  _pruned int;
begin
  delete from durable.alert a where a.ctid = any (array(
    select o.ctid from durable.alert o where o.raised_at < _before order by o.raised_at limit _limit));
  get diagnostics _pruned = row_count;
  return _pruned;
end
$$;
-- Event triggers: a workflow that starts when events come. An emitter pays nothing: the pass, which looks at every event
-- after its commit anyway, puts those that a trigger asks for aside, and the scheduler makes runs of them. An event is
-- put aside in the transaction that consumes its signal, and leaves in the one that makes its run: once each.

-- ---------------------------------------------------------------- tables

create table if not exists durable.trigger (
  workflow    text primary key references durable.workflow (name),
  events      text[] not null check (cardinality(events) > 0),      -- names; * stands for any text
  likes       text[] not null,                                      -- the same as LIKE patterns
  mode        text not null default 'any' check (mode in ('any', 'all')),
  per         text,                                                 -- a cron: once per data interval of it
  timezone    text not null default 'UTC',
  inputs      json not null default '{}',
  queue       text not null default 'default',
  prio        smallint check (prio between 0 and 9),
  tags        text[],
  paused      boolean not null default false,
  pause_note  text,
  since       timestamptz not null,                                 -- for people: what counts does not go by clocks
  look_at     timestamptz,                                          -- when an open interval can no longer be completed
  by          text,
  changed_at  timestamptz not null
);

-- Events that a trigger asked for and that are in no run yet. fresh: nobody has looked at it. One that fits no name was
-- there before the trigger, and is not put aside again.
create table if not exists durable.trigger_event (
  workflow      text not null,
  event_id      uuid not null,
  name          text not null,
  emitted_at    timestamptz not null,
  payload       json,
  matched       int[] not null,                                     -- which of the trigger's names it fits, from 1
  fresh         boolean not null default true,
  interval_end  timestamptz,
  primary key (workflow, event_id)
);
create index if not exists trigger_event_fresh on durable.trigger_event (workflow, event_id) where fresh;
create index if not exists trigger_event_interval on durable.trigger_event (workflow, interval_end) where interval_end is not null;
create index if not exists trigger_event_age on durable.trigger_event (emitted_at);

-- Which run an event, or the events of an interval, became. surplus: events of the interval that came besides.
create table if not exists durable.trigger_run (
  run_id          uuid primary key,
  workflow        text not null,
  event_id        uuid,
  interval_start  timestamptz,
  interval_end    timestamptz,
  events          uuid[] not null,
  surplus         int not null default 0,
  made_at         timestamptz not null,
  unique (workflow, event_id),
  unique (workflow, interval_end)
);
create index if not exists trigger_run_of on durable.trigger_run (workflow, made_at);
create index if not exists trigger_run_age on durable.trigger_run (made_at);

-- ---------------------------------------------------------------- what people do

-- like_of: a name with * for any text, as a LIKE pattern.
create or replace function durable.like_of(_name text) returns text
language sql immutable as $$
  select replace(replace(replace(replace(_name, '\', '\\'), '%', '\%'), '_', '\_'), '*', '%')
$$;

-- fits_of: which of these patterns a name fits, from 1. The runtime's own events only fit a pattern that says so.
create or replace function durable.fits_of(_likes text[], _name text) returns int[]
language sql immutable as $$
  select array(select p.i::int from unnest(_likes) with ordinality p (l, i)
               where _name like p.l and (_name not like 'durable.%' or p.l like 'durable.%') order by p.i)
$$;

-- set_trigger: start a workflow on events. Events that wait for the others of their set stay if they still fit. True:
-- something changed. Locks: the trigger's row.
create or replace function durable.set_trigger(
  _workflow text,
  _events   text[],
  _mode     text default 'any',
  _per      text default null,
  _timezone text default 'UTC',
  _inputs   json default '{}',
  _queue    text default null,   -- the workflow's own
  _prio     int default null,
  _tags     text[] default null,
  _by       text default current_user
) returns boolean
language plpgsql as $$
declare
  _now     timestamptz := durable.now();
  _likes   text[] := array(select durable.like_of(e) from unnest(_events) with ordinality u (e, i) order by u.i);
  _dropped int;
begin
  _queue := coalesce(_queue, (select w.queue from durable.workflow w where w.name = _workflow));
  perform durable.line_of(_queue, _workflow);
  perform durable.check_trigger(_events, _mode, _inputs);
  perform durable.check_set(_workflow, _per, _inputs) where _mode = 'all';
  perform durable.leave_out_events(_workflow, _likes)
  where not exists (select from durable.trigger t where t.workflow = _workflow);
  insert into durable.trigger as t (workflow, events, likes, mode, per, timezone, inputs, queue, prio, tags, since, by, changed_at)
  values (_workflow, _events, _likes, _mode, _per, _timezone, _inputs, _queue, _prio, _tags, _now, _by, _now)
  on conflict (workflow) do update
    set events = excluded.events, likes = excluded.likes, mode = excluded.mode, per = excluded.per,
        timezone = excluded.timezone, inputs = excluded.inputs, queue = excluded.queue, prio = excluded.prio,
        tags = excluded.tags, by = excluded.by, changed_at = excluded.changed_at, look_at = null
    where (t.events, t.mode, t.per, t.timezone, t.inputs::text, t.queue, t.prio, t.tags)
          is distinct from (excluded.events, excluded.mode, excluded.per, excluded.timezone, excluded.inputs::text,
                            excluded.queue, excluded.prio, excluded.tags);
  if not found then
    return false;
  end if;
  delete from durable.trigger_event e
  where e.workflow = _workflow and e.matched <> '{}' and durable.fits_of(_likes, e.name) = '{}';
  get diagnostics _dropped = row_count;
  update durable.trigger_event e set matched = durable.fits_of(_likes, e.name), fresh = true, interval_end = null
  where e.workflow = _workflow and e.matched <> '{}';
  perform durable.add_note(_workflow, 'trigger', _by,
    format('starts on %s %s%s%s', _mode, array_to_string(_events, ', '), ' per ' || _per || ' (' || _timezone || ')',
           case when _dropped > 0 then format('; %s events that waited no longer fit', _dropped) end));
  perform pg_notify('durable_schedule', 'trigger');
  return true;
end
$$;

-- leave_out_events: what was emitted before a trigger is set, and no pass has looked at yet. What an open transaction has
-- emitted counts when it commits.
create or replace function durable.leave_out_events(_workflow text, _likes text[]) returns void
language plpgsql as $$
begin
  delete from durable.trigger_event e where e.workflow = _workflow;
  insert into durable.trigger_event (workflow, event_id, name, emitted_at, matched, fresh)
  select _workflow, g.id, g.name, durable.now(), '{}', false from durable.signal g
  where g.kind = 'event' and g.task_id is null and g.name like any (_likes)
  on conflict do nothing;
end
$$;

create or replace function durable.check_trigger(_events text[], _mode text, _inputs json) returns void
language plpgsql as $$
begin
  if coalesce(cardinality(_events), 0) = 0 or exists (select from unnest(_events) e where coalesce(e, '') = '') then
    perform durable.refuse('DU013', 'events: a trigger needs the names of events', 'Use * for any text, as in order.*');
  end if;
  if (select count(distinct e) from unnest(_events) e) < cardinality(_events) then
    perform durable.refuse('DU013', 'events: the same name twice', 'An event counts once for each name that it fits.');
  end if;
  if _mode is null or _mode not in ('any', 'all') then
    perform durable.refuse('DU013', format('mode: %L is neither any nor all', _mode));
  end if;
  if json_typeof(_inputs) is distinct from 'object' then
    perform durable.refuse('DU013', 'inputs: not a JSON object');
  end if;
end
$$;

-- check_set: refuse a trigger on all of several events whose runs could not start: what they are given is known before.
create or replace function durable.check_set(_workflow text, _per text, _inputs json) returns void
language plpgsql as $$
declare
  _params json := (select w.params from durable.workflow w where w.name = _workflow);
  _given  json := case when _per is null then '{}' else durable.interval_inputs(durable.now(), durable.now()) end;
  _fault  text;
begin
  _given := durable.merged(durable.offered(_params, durable.merged(_given, '{"events": {}}')), _inputs);
  _fault := durable.input_fault(_params, _given);
  if _fault is not null then
    perform durable.refuse('DU013', format('inputs: the trigger of %L cannot start it: %s', _workflow, _fault),
      'Events give `events`, with `per` also the data interval; the rest stands in inputs.');
  end if;
end
$$;

-- drop_trigger: the workflow no longer starts on events; what waited is given up. False: there was no trigger.
create or replace function durable.drop_trigger(_workflow text, _by text default current_user) returns boolean
language plpgsql as $$
declare
  _dropped int;
begin
  delete from durable.trigger t where t.workflow = _workflow;
  if not found then
    return false;
  end if;
  select count(*) into _dropped from durable.trigger_event e where e.workflow = _workflow and e.matched <> '{}';
  delete from durable.trigger_event e where e.workflow = _workflow;
  perform durable.add_note(_workflow, 'trigger', _by, format('no longer starts on events; %s that waited are given up', _dropped));
  return true;
end
$$;

-- pause_trigger: events are put aside, and nothing is made of them. Locks: the trigger's row.
create or replace function durable.pause_trigger(_workflow text, _by text default current_user, _note text default null)
returns void
language plpgsql as $$
begin
  update durable.trigger t set paused = true, pause_note = _note where t.workflow = _workflow;
  if not found then
    perform durable.refuse('DU011', format('%L does not start on events', _workflow), 'Set a trigger first.');
  end if;
  perform durable.add_note(_workflow, 'trigger paused', _by, coalesce(_note, 'no reason given'));
end
$$;

-- unpause_trigger: runs are made again; of what came meanwhile only if asked for. Locks: the trigger's row.
create or replace function durable.unpause_trigger(_workflow text, _keep boolean default false, _by text default current_user)
returns int
language plpgsql as $$
declare
  _given int := 0;
begin
  update durable.trigger t set paused = false, pause_note = null where t.workflow = _workflow;
  if not found then
    perform durable.refuse('DU011', format('%L does not start on events', _workflow), 'Set a trigger first.');
  end if;
  if not _keep then
    delete from durable.trigger_event e where e.workflow = _workflow and e.fresh;
    get diagnostics _given = row_count;
  end if;
  perform durable.add_note(_workflow, 'trigger unpaused', _by,
    case when _keep then 'with what came meanwhile' else format('%s events that came meanwhile are skipped', _given) end);
  perform pg_notify('durable_schedule', 'trigger');
  return _given;
end
$$;

-- triggers: one trigger or all, with how many events are in no run yet.
create or replace function durable.triggers(_workflow text default null)
returns table (workflow text, events text[], mode text, per text, timezone text, inputs json, queue text, prio smallint,
               tags text[], paused boolean, pause_note text, since timestamptz, by text, changed_at timestamptz, waiting bigint)
language sql stable as $$
  select t.workflow, t.events, t.mode, t.per, t.timezone, t.inputs, t.queue, t.prio, t.tags, t.paused, t.pause_note, t.since,
         t.by, t.changed_at, (select count(*) from durable.trigger_event e where e.workflow = t.workflow and e.matched <> '{}')
  from durable.trigger t where _workflow is null or t.workflow = _workflow order by t.workflow
$$;

-- add_note: a line of a workflow's history.
create or replace function durable.add_note(
  _workflow text, _kind text, _by text, _note text,
  _first timestamptz default null, _last timestamptz default null, _ticks int default null
) returns void
language sql as $$
  insert into durable.schedule_note (id, workflow, at, kind, first_tick, last_tick, ticks, note, by)
  values (durable.uuid7(), _workflow, durable.now(), _kind, _first, _last, _ticks, _note, _by)
$$;

-- ---------------------------------------------------------------- what the pass does

-- catch_events: put the events of a pass aside for the triggers that ask for them. A signal that goes on with the
-- waiters of an event names a task: that event was here before. Only reads triggers, only inserts.
create or replace function durable.catch_events(_batch durable.signal[]) returns void
language plpgsql as $$
begin
  if not exists (select from durable.trigger) then
    return;
  end if;
  with n as materialized (
    select distinct b.name from unnest(_batch) b where b.kind = 'event' and b.task_id is null
  ), f as materialized (
    -- Each name once, and first by an operator: the function costs fifty times as much.
    select n.name, t.workflow, durable.fits_of(t.likes, n.name) as fits
    from n join durable.trigger t on n.name like any (t.likes)
  )
  insert into durable.trigger_event (workflow, event_id, name, emitted_at, payload, matched)
  select f.workflow, e.event_id, e.name, e.emitted_at, e.payload, f.fits
  from f
  join unnest(_batch) b on b.name = f.name and b.kind = 'event' and b.task_id is null
  join durable.event e on e.name = b.name and e.event_id = b.id
  where f.fits <> '{}'
  on conflict do nothing;
  if found then
    perform pg_notify('durable_schedule', 'event');
  end if;
end
$$;

-- ---------------------------------------------------------------- what the scheduler does

-- due_triggers: triggers with something to look at, locked until the end of the transaction, so that what is decided of
-- one is decided by one scheduler. Locks: trigger (skip locked).
create or replace function durable.due_triggers(_limit int) returns setof durable.trigger
language sql volatile as $$
  select t.* from durable.trigger t
  where not t.paused and (t.look_at <= durable.now()
    or exists (select from durable.trigger_event e where e.workflow = t.workflow and e.fresh))
  order by t.workflow limit _limit for update skip locked
$$;

-- fresh_events: what a trigger has not looked at yet, oldest first.
create or replace function durable.fresh_events(_workflow text, _limit int)
returns table (event_id uuid, name text, emitted_at timestamptz, matched int[])
language sql stable as $$
  select e.event_id, e.name, e.emitted_at, e.matched from durable.trigger_event e
  where e.workflow = _workflow and e.fresh order by e.event_id limit _limit
$$;

-- waiting_events: what waits for the rest of its set: in these intervals, or without any the oldest of each name.
create or replace function durable.waiting_events(_workflow text, _ends timestamptz[], _names int, _limit int)
returns table (event_id uuid, name text, emitted_at timestamptz, matched int[], interval_end timestamptz)
language sql stable as $$
  select e.event_id, e.name, e.emitted_at, e.matched, e.interval_end from durable.trigger_event e
  where e.workflow = _workflow and not e.fresh and e.interval_end = any (_ends)
  union
  select e.event_id, e.name, e.emitted_at, e.matched, null
  from generate_series(1, case when _ends is null then _names else 0 end) n cross join lateral (
    select w.* from durable.trigger_event w
    where w.workflow = _workflow and not w.fresh and n = any (w.matched) order by w.event_id limit _limit) e
$$;

-- fire_trigger: what one look at a trigger has decided: runs, and events that are done with or go on waiting. An interval
-- that is over for longer than the grace waits no more. The caller has locked the trigger. Answers how many runs were made.
create or replace function durable.fire_trigger(
  _workflow text,
  _firings  json,         -- [{run, start, end, events: [{n, id}]}]
  _surplus  json,         -- [{id, end}]: came besides, in an interval that has its run or its event of that name
  _waiting  json,         -- [{id, end}]
  _grace    interval default '1 minute'
) returns int
language plpgsql as $$
declare
  _t    durable.trigger;
  _runs json;
  _look timestamptz;
begin
  select t.* into _t from durable.trigger t where t.workflow = _workflow;
  _runs := durable.triggered_runs(_t, _firings);
  if _runs is not null then
    perform durable.start_runs(_runs);
  end if;
  delete from durable.trigger_event e using (
    select (v ->> 'id')::uuid as id from json_array_elements(_firings) f cross join json_array_elements(f -> 'events') v
    union select s.id from json_to_recordset(_surplus) as s (id uuid)) d
  where e.workflow = _workflow and e.event_id = d.id;
  update durable.trigger_run r set surplus = r.surplus + s.n
  from (select x."end", count(*) as n from json_to_recordset(_surplus) as x ("end" timestamptz) group by 1) s
  where r.workflow = _workflow and r.interval_end = s."end";
  update durable.trigger_event e set fresh = false, interval_end = w."end"
  from json_to_recordset(_waiting) as w (id uuid, "end" timestamptz)
  where e.workflow = _workflow and e.event_id = w.id;
  perform durable.give_up_intervals(_t, durable.now() - _grace);
  _look := (select min(e.interval_end) + _grace from durable.trigger_event e
            where e.workflow = _workflow and e.interval_end is not null);
  update durable.trigger t set look_at = _look where t.workflow = _workflow and t.look_at is distinct from _look;
  return coalesce(json_array_length(_runs), 0);
end
$$;

-- give_up_intervals: an interval that ended before this without all of its events leaves a note of what was missing. Not
-- while there are events that nobody has looked at: they may belong to it.
create or replace function durable.give_up_intervals(_t durable.trigger, _before timestamptz) returns void
language plpgsql as $$
declare
  _late record;
begin
  if exists (select from durable.trigger_event e where e.workflow = _t.workflow and e.fresh) then
    return;
  end if;
  for _late in
    select e.interval_end, array_agg(e.event_id) as ids, array_agg(distinct m.n) as had
    from durable.trigger_event e cross join unnest(e.matched) m (n)
    where e.workflow = _t.workflow and e.interval_end <= _before group by e.interval_end order by e.interval_end
  loop
    perform durable.add_note(_t.workflow, 'incomplete', null,
      format('no run for the interval until %s: it had no event %s', durable.iso(_late.interval_end),
             (select string_agg(u.e, ', ' order by u.i) from unnest(_t.events) with ordinality u (e, i) where u.i <> all (_late.had))),
      _late.interval_end, _late.interval_end, 1);
    delete from durable.trigger_event e where e.workflow = _t.workflow and e.event_id = any (_late.ids);
  end loop;
end
$$;

-- triggered_runs: the rows of the runs that a trigger fires, and which events each became. Inputs that do not fit the
-- workflow leave a note instead of a run.
create or replace function durable.triggered_runs(_t durable.trigger, _firings json) returns json
language plpgsql as $$
declare
  _now    timestamptz := durable.now();
  _line   int := durable.line_of(_t.queue, _t.workflow);
  _of     durable.workflow := (select w from durable.workflow w where w.name = _t.workflow);
  _fire   json;
  _input  json;
  _fault  text;
  _rows   json[] := '{}';
begin
  for _fire in select f from json_array_elements(_firings) f loop
    _input := durable.triggered_input(_t, _of.params, _fire);
    -- What is sealed can be judged only by the worker that opens it.
    _fault := case when _input #> '{$durable,sealed}' is null then durable.input_fault(_of.params, _input) end;
    insert into durable.trigger_run (run_id, workflow, event_id, interval_start, interval_end, events, made_at)
    select (_fire ->> 'run')::uuid, _t.workflow,
           case when _t.mode = 'any' and _t.per is null then (_fire -> 'events' -> 0 ->> 'id')::uuid end,
           (_fire ->> 'start')::timestamptz, (_fire ->> 'end')::timestamptz,
           array(select (v ->> 'id')::uuid from json_array_elements(_fire -> 'events') v), _now
    where _fault is null;
    if _fault is null then
      _rows := _rows || json_build_object('id', _fire ->> 'run', 'line', _line, 'prio', _t.prio, 'input', _input,
        'tags', to_json(_t.tags), 'deadline', extract(epoch from _of.deadline));
    else
      perform durable.add_note(_t.workflow, 'payload', null, format('no run for event %s: %s',
        (select string_agg(format('%s (%s)', e.name, e.event_id), ', ') from json_array_elements(_fire -> 'events') v
         join durable.trigger_event e on e.workflow = _t.workflow and e.event_id = (v ->> 'id')::uuid), _fault));
    end if;
  end loop;
  return case when cardinality(_rows) > 0 then array_to_json(_rows) end;
end
$$;

-- triggered_input: what the workflow can take of the event's name and interval, over it the trigger's own inputs, and
-- the payload over both; of several events each payload under its name. A sealed payload goes as it is: nobody here can open it.
create or replace function durable.triggered_input(_t durable.trigger, _params json, _fire json) returns json
language plpgsql stable as $$
declare
  _events  json;
  _first   durable.trigger_event;
  _offered json;
begin
  select json_object_agg(_t.events[(v ->> 'n')::int], coalesce(e.payload, 'null')) into _events
  from json_array_elements(_fire -> 'events') v
  join durable.trigger_event e on e.workflow = _t.workflow and e.event_id = (v ->> 'id')::uuid;
  _offered := case when _fire ->> 'end' is not null
    then durable.interval_inputs((_fire ->> 'start')::timestamptz, (_fire ->> 'end')::timestamptz) else '{}' end;
  if _t.mode = 'all' then
    return durable.merged(durable.offered(_params, durable.merged(_offered, json_build_object('events', _events))), _t.inputs);
  end if;
  select e.* into _first from durable.trigger_event e
  where e.workflow = _t.workflow and e.event_id = (_fire -> 'events' -> 0 ->> 'id')::uuid;
  if _first.payload #> '{$durable,sealed}' is not null or json_typeof(_first.payload) not in ('object', 'null') then
    return _first.payload;
  end if;
  _offered := durable.merged(_offered, json_build_object('event_name', _first.name, 'event_id', _first.event_id));
  return durable.merged(durable.merged(durable.offered(_params, _offered), _t.inputs), _first.payload);
end
$$;

-- iso: an instant as ISO-8601 in UTC.
create or replace function durable.iso(_at timestamptz) returns text
language sql stable as $$
  select to_char(_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS'
                 || case when date_trunc('second', _at) <> _at then '.US' else '' end || '"Z"')
$$;

-- interval_inputs: a data interval as a run's inputs have it.
create or replace function durable.interval_inputs(_start timestamptz, _end timestamptz) returns json
language sql stable as $$
  select json_build_object('data_interval_start', durable.iso(_start), 'data_interval_end', durable.iso(_end),
                           'logical_date', durable.iso(_end), 'ds', durable.iso(_start))
$$;

-- merged: two objects as one; what is in the second wins. Values keep their text.
create or replace function durable.merged(_a json, _b json) returns json
language sql immutable as $$
  select coalesce(json_object_agg(k.key, k.value), '{}') from (
    select a.key, a.value from json_each(_a) a
    where not exists (select from json_each(case when json_typeof(_b) = 'object' then _b else '{}' end) b where b.key = a.key)
    union all
    select b.key, b.value from json_each(case when json_typeof(_b) = 'object' then _b else '{}' end) b) k
$$;

-- offered: those of some values that a workflow declares; all of them if it takes anything.
create or replace function durable.offered(_params json, _values json) returns json
language sql immutable as $$
  select case when _params -> 'required' is null or coalesce((_params ->> 'open')::boolean, false) then _values else (
    select coalesce(json_object_agg(v.key, v.value), '{}') from json_each(_values) v
    where v.key in (select json_array_elements_text(_params -> 'required')
                    union all select json_array_elements_text(_params -> 'optional'))) end
$$;
-- Retention of what schedulers leave behind: ticks whose run is gone, notes, backfills, alerts, and events in vain.

-- prune_history: a batch of each kind, of what is older than this; pruned: the largest of them. reached is null when there
-- is no next batch, or another is at it.
create or replace function durable.prune_history(
  _before timestamptz, _limit int default 500, _after timestamptz default null, out pruned int, out reached timestamptz)
language plpgsql as $$
begin
  if not pg_try_advisory_xact_lock(1146442307, 3) then
    return;
  end if;
  select greatest(t.ticks, t.notes, durable.prune_backfills(_before, _limit), durable.prune_alerts(_before, _limit),
                  durable.prune_triggered(_before, _limit), durable.prune_waiting_events(_before, _limit))
  into pruned from durable.prune_ticks(_before, _limit) t;
  reached := case when pruned >= _limit then _before end;
end
$$;

-- prune_triggered: which events became which run.
create or replace function durable.prune_triggered(_before timestamptz, _limit int) returns int
language plpgsql as $$
declare
  _pruned int;
begin
  delete from durable.trigger_run r where r.ctid = any (array(
    select o.ctid from durable.trigger_run o where o.made_at < _before order by o.made_at limit _limit));
  get diagnostics _pruned = row_count;
  return _pruned;
end
$$;

-- prune_waiting_events: events that the others of their set have never come to, with a note of how many.
create or replace function durable.prune_waiting_events(_before timestamptz, _limit int) returns int
language plpgsql as $$
declare
  _of text[];
begin
  with d as (
    delete from durable.trigger_event e where (e.workflow, e.event_id) in (
      select o.workflow, o.event_id from durable.trigger_event o
      where o.emitted_at < _before and not o.fresh order by o.emitted_at limit _limit for update skip locked)
    returning case when e.matched = '{}' then '' else e.workflow end as of
  )
  select coalesce(array_agg(d.of), '{}') into _of from d;
  perform durable.add_note(u.w, 'incomplete', null,
    format('%s events were given up: the others of their set never came', count(*))) from unnest(_of) u (w) where u.w <> '' group by u.w;
  return cardinality(_of);
end
$$;
-- The end of a deployed workflow. Its versions, runs and history stay to be read; nothing of it starts any more, until
-- somebody deploys the name again or a program registers it.

-- unfinished_runs: the runs of a workflow that have not ended.
create or replace function durable.unfinished_runs(_workflow text) returns setof uuid
language sql stable as $$
  select t.task_id from durable.line l join durable.task t on t.line = l.line
  where l.workflow = _workflow and t.parent_id is null and t.finished_at is null
$$;

-- silence: nothing starts a workflow by itself: no schedule, no backfill, no event. Locks: those rows.
create or replace function durable.silence(_workflow text, _by text default current_user) returns void
language plpgsql as $$
begin
  perform durable.remove_schedule(_workflow, _by);
  perform durable.drop_trigger(_workflow, _by);
  perform durable.switch_backfill(b.id, 'cancelled', _by, 'the workflow was undeployed')
  from durable.backfill b where b.workflow = _workflow and b.state in ('running', 'paused');
end
$$;

-- undeploy: take a workflow away. Refused while runs of it have not ended. Locks: the workflow's row, and as `silence`.
create or replace function durable.undeploy(_workflow text, _by text default current_user) returns void
language plpgsql as $$
declare
  _had  durable.workflow;
  _runs bigint;
begin
  select w.* into _had from durable.workflow w where w.name = _workflow for update;
  if not found or _had.version = '' then
    perform durable.refuse('DU010', format('no workflow %L is deployed', _workflow), 'It was undeployed before, or its name is spelt otherwise.');
  end if;
  if _had.version is null then
    perform durable.refuse('DU012', format('%L is a workflow that a program registered', _workflow),
      'Stop the workers that serve it; its schedule goes with `durable schedules remove`.');
  end if;
  select count(*) into _runs from durable.unfinished_runs(_workflow);
  if _runs > 0 then
    perform durable.refuse('DU012', format('%L has %s unfinished runs', _workflow, _runs),
      'Wait for their end, or cancel them with --cancel-running.');
  end if;
  perform durable.silence(_workflow, _by);
  update durable.workflow w set version = '' where w.name = _workflow;
  perform pg_notify('durable_work', 'v');
end
$$;
