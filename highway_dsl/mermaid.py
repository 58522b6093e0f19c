"""Draws a workflow as a Mermaid flowchart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from highway_dsl.graph import Scope, scopes, waits_of
from highway_dsl.operators import BaseOperator, ConditionOperator, SwitchOperator

if TYPE_CHECKING:
    from highway_dsl.workflow import Workflow

_SHAPES = {
    "condition": ("{", "}"),
    "switch": ("{", "}"),
    "parallel": ("[[", "]]"),
    "join": ("[[", "]]"),
    "wait": ("([", "])"),
    "wait_for_event": ("([", "])"),
    "emit_event": (">", "]"),
    "terminate": ("((", "))"),
    "child_workflow": ("[[", "]]"),
}


def mermaid(workflow: Workflow) -> str:
    """The flowchart of a workflow; loops are drawn as boxes around their bodies."""
    by_loop = {scope.loop: scope for scope in scopes(workflow.tasks)}
    lines = ["flowchart TD", *_scope(by_loop[None], by_loop, "    ")]
    return "\n".join(lines) + "\n"


def _scope(scope: Scope, by_loop: dict[str | None, Scope], indent: str) -> Iterator[str]:
    for task_id, task in scope.tasks.items():
        if task_id in by_loop:
            yield f"{indent}subgraph {_name(task_id)}[{_label(task)}]"
            yield from _scope(by_loop[task_id], by_loop, indent + "    ")
            yield f"{indent}end"
        else:
            opening, closing = _SHAPES.get(task.operator_type.value, ("[", "]"))
            yield f"{indent}{_name(task_id)}{opening}{_label(task)}{closing}"
    for task in scope.tasks.values():
        yield from (f"{indent}{line}" for line in _edges(scope, task))


def _edges(scope: Scope, task: BaseOperator) -> Iterator[str]:
    task_id = task.task_id
    for name in waits_of(task) if task_id not in scope.handlers else ():
        # The way from a router to its target is drawn with its label instead.
        if name in scope.tasks and task_id not in scope.targets(scope.tasks[name]):
            yield f"{_name(name)} --> {_name(task_id)}"
    for label, target in _ways(task):
        yield f"{_name(task_id)} -- {_quoted(label)} --> {_name(target)}"
    for label, handler in (("success", task.on_success_task_id), ("failure", task.on_failure_task_id)):
        if handler is not None and handler != task_id:
            yield f"{_name(task_id)} -. {label} .-> {_name(handler)}"


def _ways(task: BaseOperator) -> Iterator[tuple[str, str]]:
    if isinstance(task, ConditionOperator):
        ways = {"true": task.if_true, "false": task.if_false}
    elif isinstance(task, SwitchOperator):
        ways = {**task.cases, "otherwise": task.default}
    else:
        return
    yield from ((label, target) for label, target in ways.items() if target is not None)


def _label(task: BaseOperator) -> str:
    kind = task.operator_type.value
    return _quoted(task.task_id if kind == "task" else f"{task.task_id} ({kind})")


def _quoted(text: str) -> str:
    escaped = text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
    return f'"{escaped}"'


def _name(task_id: str) -> str:
    # `end` and others are words of Mermaid's own.
    return f"t_{task_id}"
