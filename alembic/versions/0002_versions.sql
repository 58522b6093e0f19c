-- What people deploy, and what deployed workflows need beside the core: versions, memory, secrets. This file can be run
-- again over itself, and stands apart from the first migration: 0001 is everything else, 0002 is this.

-- ---------------------------------------------------------------- versions

-- A version never changes. Its name is the hash of its canonical form, so that deploying the same again is no change.
create table if not exists durable.version (
  workflow     text not null references durable.workflow (name),
  version      text not null,
  language     text not null,
  source       text not null,
  plan         json not null,
  deployed_at  timestamptz not null,
  deployed_by  text not null,
  primary key (workflow, version)
);

-- What new runs get. Null: the workflow is a program that workers bring along.
alter table durable.workflow add column if not exists version text;

-- deploy: make a version the current one of its workflow, and keep it for the runs that have it. True: it was not the
-- current one before. Runs that have begun keep theirs. Locks: the workflow's row.
create or replace function durable.deploy(
  _workflow text,
  _version  text,
  _language text,
  _source   text,
  _plan     json,
  _by       text default current_user,
  _settings json default '{}'  -- as a workflow is registered: params, caps, deadline in seconds, deadline_action
) returns boolean
language plpgsql as $$
declare
  _now timestamptz := durable.now();
  _had durable.workflow;
begin
  if coalesce(_workflow, '') = '' or coalesce(_version, '') = '' then
    perform durable.refuse('DU013', 'a deployment needs the name of its workflow and a version');
  end if;
  insert into durable.workflow (name, version, registered_at) values (_workflow, '', _now) on conflict do nothing;
  select w.* into _had from durable.workflow w where w.name = _workflow for update;
  if _had.version is null then
    perform durable.refuse('DU012', format('%L is a workflow that a program registered', _workflow),
      'Give the deployed workflow another name.');
  end if;
  insert into durable.version (workflow, version, language, source, plan, deployed_at, deployed_by)
  values (_workflow, _version, _language, _source, _plan, _now, _by) on conflict do nothing;
  if _had.version = _version then
    return false;
  end if;
  update durable.workflow w
  set version = _version, params = coalesce(x.params, '{}'), max_active_runs = x.max_active_runs, max_running = x.max_running,
      max_active_per_key = x.max_active_per_key, max_running_per_key = x.max_running_per_key,
      deadline = make_interval(secs => x.deadline), deadline_action = coalesce(x.deadline_action, 'fail'), registered_at = _now
  from json_to_record(_settings) as x (params json, max_active_runs int, max_running int, max_active_per_key int,
       max_running_per_key int, deadline double precision, deadline_action text)
  where w.name = _workflow;
  if (select w.max_active_runs from durable.workflow w where w.name = _workflow) is distinct from _had.max_active_runs then
    -- A cap that was raised has room for runs that stand in line.
    insert into durable.signal (shard, id, kind, name)
    values (durable.shard('a:' || _workflow), durable.uuid7(), 'slot', 'a:' || _workflow);
    perform pg_notify('durable_work', 's');
  end if;
  perform pg_notify('durable_work', 'v');
  return true;
end
$$;

-- deployed_lines: where runs of deployed workflows stand, for a worker that knows these languages: [line, queue, workflow].
create or replace function durable.deployed_lines(_languages text[], _queues text[]) returns json
language sql volatile as $$
  select json_agg(json_build_array(durable.line_of(q, w.name), q, w.name))
  from durable.workflow w
  join durable.version v on v.workflow = w.name and v.version = w.version
  cross join unnest(_queues) q
  where v.language = any (_languages)
$$;

-- read_version: one version with its plan: what a worker runs.
create or replace function durable.read_version(_workflow text, _version text) returns json
language sql stable as $$
  select json_build_object('workflow', v.workflow, 'version', v.version, 'language', v.language, 'source', v.source,
                           'plan', v.plan, 'deployed_at', v.deployed_at, 'deployed_by', v.deployed_by,
                           'current', v.version = w.version)
  from durable.version v join durable.workflow w on w.name = v.workflow
  where v.workflow = _workflow and v.version = _version
$$;

-- deployment: every version there is, with which of them new runs get. Without sources and plans: those are large.
create or replace view durable.deployment as
select v.workflow, v.version, v.language, v.deployed_at, v.deployed_by, v.version = w.version as current
from durable.version v join durable.workflow w on w.name = v.workflow;

-- ---------------------------------------------------------------- memory

-- What deployed workflows remember beyond a run. Written in transaction steps, so that each change happens once.
create table if not exists durable.memory (
  scope       text not null,
  key         text not null,
  value       json not null,
  updated_at  timestamptz not null,
  primary key (scope, key)
);

