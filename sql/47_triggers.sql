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
