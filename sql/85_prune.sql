-- Retention: finished runs, old events and old keys, a small batch at a time. Cost is that of the batch.

-- prune: up to _limit runs that ended before _before, with all that belongs to them; then as many events that
-- nobody waits for, and keys. Answers how many rows of each went; call again while it is not zero.
create or replace function durable.prune(_before timestamptz, _limit int default 500) returns table (runs int, events int, keys int)
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
  _old uuid[];
begin
  _old := array(
    select t.task_id from durable.task t
    where t.parent_id is null and t.finished_at is not null and t.finished_at < _before
    order by t.finished_at limit _limit for update skip locked);
  runs := cardinality(_old);
  if runs > 0 then
    delete from durable.journal j where j.run_id = any (_old);
    delete from durable.value v where v.run_id = any (_old);
    delete from durable.log l where l.run_id = any (_old);
    delete from durable.progress p where p.run_id = any (_old);
    delete from durable.wait w where w.run_id = any (_old);
    delete from durable.delivery d where d.run_id = any (_old);
    delete from durable.task t where t.run_id = any (_old) and t.parent_id is not null and t.finished_at is not null;
    delete from durable.task t where t.task_id = any (_old);
  end if;
  with d as (
    delete from durable.event e where (e.name, e.event_id) in (
      select o.name, o.event_id from durable.event o
      where o.emitted_at < _before
        and not exists (select from durable.wait w where w.name = o.name)
        and not exists (select from durable.signal g where g.shard = durable.shard(o.name) and g.name = o.name)
      order by o.emitted_at limit _limit)
    returning 1)
  select count(*) into events from d;
  with d as (
    delete from durable.once c where (c.scope, c.key) in (
      select o.scope, o.key from durable.once o where o.created_at < _before
        and not exists (select from durable.task t where t.task_id = o.id)
      order by o.created_at limit _limit)
    returning 1)
  select count(*) into keys from d;
  return next;
end
$$;
