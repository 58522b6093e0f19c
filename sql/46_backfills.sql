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
