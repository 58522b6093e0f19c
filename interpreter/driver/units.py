"""Branches and items that run as tasks of their own: what they are given, and how they come back.

A unit's task runs the same workflow on its share of the plan and answers with data, so a failure inside it is
the parent's to judge. How it ended is recorded in its parent too: one record, in the one recorded order.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final

from durable import ChildFailed, DurableContext, Group, Handle, Start
from interpreter.driver.failure import seen_by_walker
from interpreter.walker.commands import OpenFork, SettleRun, Spawn, Unit
from interpreter.walker.records import Settled

UNIT: Final = "durable:unit"
INPUTS: Final = "durable:inputs"
# Units a fork is cut into when its slots never wait: enough for every worker, few enough for one parent.
_SHARES: Final = 32
_FIELDS: Final = tuple(field.name for field in fields(Unit))


def decision(command: OpenFork) -> dict[str, Any]:
    """Spawned, in chunks unless a slot may wait or a cap counts slots."""
    alone = command.may_wait or command.cap is not None
    return {"mode": "spawned", "chunk": 1 if alone else max(1, -(-command.count // _SHARES))}


def input_of(unit: Unit, inputs: dict[str, Any]) -> dict[str, Any]:
    """What a unit's task is started with."""
    told = {name: getattr(unit, name) for name in _FIELDS}
    if unit.cause is None:
        del told["cause"]
    return {UNIT: told, INPUTS: inputs}


def unit_in(given: dict[str, Any]) -> Unit | None:
    """The unit a task was started for, if it was."""
    return Unit(**given[UNIT]) if UNIT in given else None


def answer(end: SettleRun) -> dict[str, Any]:
    """How a unit's task ends: with data, whatever it came to."""
    return {
        "outcome": end.outcome,
        "value": end.value,
        "error": end.error,
        "writes": end.writes,
        "voids": end.value["voids"] if end.outcome == "succeeded" else end.voids,
    }


async def spawn(ctx: DurableContext, workflow: str, command: Spawn, inputs: dict[str, Any], queue: str | None) -> Group:
    """Start the tasks of some units with one record; without a queue, they stand where their parent does."""
    given = [input_of(unit, inputs) for unit in command.units]
    options = Start(name=f"{command.path}:spawn", version=ctx.version, queue=queue)
    return await ctx.spawn_many(workflow, given, options=options)


async def outcome(ctx: DurableContext, handle: Handle, unit: Unit) -> Settled:
    """Wait for a unit's task; one that was cancelled or lost failed as a whole."""
    try:
        ended, pos = await ctx.join(handle, name=unit.path)
    except ChildFailed as exc:
        voids = [[ctx.task_id, exc.error["pos"]], [handle.task_id, None]]
        return Settled(unit.path, "failed", error=seen_by_walker(exc), voids=voids)
    inside = ended.pop("voids")
    return Settled(unit.path, **ended, voids=[[ctx.task_id, pos], [handle.task_id, None], *inside] if inside else None)
