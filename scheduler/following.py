"""Schedules that follow a definition: a deployment that names one sets it, and one that no longer does takes it away.

What a person has set stays theirs where nobody is there to be asked, as when a worker starts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import psycopg

from durable import Durable, Workflow
from durable.link import connect
from scheduler.definition import BadSchedule, Findings, Schedule, examine
from scheduler.schedules import Schedules
from scheduler.store import fetch

# What became of a schedule. "kept": a person's, which the definition has not replaced; None: there was nothing to do.
Followed = Literal["set", "unchanged", "removed", "kept"] | None

HAD = "select origin from durable.schedule where workflow = %s and state <> 'removed'"


async def follow(
    connection: psycopg.AsyncConnection[Any],
    workflow: str,
    schedule: Schedule | None,
    *,
    by: str | None = None,
    yields: bool = False,
) -> Followed:
    """Bring a workflow's schedule to what its definition says, inside the caller's transaction. With `yields`, not
    against a schedule that a person has set."""
    had = await fetch(connection, HAD, (workflow,))
    origin = had[0]["origin"] if had else None
    schedules = Schedules(connection)
    if schedule is None:
        return "removed" if origin == "definition" and await schedules.remove(workflow, by=by) else None
    if yields and origin == "person":
        return "kept"
    own = schedule.model_copy(update={"origin": "definition"})
    return "set" if await schedules.set(workflow, own, by=by) else "unchanged"


async def follow_code(client: Durable, workflows: Iterable[Workflow], *, by: str) -> dict[str, Followed]:
    """Register workflows in code and give them the schedules of their decorators; all of them, or none."""
    served = list(workflows)
    schedules = {workflow.name: schedule_in_code(workflow) for workflow in served}
    await client.register(*served)
    connection = await connect(client.dsn, "durable-schedules")
    try:
        async with connection.transaction():
            return {
                name: await follow(connection, name, schedule, by=by, yields=True)
                for name, schedule in schedules.items()
            }
    finally:
        await connection.close()


def schedule_in_code(workflow: Workflow) -> Schedule | None:
    """The schedule of a workflow's decorator; `BadSchedule` if it cannot be."""
    found = findings_in_code(workflow)
    if found is not None and found.faults:
        raise BadSchedule(workflow.name, found.faults)
    # The workflow's own row holds its limit.
    return found.schedule.model_copy(update={"max_active_runs": None}) if found and found.schedule else None


def findings_in_code(workflow: Workflow) -> Findings | None:
    """What is to be said about the schedule of a workflow's decorator; None: it has none."""
    if workflow.schedule is None:
        return None
    return examine({"queue": workflow.queue, "max_active_runs": workflow.max_active_runs, **workflow.schedule})
