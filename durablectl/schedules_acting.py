"""`durable schedules remove|pause|unpause|trigger|skip-next`: what a person does to a schedule."""

from __future__ import annotations

import getpass
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from durable import Durable
from durable.errors import WrongState
from durablectl import exits
from durablectl.database import with_client
from durablectl.inputs import moment, named_values
from durablectl.jsontext import print_json
from durablectl.scheduling import schedules_of
from durablectl.story import said
from scheduler.schedules import Schedules

T = TypeVar("T")


def remove_schedule(workflow: str, database_url: str | None) -> int:
    if not _do(database_url, lambda schedules: schedules.remove(workflow, by=getpass.getuser())):
        raise WrongState(f"{workflow!r} has no schedule")
    print(f"{workflow} runs no longer by itself; its runs and its history stay")
    return exits.OK


def pause_schedule(workflow: str, note: str | None, *, hold: bool, database_url: str | None) -> int:
    by = getpass.getuser()
    changed = _do(database_url, lambda schedules: schedules.pause(workflow, by=by, note=note, hold=hold))
    held = "; runs in line for a slot wait" if hold else ""
    print(f"paused {workflow}{held}" if changed else f"{workflow} was paused before{held}")
    return exits.OK


def unpause_schedule(workflow: str, note: str | None, database_url: str | None) -> int:
    async def act(client: Durable) -> tuple[bool, str]:
        schedules = schedules_of(client)
        changed = await schedules.unpause(workflow, by=getpass.getuser(), note=note)
        found = await schedules.show(workflow)
        owed = f", {found.owed:,} ticks are owed" if found.owed else ""
        return changed, f"; next {said(found.next_tick)}{owed}"

    changed, coming = with_client(database_url, act)
    print(f"{workflow} {'goes on' if changed else 'was not paused'}{coming}")
    return exits.OK


def trigger_run(
    workflow: str, given: Sequence[str], at: str | None, *, rerun: bool, as_json: bool, database_url: str | None
) -> int:
    inputs, logical = named_values(given), moment(at, "--at") if at else None
    by = getpass.getuser()
    run_id = _do(
        database_url, lambda schedules: schedules.trigger(workflow, inputs=inputs, at=logical, rerun=rerun, by=by)
    )
    if as_json:
        print_json({"run_id": run_id, "workflow": workflow, "logical_date": logical and logical.isoformat()})
    else:
        print(run_id)
    return exits.OK


def skip_next(workflow: str, *, as_json: bool, database_url: str | None) -> int:
    tick = _do(database_url, lambda schedules: schedules.skip_next(workflow, by=getpass.getuser()))
    if as_json:
        print_json({"workflow": workflow, "skipped": tick and tick.isoformat()})
    elif tick is None:
        print(f"{workflow} has no tick ahead that could be skipped")
    else:
        print(f"{workflow} leaves out {said(tick)}")
    return exits.OK


def _do(database_url: str | None, act: Callable[[Schedules], Awaitable[T]]) -> T:
    async def session(client: Durable) -> T:
        return await act(schedules_of(client))

    return with_client(database_url, session)
