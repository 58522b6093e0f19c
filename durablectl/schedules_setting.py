"""`durable schedules set`: a schedule by hand. What is not named stays as it is."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from durable import Durable
from durable.errors import WrongState
from durablectl import exits
from durablectl.database import with_client
from durablectl.exits import WrongUse
from durablectl.inputs import named_values
from durablectl.jsontext import print_json
from durablectl.schedules_looking import rule
from durablectl.scheduling import schedules_of
from durablectl.story import said
from scheduler.definition import BadSchedule, Schedule, examine
from scheduler.info import ScheduleInfo
from scheduler.schedules import Schedules

# A field of a definition, and its name where a schedule is looked at.
SAME = (
    *("every", "timezone", "start_date", "end_date", "catchup", "catchup_window", "overlap", "max_active_runs"),
    *("jitter", "deadline", "on_deadline", "depends_on_past", "inputs", "queue", "prio", "tags"),
)


class Order(NamedTuple):
    """What was asked for on the command line."""

    workflow: str
    named: Mapping[str, Any]
    inputs: Sequence[str] | None
    unset: Sequence[str]


def set_schedule(order: Order, *, as_json: bool, database_url: str | None) -> int:
    unset = [_field(name) for name in order.unset]
    given = {**order.named, **({"inputs": named_values(order.inputs)} if order.inputs else {})}

    async def act(client: Durable) -> tuple[bool, ScheduleInfo]:
        schedules = schedules_of(client)
        fields = merged(await _present(schedules, order.workflow), given, unset)
        changed = await schedules.set(order.workflow, _sound(order.workflow, fields), by=getpass.getuser())
        return changed, await schedules.show(order.workflow)

    changed, schedule = with_client(database_url, act)
    if as_json:
        print_json({**schedule.model_dump(mode="json"), "changed": changed})
        return exits.OK
    coming = f"; next {said(schedule.next_tick)}" if schedule.next_tick and not schedule.paused else ""
    word = "scheduled" if changed else "unchanged"
    print(f"{word} {order.workflow} {rule(schedule)} ({schedule.timezone}){coming}{', paused' * schedule.paused}")
    return exits.OK


def merged(present: Mapping[str, Any], given: Mapping[str, Any], unset: Sequence[str]) -> dict[str, Any]:
    """What a schedule is to be: what it is, with what is named changed; a new rule takes the place of the old."""
    fields = {**present, **given}
    for one, other in (("schedule", "every"), ("every", "schedule")):
        if one in given and other not in given:
            fields.pop(other, None)
    if {"catchup", "overlap"} & given.keys() == {"catchup"} and present.get("overlap") in ("queue", "skip"):
        # Where nobody chose it, the overlap follows the catchup.
        fields.pop("overlap", None)
    return {name: value for name, value in fields.items() if name not in unset}


async def _present(schedules: Schedules, workflow: str) -> dict[str, Any]:
    try:
        found = await schedules.show(workflow)
    except WrongState:
        return {}
    fields = {"schedule": found.cron, **{name: getattr(found, name) for name in SAME}}
    return {name: value for name, value in fields.items() if value is not None}


def _sound(workflow: str, fields: Mapping[str, Any]) -> Schedule:
    found = examine(fields)
    for warning in found.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    if found.schedule is None:
        raise BadSchedule(workflow, found.faults)
    return found.schedule


def _field(name: str) -> str:
    plain = {"cron": "schedule", "priority": "prio", "tag": "tags", "input": "inputs"}.get(name, name.replace("-", "_"))
    if plain not in ("schedule", *SAME):
        raise WrongUse(f"--unset {name!r} is no field of a schedule; they are {', '.join(SAME)}")
    return plain
