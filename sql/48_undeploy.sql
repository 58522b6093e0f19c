-- The end of a deployed workflow. Its versions, runs and history stay to be read; nothing of it starts any more, until
-- somebody deploys the name again or a program registers it.

-- unfinished_runs: the runs of a workflow that have not ended.
create or replace function durable.unfinished_runs(_workflow text) returns setof uuid
language sql stable as $$
  select t.task_id from durable.line l join durable.task t on t.line = l.line
  where l.workflow = _workflow and t.parent_id is null and t.finished_at is null
$$;

-- silence: nothing starts a workflow by itself: no schedule, no backfill, no event. Locks: those rows.
create or replace function durable.silence(_workflow text, _by text default current_user) returns void
language plpgsql as $$
begin
  perform durable.remove_schedule(_workflow, _by);
  perform durable.drop_trigger(_workflow, _by);
  perform durable.switch_backfill(b.id, 'cancelled', _by, 'the workflow was undeployed')
  from durable.backfill b where b.workflow = _workflow and b.state in ('running', 'paused');
end
$$;

-- undeploy: take a workflow away. Refused while runs of it have not ended. Locks: the workflow's row, and as `silence`.
create or replace function durable.undeploy(_workflow text, _by text default current_user) returns void
language plpgsql as $$
declare
  _had  durable.workflow;
  _runs bigint;
begin
  select w.* into _had from durable.workflow w where w.name = _workflow for update;
  if not found or _had.version = '' then
    perform durable.refuse('DU010', format('no workflow %L is deployed', _workflow), 'It was undeployed before, or its name is spelt otherwise.');
  end if;
  if _had.version is null then
    perform durable.refuse('DU012', format('%L is a workflow that a program registered', _workflow),
      'Stop the workers that serve it; its schedule goes with `durable schedules remove`.');
  end if;
  select count(*) into _runs from durable.unfinished_runs(_workflow);
  if _runs > 0 then
    perform durable.refuse('DU012', format('%L has %s unfinished runs', _workflow, _runs),
      'Wait for their end, or cancel them with --cancel-running.');
  end if;
  perform durable.silence(_workflow, _by);
  update durable.workflow w set version = '' where w.name = _workflow;
  perform pg_notify('durable_work', 'v');
end
$$;
