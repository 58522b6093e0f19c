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
