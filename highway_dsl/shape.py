"""Takes data for a workflow as far as it can be taken, with everything that is wrong on the way."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from highway_dsl.check import check
from highway_dsl.faults import Fault, faults_of

if TYPE_CHECKING:
    from highway_dsl.workflow import Workflow

W = TypeVar("W", bound="Workflow")


def examine(model: type[W], data: Any) -> tuple[W | None, list[Fault]]:
    """The workflow in `data`, and all its faults; with faults, only what they leave of it."""
    try:
        workflow = model.model_validate(data)
    except ValidationError as error:
        faults = [replace(fault, task_id=_owner(data, fault)) for fault in faults_of(error)]
        rest = _rest(model, data, faults)
        return rest, [*faults, *(check(rest) if rest else ())]
    return workflow, check(workflow)


def _owner(data: Any, fault: Fault) -> str | None:
    """The id of the innermost task a fault is in."""
    owner = fault.task_id
    for part in fault.loc:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            break
        if isinstance(data, dict) and isinstance(data.get("task_id"), str):
            owner = data["task_id"]
    return owner


def _rest(model: type[W], data: Any, faults: list[Fault]) -> W | None:
    """What can be checked further: tasks of the wrong shape stay as names that others may refer to."""
    if not isinstance(data, dict) or not isinstance(data.get("tasks", {}), dict):
        return None
    broken = {fault.loc[1] for fault in faults if fault.loc[:1] == ("tasks",) and len(fault.loc) > 1}
    dropped = {fault.loc[0] for fault in faults if fault.loc and fault.loc[0] != "tasks"}
    kept = {key: value for key, value in data.items() if key not in dropped}
    tasks: dict[str, Any] = {}
    for key, body in data.get("tasks", {}).items():
        tasks.update(_outline(key, body) if str(key) in broken else {key: body})
    try:
        return model.model_validate({"name": "unnamed", **kept, "tasks": tasks})
    except ValidationError:
        return None


def _outline(key: Any, body: Any) -> dict[str, Any]:
    """A broken task and those in its body, with only the dependencies that can be read."""
    fields = body if isinstance(body, dict) else {}
    named = fields.get("dependencies") or []
    waits = [name for name in named if isinstance(name, str)] if isinstance(named, list) else []
    outline = {str(key): _stub(str(key), waits)}
    inner = fields.get("loop_body")
    for task in inner if isinstance(inner, list) else ():
        if isinstance(task, dict) and isinstance(task.get("task_id"), str):
            outline.update(_outline(task["task_id"], {**task, "dependencies": []}))
    return outline


def _stub(task_id: str, dependencies: list[str]) -> dict[str, Any]:
    return {"task_id": task_id, "operator_type": "task", "function": "?", "dependencies": dependencies}
