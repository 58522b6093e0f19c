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
