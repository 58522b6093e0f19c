"""What is valid and yet probably not what its author meant."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

from highway_dsl.check import Located, operators
from highway_dsl.faults import Fault
from highway_dsl.graph import Scope, scopes, waits_of
from highway_dsl.operators import WaitOperator
from highway_dsl.scheduling import schedule_doubts

if TYPE_CHECKING:
    from highway_dsl.workflow import Workflow


def lint(workflow: Workflow) -> list[Fault]:
    """The doubtful places of a valid workflow."""
    located = list(operators(workflow))
    found = [*_empty(workflow), *_start(workflow), *_handled(workflow), *schedule_doubts(workflow)]
    found += [fault for each in located for fault in _task(each)]
    where = {task.task_id: loc for loc, task in reversed(located)}
    for scope in scopes(workflow.tasks):
        for kind, task_id, message, hint in _in_scope(scope, set(where)):
            found.append(Fault(kind, message, where[task_id], task_id, hint))
    return found


def _empty(workflow: Workflow) -> Iterator[Fault]:
    if not workflow.tasks:
        yield Fault("no_tasks", "has no tasks: a run of it ends at once", ("tasks",))


def _start(workflow: Workflow) -> Iterator[Fault]:
    start = workflow.tasks.get(workflow.start_task or "")
    if start is not None and start.dependencies:
        message = f"start_task '{start.task_id}' has dependencies: others start before it"
        yield Fault("start_not_first", message, ("start_task",))


def _handled(workflow: Workflow) -> Iterator[Fault]:
    if workflow.accept_handled and not any(
        task.on_failure_task_id not in (None, task.task_id) for _, task in operators(workflow)
    ):
        message = "accept_handled says nothing: no task has an on_failure_task_id"
        yield Fault("no_handler", message, ("accept_handled",))


def _task(each: Located) -> Iterator[Fault]:
    loc, task = each
    for field in ("on_success_task_id", "on_failure_task_id"):
        if getattr(task, field) == task.task_id:
            hint = "call on_success and on_failure right after the task they belong to"
            yield Fault("own_callback", f"{field} names the task itself", (*loc, field), task.task_id, hint)
    if isinstance(task, WaitOperator) and isinstance(task.wait_for, timedelta) and task.wait_for < timedelta(0):
        yield Fault("no_wait", "waits for a time that is over", (*loc, "wait_for"), task.task_id)


def _in_scope(scope: Scope, known: set[str]) -> Iterator[tuple[str, str, str, str | None]]:
    for task_id, task in scope.tasks.items():
        for name in task.dependencies:
            if name in scope.handlers and task_id not in scope.handlers:
                hint = f"if it should follow only when '{name}' ran, call it back from '{name}'"
                message = f"follows '{name}', a handler: it also runs when '{name}' does not"
                yield "after_handler", task_id, message, hint
            elif name in known and name not in scope.tasks and scope.loop is None:
                message = f"depends on '{name}', which is inside a loop: the dependency is ignored"
                yield "into_loop", task_id, message, "depend on the loop"
        yield from _cases(scope, task_id)


def _cases(scope: Scope, router: str) -> Iterator[tuple[str, str, str, str | None]]:
    targets = set(scope.targets(scope.tasks[router]))
    inside = set(scope.members.get(router, ()))
    for target in sorted(targets):
        for task_id in scope.dependants[target]:
            named = targets.intersection(waits_of(scope.tasks[task_id]))
            if task_id in targets:
                yield "chained_cases", task_id, f"waits for '{target}', another way out of '{router}'", None
            elif task_id not in inside and named != targets and target == min(named, default=target):
                hint = f"depend on '{router}', which ends when the chosen way has"
                message = f"runs only after {_list(named)}, not after every way out of '{router}'"
                yield "one_case", task_id, message, hint


def _list(names: set[str]) -> str:
    return ", ".join(f"'{name}'" for name in sorted(names))
