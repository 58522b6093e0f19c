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
