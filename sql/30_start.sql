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
