"""Errors between the two worlds: what the journal holds of a failure, and what the walker and its handlers see."""

from __future__ import annotations

from typing import Any

from durable import ChildFailed, EventTimeout, StepFailed
from durable.failures import describe
from interpreter.walker.commands import SettleRun


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


def of_run(end: SettleRun) -> StepFailed:
    """What a run that failed raises: the first failure in plan order, and which ones had a handler.

    It carries the position of the record that failed, so that a retry of the run begins there.
    """
    error = dict(end.error or {"type": "Exception", "message": "the run failed"})
    error["types"] = error.pop("mro", [])
    error.setdefault("step", error.get("node"))
    if end.handled:
        error["handled"] = end.handled
    if end.value is not None:
        error["value"] = end.value
    return StepFailed(error)
