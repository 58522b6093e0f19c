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
