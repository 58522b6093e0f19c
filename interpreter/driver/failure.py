"""Errors between the two worlds: what the journal holds of a failure, and what the walker and its handlers see."""

from __future__ import annotations

from typing import Any

from durable import ChildFailed, DurableContext, EventTimeout, StepFailed
from durable.failures import describe
from interpreter.walker.commands import SettleRun
from interpreter.walker.records import Settled


def seen_by_walker(exc: Exception) -> dict[str, Any]:
    """A failure as handlers and retry rules match it. Tracebacks stay in the journal: they would weigh on
    every snapshot."""
    if isinstance(exc, EventTimeout):
        return {"type": "EventTimeout", "message": str(exc), "mro": ["EventTimeout", "TimeoutError", "Exception"]}
    error = exc.error if isinstance(exc, StepFailed) else describe(exc)
    known: dict[str, Any] = {key: error[key] for key in ("step", "attempt", "pos") if key in error}
    if isinstance(exc, ChildFailed):
        known["child"] = exc.child
    return {"type": error["type"], "message": error["message"], "mro": _names(error), **known}


def _names(error: dict[str, Any]) -> list[str]:
    bases = [name for name in error.get("types", ()) if name != "durable.lanes.AttemptTimeout"]
    if error["type"] == "StepTimeout":
        return ["StepTimeout", "TimeoutError", "Exception"]
    return bases or [error["type"], "Exception"]


def voids_of(ctx: DurableContext, exc: Exception) -> list[list[Any]]:
    """The records, each [task, position], that a retry of the run takes back for this failure; runs that failed with it
    are named without one: they know their own."""
    pos = exc.error.get("pos") if isinstance(exc, StepFailed) else getattr(exc, "pos", None)
    own = [[ctx.task_id, pos]] if pos is not None else []
    if not isinstance(exc, ChildFailed):
        return own
    return [*own, *([child, None] for child in exc.error.get("children", [exc.child]))]


def failed(ctx: DurableContext, path: str, exc: Exception) -> Settled:
    """A recorded failure as the walker takes it, with what a retry of the run takes back."""
    return Settled(path, "failed", error=seen_by_walker(exc), voids=voids_of(ctx, exc))


def of_run(end: SettleRun) -> StepFailed:
    """What a run that failed raises: the first failure in plan order, and which ones had a handler.

    It carries the positions of all records that led to this end, so that a retry of the run takes them back.
    """
    error = dict(end.error or {"type": "Exception", "message": "the run failed"})
    error["types"] = error.pop("mro", [])
    error.setdefault("step", error.get("node"))
    if end.handled:
        error["handled"] = end.handled
    if end.value is not None:
        error["value"] = end.value
    if end.voids:
        error["voids"] = _by_task(end.voids)
    return StepFailed(error)


def _by_task(voids: list[list[Any]]) -> dict[str, list[int]]:
    found: dict[str, set[int]] = {}
    for task, pos in voids:
        found.setdefault(task, set()).update([] if pos is None else [pos])
    return {task: sorted(positions) for task, positions in found.items()}
