"""What is left of a definition whose parts are not all of the right shape, so that the rest can be checked too.

Only what a fault is about is taken out. What an operator cannot do without is filled in with something that no
further check could find wrong, and a task that cannot be read at all stays as a name that others may refer to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import ValidationError

from highway_dsl.faults import Fault, Loc, faults_of
from highway_dsl.graph import walk
from highway_dsl.later import flattened
from highway_dsl.operators import BaseOperator, JoinOperator, ParallelOperator, SwitchOperator, TaskOperator, class_of

if TYPE_CHECKING:
    from highway_dsl.workflow import Workflow

W = TypeVar("W", bound="Workflow")

_GONE: Final = object()
# A value that nobody can know beforehand.
_ANY: Final = "{{inputs}}"
_FILLING: Final[dict[str, Any]] = {
    "function": "?",
    "condition": _ANY,
    "items": _ANY,
    "switch_on": _ANY,
    "event_name": _ANY,
    "wait_for": "PT0S",
    "join_tasks": [],
}
_CALLBACKS: Final = ("on_success_task_id", "on_failure_task_id")
_WAYS: Final = ("if_true", "if_false", "default")


def mended(model: type[W], data: Any, faults: Iterable[Fault]) -> W | None:
    """The workflow in `data` without what the faults of its shape are about, as far as there is one."""
    if not isinstance(data, dict) or not isinstance(data.get("tasks", {}), dict):
        return None
    rest = deepcopy(flattened(data))
    for fault in faults:
        _cut(rest, fault.loc)
    rest = {"name": "unnamed", **_without_gone(rest)}
    rest["tasks"] = _filled_all(rest.get("tasks", {}))
    try:
        return model.model_validate(rest)
    except ValidationError as error:
        return _outlined(model, rest, faults_of(error))


def filled(kind: type[BaseOperator], task_id: str, fields: dict[str, Any]) -> BaseOperator:
    """An operator of the fields that are left, or just a name that others may refer to."""
    needed = {name: value for name, value in _needed(kind).items() if name not in fields}
    try:
        return kind(task_id=task_id, **fields, **needed)
    except ValidationError:
        return TaskOperator(task_id=task_id, function="?")


def hides_names(fault: Fault) -> bool:
    """Whether what a fault took out may have given names to things."""
    return fault.loc[:1] == ("variables",) or fault.loc[-1:] == ("loop_body",)


def connected(workflow: W) -> W:
    """The workflow without references to tasks that it does not have."""
    known = {task.task_id for task, _ in walk(workflow.tasks.values())}
    copy = workflow.model_copy(deep=True)
    for task, _ in walk(copy.tasks.values()):
        task.dependencies = [name for name in task.dependencies if name in known]
        for field in (*_CALLBACKS, *_WAYS):
            if getattr(task, field, None) not in known and hasattr(task, field):
                setattr(task, field, None)
        if isinstance(task, SwitchOperator):
            task.cases = {case: name for case, name in task.cases.items() if name in known}
        if isinstance(task, JoinOperator):
            task.join_tasks = [name for name in task.join_tasks if name in known]
        if isinstance(task, ParallelOperator):
            task.branches = {branch: [n for n in names if n in known] for branch, names in task.branches.items()}
    return copy


def _cut(data: Any, loc: Loc) -> None:
    """Take out the innermost part of a location that is there; a task is left as its outline."""
    trail = [data]
    for part in loc:
        inner = _part(trail[-1], part)
        if inner is _GONE:
            break
        trail.append(inner)
    else:
        key = loc[len(trail) - 2] if len(trail) > 1 else None
        if key is not None:
            trail[-2][key] = _outline(str(key), trail[-1]) if _is_task(loc) else _GONE


def _part(data: Any, part: str | int) -> Any:
    try:
        return data[part]
    except (KeyError, IndexError, TypeError):
        return _GONE


def _is_task(loc: Loc) -> bool:
    return len(loc) == 2 or (len(loc) > 2 and loc[-2] == "loop_body")


def _without_gone(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _without_gone(value) for key, value in data.items() if value is not _GONE}
    if isinstance(data, list):
        return [_without_gone(value) for value in data if value is not _GONE]
    return data


def _filled_all(tasks: dict[Any, Any]) -> dict[str, Any]:
    return {str(key): _filled(str(key), body) for key, body in tasks.items()}


def _filled(key: str, body: Any) -> Any:
    kind = class_of(body) if isinstance(body, dict) else None
    if kind is None:
        return _outline(key, body)
    whole = {"task_id": key, **_needed(kind), **body}
    if isinstance(whole.get("loop_body"), list):
        whole["loop_body"] = [_filled(name, inner) for name, inner in _named(whole["loop_body"])]
    return whole


def _needed(kind: type[BaseOperator]) -> dict[str, Any]:
    fields = kind.model_fields
    return {name: value for name, value in _FILLING.items() if name in fields and fields[name].is_required()}


def _named(body: list[Any]) -> Iterator[tuple[str, Any]]:
    """The tasks of a loop's body that can be told apart."""
    for inner in body:
        if isinstance(inner, dict) and isinstance(inner.get("task_id"), str):
            yield inner["task_id"], inner


def _outline(key: str, body: Any) -> dict[str, Any]:
    """A task that cannot be read: what others may know of it."""
    fields = body if isinstance(body, dict) else {}
    named = fields.get("dependencies") or []
    own = fields["task_id"] if isinstance(fields.get("task_id"), str) else key
    outline = {"task_id": own, "operator_type": "task", "function": "?"}
    outline |= {name: fields[name] for name in ("result_key", *_CALLBACKS) if isinstance(fields.get(name), str)}
    waits = [name for name in named if isinstance(name, str)] if isinstance(named, list) else []
    if not isinstance(fields.get("loop_body"), list):
        return {**outline, "dependencies": waits}
    body = [_filled(name, inner) for name, inner in _named(fields["loop_body"])]
    return {**outline, "operator_type": "foreach", "items": _ANY, "loop_body": body, "dependencies": waits}


def _outlined(model: type[W], rest: dict[str, Any], faults: Iterable[Fault]) -> W | None:
    """The last resort: every task that still has faults as its outline."""
    for key in {str(fault.loc[1]) for fault in faults if fault.loc[:1] == ("tasks",) and len(fault.loc) > 1}:
        rest["tasks"][key] = _outline(key, {**rest["tasks"].get(key, {}), "loop_body": None})
    try:
        return model.model_validate(rest)
    except ValidationError:
        return None
