"""What makes a definition invalid beyond the shape of its fields.

Every check looks at the whole workflow and returns all it finds; `check` puts them together. What is only
unwise is in `lint`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeAlias

from highway_dsl.durations import time_of_day
from highway_dsl.faults import Fault, Loc
from highway_dsl.graph import Chain, Node, Scope, circles, enclosing_loops, scopes
from highway_dsl.operators import (
    BaseOperator,
    ChildWorkflowOperator,
    ForEachOperator,
    JoinOperator,
    ParallelOperator,
    SwitchOperator,
    TaskOperator,
    WaitOperator,
    WhileOperator,
)
from highway_dsl.scheduling import schedule_faults
from highway_dsl.values import value_fault

if TYPE_CHECKING:
    from highway_dsl.workflow import Workflow

Located: TypeAlias = tuple[Loc, BaseOperator]

_TASK_ID = re.compile(r"\w+")


def check(workflow: Workflow) -> list[Fault]:
    """Everything wrong with a workflow whose fields have the right shape."""
    located = list(operators(workflow))
    return [
        *_workflow(workflow),
        *(fault for loc, task in located for fault in _operator(loc, task)),
        *_ids(workflow, located),
        *_references(workflow, located),
        *_circles(workflow, located),
    ]


def operators(workflow: Workflow) -> Iterator[Located]:
    """Every operator once, where it is first written down."""
    seen: set[int] = set()
    todo: list[Located] = [(("tasks", key), task) for key, task in workflow.tasks.items()]
    for loc, task in todo:
        if id(task) not in seen:
            seen.add(id(task))
            yield loc, task
            if isinstance(task, ForEachOperator | WhileOperator):
                todo += [((*loc, "loop_body", index), inner) for index, inner in enumerate(task.loop_body)]


def _workflow(workflow: Workflow) -> Iterator[Fault]:
    if not workflow.name.isidentifier():
        hint = "letters, digits and underscores, not starting with a digit"
        yield Fault("name", f"'{workflow.name}' is no name for a workflow", ("name",), hint=hint)
    yield from schedule_faults(workflow)
    bad_value = value_fault(workflow.variables)
    if bad_value:
        yield Fault("value", bad_value, ("variables",))
    start = workflow.start_task
    if start is not None and start not in workflow.tasks:
        yield _unknown(("start_task",), None, "start_task", start, list(workflow.tasks))


def _operator(loc: Loc, task: BaseOperator) -> Iterator[Fault]:
    for name, wrong in _field_faults(task):
        yield Fault("field", wrong, (*loc, name), task.task_id, value=getattr(task, name))
    for name in ("args", "kwargs", "payload", "metadata", "result", "children"):
        wrong_value = value_fault(getattr(task, name, None))
        if wrong_value:
            yield Fault("value", f"{name}: {wrong_value}", (*loc, name), task.task_id)


def _field_faults(task: BaseOperator) -> Iterator[tuple[str, str]]:
    if isinstance(task, TaskOperator) and not task.function:
        yield "function", "names no function"
    if isinstance(task, ParallelOperator) and not task.branches:
        yield "branches", "has no branches"
    if isinstance(task, SwitchOperator) and not task.cases:
        yield "cases", "has no cases"
    if isinstance(task, JoinOperator) and not task.join_tasks:
        yield "join_tasks", "joins no tasks"
    if isinstance(task, ForEachOperator) and task.max_parallel is not None and not task.parallel:
        yield "max_parallel", "max_parallel says nothing without parallel: true"
    if isinstance(task, WaitOperator) and isinstance(task.wait_for, str) and not time_of_day(task.wait_for):
        yield "wait_for", f"'{task.wait_for}' is neither a duration (PT1H) nor a datetime nor time:HH:MM:SS"
    if isinstance(task, ChildWorkflowOperator):
        yield from _children_faults(task.children)


def _children_faults(children: dict[str, dict[str, Any]]) -> Iterator[tuple[str, str]]:
    if not children:
        yield "children", "starts no workflow"
    for name, child in children.items():
        if not isinstance(child.get("workflow_name"), str):
            yield "children", f"child '{name}' has no workflow_name"
        if not isinstance(child.get("inputs", {}), dict):
            yield "children", f"the inputs of child '{name}' are no mapping"


def _ids(workflow: Workflow, located: list[Located]) -> Iterator[Fault]:
    for key, keyed in workflow.tasks.items():
        if key != keyed.task_id:
            yield Fault("task_id", f"stands under the key '{key}'", ("tasks", key), keyed.task_id)
    first: dict[str, BaseOperator] = {}
    for loc, task in located:
        if not isinstance(task.task_id, str) or not _TASK_ID.fullmatch(task.task_id):
            hint = "letters, digits and underscores"
            yield Fault("task_id", f"'{task.task_id}' is no task id", (*loc, "task_id"), task.task_id, hint)
        if first.setdefault(task.task_id, task) != task:
            message = "is declared twice, and not the same both times"
            yield Fault("duplicate_id", message, loc, task.task_id)
    yield from _shared_bodies(workflow)


def _shared_bodies(workflow: Workflow) -> Iterator[Fault]:
    for task_id, chains in enclosing_loops(workflow.tasks.values()).items():
        others = [chain for chain in chains if not _is_part(chain, chains[0])]
        if others:
            message = f"is in the bodies of both '{chains[0][-1]}' and '{others[0][-1]}'"
            yield Fault("duplicate_id", message, ("tasks", chains[0][0]), task_id)


def _is_part(chain: Chain, whole: Chain) -> bool:
    rest = iter(whole)
    return all(loop in rest for loop in chain)


def _references(workflow: Workflow, located: list[Located]) -> Iterator[Fault]:
    known = {task.task_id: None for _, task in located}
    names = [name for name in known if isinstance(name, str)]
    for loc, task in located:
        for path, name in references(task):
            if name not in known:
                yield _unknown((*loc, *path), task.task_id, str(path[0]), name, names)


def references(task: BaseOperator) -> Iterator[tuple[Loc, str]]:
    """Every id a task names, with the field that names it."""
    for index, name in enumerate(task.dependencies):
        yield ("dependencies", index), name
    for field in ("on_success_task_id", "on_failure_task_id", "if_true", "if_false"):
        if getattr(task, field, None) is not None:
            yield (field,), getattr(task, field)
    if isinstance(task, SwitchOperator):
        yield from ((("cases", case), name) for case, name in task.cases.items())
        yield from [(("default",), task.default)] if task.default is not None else []
    if isinstance(task, JoinOperator):
        yield from ((("join_tasks", index), name) for index, name in enumerate(task.join_tasks))
    if isinstance(task, ParallelOperator):
        for branch, names in task.branches.items():
            yield from ((("branches", branch, index), name) for index, name in enumerate(names))


def _unknown(loc: Loc, task_id: str | None, field: str, name: Any, known: list[str]) -> Fault:
    # Comparing texts is slow, and a document of thousands of tasks may have as many unknown names.
    near = get_close_matches(str(name), known, n=1) if len(known) <= 500 else []
    hint = f"did you mean '{near[0]}'?" if near else None
    return Fault("unknown_task", f"{field}: there is no task '{name}'", loc, task_id, hint, value=name)


def _circles(workflow: Workflow, located: list[Located]) -> Iterator[Fault]:
    where = {task.task_id: loc for loc, task in reversed(located)}
    for scope in scopes(workflow.tasks):
        for circle in circles(scope):
            ids = _in_order(dict.fromkeys(task_id for task_id, _ in circle), scope)
            message = f"waits for itself: {' -> '.join([*ids, ids[0]])}"
            yield Fault("circle", message, where[ids[0]], ids[0], _way_out(scope, circle))


def _in_order(circle: Iterable[str], scope: Scope) -> list[str]:
    """A circle from the task of it that is declared first."""
    ids = list(circle)
    start = ids.index(min(ids, key=scope.declared.__getitem__))
    return ids[start:] + ids[:start]


def _way_out(scope: Scope, circle: list[Node]) -> str:
    ids = {task_id for task_id, _ in circle}
    for router in sorted(ids):
        targets = scope.targets(scope.tasks[router])
        for inside in sorted(ids.intersection(scope.members.get(router, ())) if targets else ()):
            return _routers_way_out(router, inside, inside in targets)
    return "remove one of these dependencies"


def _routers_way_out(router: str, inside: str, chosen: bool) -> str:
    if chosen:
        return (
            f"'{router}' chooses whether '{inside}' runs and must not wait for it: declare '{inside}' "
            f"after it, or give '{router}' dependencies of its own"
        )
    return (
        f"'{inside}' lists '{router}' and a task that '{router}' leads to, and so is part of '{router}': "
        f"let it list only one of them"
    )
