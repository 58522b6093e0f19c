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