-- remember: set a value. Locks: its row.
create or replace function durable.remember(_scope text, _key text, _value json) returns void
language sql as $$
  insert into durable.memory (scope, key, value, updated_at) values (_scope, _key, _value, durable.now())
  on conflict (scope, key) do update set value = excluded.value, updated_at = excluded.updated_at
$$;

-- increment: add to a number, which begins at 0; the new value. Locks: its row.
create or replace function durable.increment(_scope text, _key text, _by numeric default 1) returns numeric
language plpgsql as $$
declare
  _value json;
begin
  insert into durable.memory as m (scope, key, value, updated_at) values (_scope, _key, to_json(0), durable.now())
  on conflict (scope, key) do update set updated_at = excluded.updated_at
  returning m.value into _value;
  if json_typeof(_value) <> 'number' then
    perform durable.refuse('DU012', format('memory %L holds %s %s, which is no number to add to', _key, json_typeof(_value), _value),
      'Set it to a number first.');
  end if;
  update durable.memory m set value = to_json((_value #>> '{}')::numeric + _by)
  where m.scope = _scope and m.key = _key returning m.value into _value;
  return (_value #>> '{}')::numeric;
end
$$;

-- ---------------------------------------------------------------- secrets

-- Encrypted by the client: no key ever reaches the server.
create table if not exists durable.secret (
  name        text primary key,
  body        text not null,
  updated_at  timestamptz not null,
  updated_by  text not null
);

-- Who was given which secret, when and for what. Never its value.
create table if not exists durable.secret_access (
  id        uuid primary key,
  at        timestamptz not null,
  name      text not null,
  provider  text,
  who       text not null,
  run_id    uuid,
  task_id   uuid,
  step      text,
  attempt   int
);
create index if not exists secret_access_run on durable.secret_access (run_id);
create index if not exists secret_access_name on durable.secret_access (name, at);
create index if not exists secret_access_at on durable.secret_access (at);

-- Makes references to secrets unforgeable: text from outside that looks like one is only text.
create table if not exists durable.secret_salt (
  only_row  boolean primary key default true check (only_row),
  salt      text not null
);

-- sign_with: the salt, made when first asked for and never changed.
create or replace function durable.sign_with() returns text
language plpgsql as $$
begin
  insert into durable.secret_salt (salt) values (gen_random_uuid()::text || gen_random_uuid()::text) on conflict do nothing;
  return (select s.salt from durable.secret_salt s);
end
$$;

-- put_secret: set a secret, already encrypted.
create or replace function durable.put_secret(_name text, _body text, _by text default current_user) returns void
language sql as $$
  insert into durable.secret (name, body, updated_at, updated_by) values (_name, _body, durable.now(), _by)
  on conflict (name) do update set body = excluded.body, updated_at = excluded.updated_at, updated_by = excluded.updated_by
$$;

-- swap_secret: the same secret under another key, unless it was set anew meanwhile. False: look again.
create or replace function durable.swap_secret(_name text, _old text, _new text) returns boolean
language plpgsql as $$
begin
  update durable.secret s set body = _new where s.name = _name and s.body = _old;
  return found;
end
$$;

-- drop_secret: forget a secret. False: there was none.
create or replace function durable.drop_secret(_name text) returns boolean
language plpgsql as $$
begin
  delete from durable.secret s where s.name = _name;
  return found;
end
$$;

-- note_secret_access: the audit row of one access; provider null: nobody had it.
create or replace function durable.note_secret_access(
  _name text, _provider text, _who text, _run uuid default null, _task uuid default null, _step text default null, _attempt int default null
) returns void
language sql as $$
  insert into durable.secret_access (id, at, name, provider, who, run_id, task_id, step, attempt)
  values (durable.uuid7(), durable.now(), _name, _provider, _who, _run, _task, _step, _attempt)
$$;

-- prune_secret_access: up to _limit audit rows of [_after, _before), oldest first. One pruner at a time: whoever comes
-- second gets null. Locks: its rows (skip locked).
create or replace function durable.prune_secret_access(
  _before timestamptz, _limit int default 500, _after timestamptz default null,
  out pruned int, out reached timestamptz)
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
begin
  if not pg_try_advisory_xact_lock(1146442307, 2) then
    return;
  end if;
  with o as materialized (
    select a.id from durable.secret_access a where a.at >= coalesce(_after, '-infinity') and a.at < _before
    order by a.at limit _limit for update skip locked
  ), d as (
    delete from durable.secret_access a using o where a.id = o.id returning a.at
  )
  select count(*), case when count(*) = _limit then max(d.at) end into pruned, reached from d;
end
$$;
