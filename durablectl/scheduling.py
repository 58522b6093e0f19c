"""The schedules of what is deployed or served: judged with the rest of a definition, written with its deployment."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import structlog

from durable import Durable, Workflow
from durable.link import connect
from durablectl import database
from highway_dsl import Workflow as HighwayWorkflow
from highway_dsl.document import located
from highway_dsl.faults import Fault
from interpreter.deployment import Loaded
from scheduler.definition import Findings, Schedule, examine
from scheduler.following import Followed, findings_in_code, follow, follow_code
from scheduler.schedules import Schedules

log = structlog.get_logger("durable.schedules")

FIELDS = (
    *("schedule", "every", "start_date", "end_date", "catchup", "catchup_window", "overlap", "jitter", "deadline"),
    *("on_deadline", "depends_on_past", "is_paused", "tags", "max_active_runs"),
)


def findings_of(workflow: HighwayWorkflow) -> Findings | None:
    """What is to be said about a Highway workflow's schedule; None: it has none."""
    if workflow.schedule is None and workflow.every is None:
        return None
    given = {name: getattr(workflow, name) for name in FIELDS}
    return examine({**given, "timezone": workflow.timezone or "UTC"})


def schedule_of(workflow: HighwayWorkflow) -> Schedule | None:
    """The schedule that a checked workflow asks for."""
    found = findings_of(workflow)
    # The workflow's own row holds its limit.
    return found.schedule.model_copy(update={"max_active_runs": None}) if found and found.schedule else None


def placed(loaded: Loaded, fault: Fault) -> Fault:
    """A fault with its place in the document that it came from."""
    readers = {
        ".yaml": HighwayWorkflow.load_yaml,
        ".yml": HighwayWorkflow.load_yaml,
        ".json": HighwayWorkflow.load_json,
    }
    read = readers.get(Path(loaded.file).suffix)
    return located(read(loaded.source, loaded.file).source, fault) if read else loaded.workflow.origin.placed(fault)


async def deploy_loaded(client: Durable, loaded: Loaded) -> tuple[bool, Followed]:
    """Deploy a workflow with its schedule in one transaction: whether the version is new, what became of the other."""
    connection, by = await connect(client.dsn, "durable-deploy"), getpass.getuser()
    try:
        async with connection.transaction():
            changed = await client.deploy(loaded.deployment(), by=by, connection=connection)
            return changed, await follow(connection, loaded.name, schedule_of(loaded.workflow), by=by)
    finally:
        await connection.close()


def schedules_of(client: Durable) -> Schedules:
    """What people do with schedules, on the store of a client."""
    return Schedules(client.dsn, grace=grace())


def grace() -> timedelta:
    """By how much a tick may be missed and still get its run."""
    return timedelta(seconds=database.settings().schedule_grace_seconds)


async def serve_schedules(url: str, workflows: Sequence[Workflow]) -> dict[str, Followed]:
    """Give workflows in code the schedules of their decorators, before they are served."""
    if not workflows:
        return {}
    for workflow in workflows:
        for warning in found.warnings if (found := findings_in_code(workflow)) else ():
            print(f"warning: workflow {workflow.name!r}: {warning}", file=sys.stderr)
    async with Durable(url) as client:
        done = await follow_code(client, workflows, by=getpass.getuser())
    for name, what in done.items():
        if what == "kept":
            log.warning(
                "the schedule that a person has set stays", workflow=name, hint=f"durable schedules remove {name}"
            )
        elif what in ("set", "removed"):
            log.info(f"the schedule was {what}", workflow=name)
    return done
