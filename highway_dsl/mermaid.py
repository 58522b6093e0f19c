"""Draws a workflow as a Mermaid flowchart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

from highway_dsl.graph import Scope, scopes, waits_of
from highway_dsl.operators import ActivityOperator, BaseOperator, ConditionOperator, ParallelOperator, SwitchOperator

if TYPE_CHECKING:
    from highway_dsl.workflow import Workflow

Home: TypeAlias = tuple[str, str]  # a parallel and one of its branches

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
    """The flowchart of a workflow; loops and parallels are drawn as boxes around their bodies and branches."""
    by_loop = {scope.loop: scope for scope in scopes(workflow.tasks)}
    lines = ["flowchart TD", *_Chart(by_loop[None], by_loop).lines("    ")]
    return "\n".join(lines) + "\n"


class _Chart:
    """The part of a flowchart that shows one scope."""

    def __init__(self, scope: Scope, by_loop: dict[str | None, Scope]) -> None:
        self._scope = scope
        self._by_loop = by_loop
        self._homes = _homes(scope)
        self._boxes = {parallel for parallel, _ in self._homes.values()}

    def lines(self, indent: str) -> Iterator[str]:
        yield from self._standing_in(None, indent)
        for task in self._scope.tasks.values():
            yield from (f"{indent}{line}" for line in self._edges(task))

    def _standing_in(self, home: Home | None, indent: str) -> Iterator[str]:
        for task_id, task in self._scope.tasks.items():
            if self._homes.get(task_id) == home:
                yield from self._task(task, indent)

    def _task(self, task: BaseOperator, indent: str) -> Iterator[str]:
        name = _name(task.task_id)
        if task.task_id in self._by_loop:
            inside = _Chart(self._by_loop[task.task_id], self._by_loop).lines(indent + "    ")
        elif isinstance(task, ParallelOperator) and task.task_id in self._boxes:
            inside = self._branches(task, indent + "    ")
        else:
            opening, closing = _SHAPES.get(task.operator_type.value, ("[", "]"))
            yield f"{indent}{name}{opening}{_label(task)}{closing}"
            return
        yield f"{indent}subgraph {name}[{_label(task)}]"
        yield from inside
        yield f"{indent}end"

    def _branches(self, task: ParallelOperator, indent: str) -> Iterator[str]:
        for number, branch in enumerate(task.branches):
            tasks = list(self._standing_in((task.task_id, branch), indent + "    "))
            if tasks:
                yield f"{indent}subgraph b{number}_{task.task_id}[{_quoted(branch)}]"
                yield from tasks
                yield f"{indent}end"

    def _edges(self, task: BaseOperator) -> Iterator[str]:
        scope, task_id = self._scope, task.task_id
        for name in waits_of(task) if task_id not in scope.handlers else ():
            # The way from a router to its target is drawn with its label, and a box shows what is in it.
            hidden = name not in scope.tasks or task_id in scope.targets(scope.tasks[name])
            if not hidden and name not in self._around(task_id):
                yield f"{_name(name)} --> {_name(task_id)}"
        for label, target in _ways(task):
            yield f"{_name(task_id)} -- {_quoted(label)} --> {_name(target)}"
        for label, handler in (("success", task.on_success_task_id), ("failure", task.on_failure_task_id)):
            if handler is not None and handler != task_id:
                yield f"{_name(task_id)} -. {label} .-> {_name(handler)}"

    def _around(self, task_id: str) -> set[str]:
        """The parallels whose boxes a task stands in."""
        found: set[str] = set()
        while task_id in self._homes and self._homes[task_id][0] not in found:
            task_id = self._homes[task_id][0]
            found.add(task_id)
        return found


def _homes(scope: Scope) -> dict[str, Home]:
    """The innermost branch each task of a scope stands in. One in several branches at once stands in none."""
    found: dict[str, list[Home]] = {}
    for name, task in scope.tasks.items():
        for branch, members in task.branches.items() if isinstance(task, ParallelOperator) else ():
            for member in dict.fromkeys(members):
                if member in scope.tasks and member != name:
                    found.setdefault(member, []).append((name, branch))
    whole = {member: homes for member, homes in found.items() if len({name for name, _ in homes}) == len(homes)}
    return {member: max(homes, key=lambda home: len(found.get(home[0], ()))) for member, homes in whole.items()}


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
    if isinstance(task, ActivityOperator) and task.queue is not None:
        kind = f"{kind} on queue {task.queue}"
    return _quoted(task.task_id if kind == "task" else f"{task.task_id} ({kind})")


def _quoted(text: str) -> str:
    escaped = text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
    return f'"{escaped}"'


def _name(task_id: str) -> str:
    # `end` and others are words of Mermaid's own.
    return f"t_{task_id}"
