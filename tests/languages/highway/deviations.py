"""Where our builder and 1.1.0's differ on purpose: the one place that knows.

`neutral` rewrites a program so that ours does what 1.1.0 does with the original; `comparable` brings a
result of 1.1.0 into our form. Everything they do not mention must be equal.
"""

from __future__ import annotations

import json
from typing import Any


def neutral(program: dict[str, Any]) -> dict[str, Any]:
    """The program for ours that asks for what 1.1.0 makes of `program`."""
    callbacks: list[list[str]] = []
    return {**program, "steps": _steps(program["steps"], callbacks), "callbacks": callbacks}


def _steps(steps: list[Any], callbacks: list[list[str]]) -> list[Any]:
    return [_step(step, callbacks) for step in steps]


def _step(step: dict[str, Any], callbacks: list[list[str]]) -> dict[str, Any]:
    fields = dict(step["fields"])
    if not fields.get("dependencies", True):
        del fields["dependencies"]  # ours: `[]` means none; 1.1.0: not given
    after = []
    for method, given in step["after"]:
        if method in ("on_success", "on_failure"):
            # Ours does not chain a task that is already named as a handler; named later, it is chained.
            callbacks.append([step["id"], f"{method}_task_id", next(iter(given.values()))])
        elif step["do"] == "task":
            after.append([method, given])  # 1.1.0: no effect on other operators; ours: timeout() has
    inner = {name: _inner(body, callbacks) for name, body in step.get("inner", {}).items()}
    return {**step, "fields": fields, "after": after, "inner": inner}


def _inner(body: Any, callbacks: list[list[str]]) -> Any:
    if isinstance(body, dict):
        return {name: _steps(steps, callbacks) for name, steps in body.items()}
    return _steps(body, callbacks)


def comparable(result: dict[str, Any]) -> dict[str, Any]:
    """A result of 1.1.0 as ours would give it: `to_json` leaves out fields that are null."""
    return {**result, "json": json.dumps(_without_null_fields(json.loads(result["json"])))}


def _without_null_fields(workflow: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in workflow.items() if value is not None}
    return {**kept, "tasks": {key: _task(task) for key, task in kept["tasks"].items()}}


def _task(task: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in task.items() if value is not None}
    if "loop_body" in kept:
        kept["loop_body"] = [_task(inner) for inner in kept["loop_body"]]
    return kept
