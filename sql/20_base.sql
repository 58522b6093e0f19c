-- Time, ids and shards: what every transition uses.

-- now: the runtime's time. STABLE and without a SET clause, so that `wake_at <= durable.now()` is an
-- index condition. Never used for leases.
create or replace function durable.now() returns timestamptz
language sql stable as $$
  select statement_timestamp() + coalesce((select c.shift from durable.clock c), interval '0')
$$;

-- skip_time: move the test clock forward (or back), for everyone in this database, and tell workers and schedulers.
create or replace function durable.skip_time(_by interval) returns timestamptz
language sql volatile as $$
  insert into durable.clock (shift) values (_by)
  on conflict (only_row) do update set shift = durable.clock.shift + excluded.shift;
  select pg_notify('durable_work', 'clock'), pg_notify('durable_schedule', 'clock');
  select statement_timestamp() + (select c.shift from durable.clock c);
$$;

-- uuid7: a time-ordered id, from the server's own clock, to the microsecond: what one session makes one after the other,
-- events above all, keeps its order within a millisecond too.
create or replace function durable.uuid7() returns uuid
language sql volatile as $$
  select encode(overlay(
    uuid_send(gen_random_uuid())
    placing substring(int8send(floor(x.ms)::bigint) from 3) || int2send((28672 + floor((x.ms - floor(x.ms)) * 4096))::int2)
    from 1 for 8), 'hex')::uuid
  from (select extract(epoch from clock_timestamp()) * 1000 as ms) x
$$;

-- first_id: the least id of a moment. Ids of what was made before it are smaller.
create or replace function durable.first_id(_at timestamptz) returns uuid
language sql stable as $$
  select encode(substring(int8send((extract(epoch from _at) * 1000)::bigint) from 3) || '\x00000000000000000000', 'hex')::uuid
$$;

-- shard: what must meet (a name's waits and emits, a parent and its children, a cap's slots and queue)
-- falls into the same shard, and the passes of one shard are serial.
create or replace function durable.shard(_of text) returns smallint
language sql immutable as $$
  select (hashtext(_of) & 15)::smallint
$$;

-- refuse: raise one of our own SQLSTATEs with what to do next.
create or replace function durable.refuse(_code text, _message text, _hint text default null) returns void
language plpgsql as $$
begin
  raise exception using errcode = _code, message = _message, hint = coalesce(_hint, '');
end
$$;

-- tell_ends: these runs have ended, for whoever waits in `await_ends`. Where nobody does, nobody is told: notifications of all
-- sessions are committed one after the other, and each wakes every session that listens to anything. The lock is held until
-- the commit: who begins to wait meanwhile gets it after that, and finds the end by looking.
create or replace function durable.tell_ends(_runs text) returns void
language plpgsql as $$
begin
  if not pg_try_advisory_xact_lock(1146442305, 100) then
    perform pg_notify('durable_done', _runs);
  end if;
end
$$;

-- await_ends: before the first look at a run, in a session that listens to durable_done; until that session ends.
create or replace function durable.await_ends() returns void
language sql as $$
  select pg_advisory_lock_shared(1146442305, 100)
$$;
