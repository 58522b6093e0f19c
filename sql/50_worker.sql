-- Workers: registration, the fence, and what happens to the tasks of one that is gone.

-- enlist: a worker under a fresh id, with a fence row for each of its write connections. Asked again under the same
-- id, because the answer was lost, it changes nothing.
create or replace function durable.enlist(_worker uuid, _channels int, _info json) returns void
language sql as $$
  insert into durable.worker (worker_id, started_at, info) values (_worker, clock_timestamp(), _info) on conflict do nothing;
  insert into durable.fence (worker_id, channel) select _worker, c from generate_series(0, _channels - 1) c on conflict do nothing;
$$;

-- pass_fence: the first statement of every write of a worker. True: go on. False: this very write was
-- applied before and its answer was lost. DU001: the worker was declared dead. Locks: its own fence row.
create or replace function durable.pass_fence(_worker uuid, _channel int, _flush_no bigint) returns boolean
language plpgsql as $$
begin
  update durable.fence f set flush_no = _flush_no
  where f.worker_id = _worker and f.channel = _channel and f.flush_no < _flush_no;
  if found then
    return true;
  end if;
  perform durable.check_fence(_worker, _channel);
  return false;
end
$$;

-- check_fence: why a write did not pass. Null: its number was used before. DU001: the worker was declared dead.
create or replace function durable.check_fence(_worker uuid, _channel int) returns boolean
language plpgsql as $$
begin
  if not exists (select from durable.fence f where f.worker_id = _worker and f.channel = _channel) then
    perform durable.refuse('DU001', format('worker %s lost its lease; its tasks were given to others', _worker));
  end if;
  return null;
end
$$;

-- renew: one beat of a worker, answered with everyone's beats. Locks: its own worker row, for an instant.
create or replace function durable.renew(_worker uuid) returns table (worker_id uuid, beat bigint)
language plpgsql as $$
#variable_conflict use_column
begin
  update durable.worker w set beat = w.beat + 1 where w.worker_id = _worker;
  if not found then
    perform durable.refuse('DU001', format('worker %s lost its lease; its tasks were given to others', _worker));
  end if;
  return query select w.worker_id, w.beat from durable.worker w where w.worker_id <> _worker;
end
$$;

-- give_back: every task that a worker holds becomes ready again. Charged: it was lost with its worker; one
-- that was lost while it ran alone too often is stopped for good. Locks: task rows in id order, then held.
create or replace function durable.give_back(_worker uuid, _charge boolean, _quarantine int) returns int
language plpgsql as $$
declare
  _now  timestamptz := durable.now();
  _bad  uuid[];
  _count int;
begin
  perform from durable.task t
  where t.task_id in (select h.task_id from durable.held h where h.worker_id = _worker)
  order by t.task_id for update;

  with d as (
    delete from durable.held h where h.worker_id = _worker returning h.task_id, h.epoch, h.alone, h.claimed_at
  ), u as (
    update durable.task t
    set lost = t.lost + case when _charge then 1 else 0 end,
        lost_alone = t.lost_alone + case when _charge and d.alone then 1 else 0 end,
        ready_at = _now, epoch = d.epoch, wakes = t.wakes + 1,
        started_at = coalesce(t.started_at, d.claimed_at)
    from d where t.task_id = d.task_id
    returning t.task_id, t.line, t.prio, t.epoch, t.lost, t.lost_alone
  ), r as (
    insert into durable.ready (line, prio, ready_at, task_id, epoch)
    select case when u.lost >= 2 then -u.line else u.line end, u.prio, _now, u.task_id, u.epoch
    from u where u.lost_alone < _quarantine
  )
  select count(*), array_agg(u.task_id) filter (where u.lost_alone >= _quarantine) into _count, _bad from u;

  if _bad is not null then
    update durable.task t
    set state = 'failed', finished_at = _now,
        error = json_build_object('type', 'Quarantined', 'message', format(
          'its worker died %s times while it ran this task alone; `durable runs retry` gives it another chance', t.lost_alone))
    where t.task_id = any (_bad);
    perform durable.settle(_bad, _now);
    perform durable.tell_ends(array_to_string(_bad, ','));
  end if;
  return _count;
end
$$;

-- bury: declare a worker dead, if its beat is still the one that the reaper has watched; null if it is not. Waits for a write in
-- flight, never for user code. Locks: worker, fence, task, held.
create or replace function durable.bury(_worker uuid, _beat bigint, _quarantine int default 3) returns int
language plpgsql set lock_timeout = '1s' as $$
begin
  delete from durable.worker w where w.worker_id = _worker and w.beat = _beat;
  if not found then
    return null;
  end if;
  delete from durable.fence f where f.worker_id = _worker;
  return durable.give_back(_worker, true, _quarantine);
end
$$;

-- leave: a worker goes of its own will; what it still holds is given back and charged to nobody.
create or replace function durable.leave(_worker uuid) returns int
language plpgsql as $$
declare
  _count int;
begin
  delete from durable.worker w where w.worker_id = _worker;
  delete from durable.fence f where f.worker_id = _worker;
  _count := durable.give_back(_worker, false, 1000000);
  perform pg_notify('durable_work', 'a');
  return _count;
end
$$;

-- held_by: what the store thinks a worker runs, after an answer was lost; as `claim` answers.
create or replace function durable.held_by(_worker uuid) returns json
language sql stable as $$
  select coalesce(json_agg(json_build_array(
    t.task_id, t.line, h.epoch, t.prio, date_part('epoch', t.ready_at), t.input, t.run_id, t.parent_id, t.wakes, t.stop,
    durable.waits_of(t.run_id, t.task_id), t.version)), '[]')
  from durable.held h join durable.task t on t.task_id = h.task_id where h.worker_id = _worker
$$;
