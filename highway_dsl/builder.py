"""The fluent builder (section 9).

A task that names no dependencies follows the one added before it; `dependencies=[]` says it follows none.
Branches and bodies are built by sub-builders and copied into their parent, as the specification's
documents have them. Faults are collected on the way and raised together by `build`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import Any, Literal, NoReturn, Self, TypeAlias

from highway_dsl.faults import Fault, Position
from highway_dsl.graph import callbacks_of
from highway_dsl.keeping import keeping, made, settled
from highway_dsl.operators import (
    ActivityOperator,
    BaseOperator,
    ChildWorkflowOperator,
    ConditionOperator,
    EmitEventOperator,
    ForEachOperator,
    JoinMode,
    JoinOperator,
    ParallelOperator,
    SwitchOperator,
    TaskOperator,
    TerminateOperator,
    WaitForEventOperator,
    WaitOperator,
    WhileOperator,
)
from highway_dsl.origin import caller
from highway_dsl.policies import RetryPolicy, TimeoutPolicy
from highway_dsl.workflow import Workflow

Branch: TypeAlias = Callable[["WorkflowBuilder"], "WorkflowBuilder | None"]

_REFUSED = {
    "reflexive": "call generator and verifier as tasks of a while_loop",
    "multi_choice": "use one condition for each branch",
    "parallel_with_join": "a parallel ends when all its branches have; add a join for other modes",
    "precondition": "use a condition before the task",
    "postcondition": "use a condition after the task",
}


class HighwayWarning(UserWarning):
    """A call on a builder that has no effect, or not the one it seems to have."""


class WorkflowBuilder:
    """Builds a workflow call by call; every method but `build` returns the builder."""

    def __init__(
        self,
        name: str,
        existing_workflow: Workflow | None = None,
        parent: WorkflowBuilder | None = None,
        *,
        version: str | None = None,
        deadline_seconds: int | None = None,
        deadline_action: Literal["fail", "cancel"] = "fail",
    ) -> None:
        if existing_workflow is not None and not isinstance(existing_workflow, Workflow):
            raise TypeError(f"existing_workflow is a Workflow, not {existing_workflow!r}; say version=...")
        self.workflow = existing_workflow if existing_workflow is not None else Workflow(name=name)
        self.parent = parent
        self._current_task: str | None = None
        self._handlers: set[str] = parent._handlers if parent is not None else set()
        self.workflow.origin.workflow = self.workflow.origin.workflow or caller()
        if version is not None:
            self.workflow.version = version
        if deadline_seconds is not None:
            self.workflow.deadline_seconds = deadline_seconds
            self.workflow.deadline_action = deadline_action

    def __getattr__(self, name: str) -> NoReturn:
        if name in _REFUSED:
            raise AttributeError(f"{name}() of highway-dsl 2.x is not supported: {_REFUSED[name]}")
        raise AttributeError(f"a WorkflowBuilder has no {name}()")

    # Tasks

    def task(self, task_id: str, function: str, **kwargs: Any) -> Self:
        """Add a task that calls `function`."""
        return self._add(TaskOperator, task_id, kwargs, function=function)

    def activity(self, task_id: str, function: str, **kwargs: Any) -> Self:
        """Add a task that may have a `queue` of its own."""
        return self._add(ActivityOperator, task_id, kwargs, function=function)

    def wait(self, task_id: str, wait_for: timedelta | datetime | str, **kwargs: Any) -> Self:
        """Add a wait for a length of time, or until one."""
        return self._add(WaitOperator, task_id, kwargs, wait_for=wait_for)

    def emit_event(self, task_id: str, event_name: str, **kwargs: Any) -> Self:
        """Add the emission of an event."""
        return self._add(EmitEventOperator, task_id, kwargs, event_name=event_name)

    def wait_for_event(self, task_id: str, event_name: str, timeout_seconds: int | None = None, **kwargs: Any) -> Self:
        """Add a wait for an event."""
        return self._add(WaitForEventOperator, task_id, kwargs, event_name=event_name, timeout_seconds=timeout_seconds)

    def switch(
        self, task_id: str, switch_on: str, cases: dict[str, str], default: str | None = None, **kwargs: Any
    ) -> Self:
        """Add a choice among tasks by a value's text; the tasks are added on their own."""
        return self._add(SwitchOperator, task_id, kwargs, switch_on=switch_on, cases=cases, default=default)

    def join(self, task_id: str, join_tasks: list[str], join_mode: JoinMode = JoinMode.ALL_OF, **kwargs: Any) -> Self:
        """Add a wait for tasks by a mode; it follows those tasks, and not the one added before it."""
        if not kwargs.keys() & {"dependencies", "depends_on"}:
            kwargs["dependencies"] = []
        return self._add(JoinOperator, task_id, kwargs, join_tasks=list(join_tasks), join_mode=join_mode)

    def terminate(
        self,
        task_id: str,
        status: str = "completed",
        result: dict[str, Any] | None = None,
        reason: str = "",
        **kwargs: Any,
    ) -> Self:
        """Add the end of the run."""
        return self._add(TerminateOperator, task_id, kwargs, status=status, result=result or {}, reason=reason)

    def child_workflow(
        self,
        task_id: str,
        workflow_name: str,
        inputs: dict[str, Any] | None = None,
        result_key: str | None = None,
        timeout_seconds: int | None = None,
        **kwargs: Any,
    ) -> Self:
        """Add a run of another workflow."""
        child = {"workflow_name": workflow_name, "inputs": inputs or {}}
        return self.child_workflows(task_id, {task_id: child}, result_key, timeout_seconds, **kwargs)

    def child_workflows(
        self,
        task_id: str,
        children: dict[str, dict[str, Any]],
        result_key: str | None = None,
        timeout_seconds: int | None = None,
        **kwargs: Any,
    ) -> Self:
        """Add runs of other workflows, all at once."""
        own = {"children": children, "result_key": result_key, "timeout_seconds": timeout_seconds}
        return self._add(ChildWorkflowOperator, task_id, kwargs, **own)

    # Control flow

    def condition(self, task_id: str, condition: str, if_true: Branch, if_false: Branch, **kwargs: Any) -> Self:
        """Add a choice between two branches, either of which may be empty."""
        true = self._built(f"{task_id}_true", if_true)
        false = self._built(f"{task_id}_false", if_false)
        first = {"if_true": _first(true), "if_false": _first(false)}
        self._add(ConditionOperator, task_id, kwargs, condition=condition, **first)
        for branch in (true, false):
            _warn_of_outsiders(task_id, branch)
            for task in branch.workflow.tasks.values():
                _depend(task, task_id)
            self._take(branch)
        return self

    def parallel(self, task_id: str, branches: Mapping[str, Branch], **kwargs: Any) -> Self:
        """Add branches that run at the same time."""
        built = {name: self._built(f"{task_id}_{name}", branch) for name, branch in branches.items()}
        ids = {name: list(branch.workflow.tasks) for name, branch in built.items()}
        self._add(ParallelOperator, task_id, kwargs, branches=ids)
        for branch in built.values():
            for task in branch.workflow.tasks.values():
                if not task.is_internal_loop_task:
                    _depend(task, task_id)
            self._take(branch)
        return self

    def foreach(self, task_id: str, items: str, loop_body: Branch, **kwargs: Any) -> Self:
        """Add a loop over items."""
        return self._loop(ForEachOperator, task_id, loop_body, kwargs, items=items)

    def while_loop(self, task_id: str, condition: str, loop_body: Branch, **kwargs: Any) -> Self:
        """Add a loop that goes on while a condition holds."""
        return self._loop(WhileOperator, task_id, loop_body, kwargs, condition=condition)

    def _loop(self, kind: type[BaseOperator], task_id: str, body: Branch, fields: dict[str, Any], **own: Any) -> Self:
        built = self._built(f"{task_id}_loop", body)
        tasks = list(built.workflow.tasks.values())
        for task in tasks:
            task.is_internal_loop_task = True
        for task in tasks[:1]:
            _depend(task, task_id)
        self._add(kind, task_id, fields, loop_body=tasks, **own)
        self._take(built)
        return self

    # Policies and callbacks of the current task

    def retry(
        self,
        max_retries: int = 3,
        delay: timedelta = timedelta(seconds=5),
        backoff_factor: float = 2.0,
    ) -> Self:
        """Retry the current task, which must be one that calls a function (section 9.6)."""
        task = self._current("retry")
        policy = RetryPolicy(max_retries=max_retries, delay=delay, backoff_factor=backoff_factor)
        if isinstance(task, TaskOperator):
            task.retry_policy = policy
        elif task is not None:
            _warn(f"retry() has no effect on '{task.task_id}': it calls no function; say retry_policy=...")
        return self

    def timeout(self, timeout: timedelta, kill_on_timeout: bool = True) -> Self:
        """Limit the time of the current task."""
        task = self._current("timeout")
        policy = TimeoutPolicy(timeout=timeout, kill_on_timeout=kill_on_timeout)
        if task is not None:
            task.timeout_policy = policy
        return self

    def on_success(self, success_task_id: str) -> Self:
        """Call a task back when the current one succeeds."""
        task = self._current("on_success")
        if task is not None:
            task.on_success_task_id = success_task_id
            self._handlers.update(callbacks_of(task))
        return self

    def on_failure(self, failure_task_id: str) -> Self:
        """Call a task back when the current one fails."""
        task = self._current("on_failure")
        if task is not None:
            task.on_failure_task_id = failure_task_id
            self._handlers.update(callbacks_of(task))
        return self

    # The workflow itself; in a branch or body these mean the workflow it is part of

    def set_description(self, description: str) -> Self:
        """Describe the workflow."""
        self._whole.description = description
        return self

    def set_version(self, version: str) -> Self:
        """Give the workflow's version."""
        self._whole.version = version
        return self

    def set_variables(self, variables: dict[str, Any]) -> Self:
        """Merge variables into the workflow's."""
        self._whole.set_variables(variables)
        return self

    def set_schedule(self, cron: str) -> Self:
        """Run by a cron expression."""
        self._whole.set_schedule(cron)
        return self

    def set_start_date(self, start_date: datetime) -> Self:
        """Run by the schedule from then on."""
        self._whole.set_start_date(start_date)
        return self

    def set_catchup(self, enabled: bool | Literal["latest"]) -> Self:
        """Whether missed runs are made up for."""
        self._whole.set_catchup(enabled)
        return self

    def set_paused(self, paused: bool) -> Self:
        """Whether the schedule is suspended at first."""
        self._whole.set_paused(paused)
        return self

    def add_tags(self, *tags: str) -> Self:
        """Append tags."""
        self._whole.add_tags(*tags)
        return self

    def set_max_active_runs(self, count: int, *, excludes_waiting: bool = False) -> Self:
        """The most runs at once; with `excludes_waiting` those that wait or sleep do not count."""
        self._whole.set_max_active_runs(count)
        self._whole.max_active_excludes_waiting = excludes_waiting
        return self

    def set_every(self, every: timedelta) -> Self:
        """Run at a fixed distance instead of by a cron expression."""
        self._whole.every = every
        return self

    def set_timezone(self, timezone: str) -> Self:
        """Whose clock the cron expression means, such as Europe/Berlin."""
        self._whole.timezone = timezone
        return self

    def set_end_date(self, end_date: datetime) -> Self:
        """Run by the schedule until then."""
        self._whole.end_date = end_date
        return self

    def set_catchup_window(self, window: timedelta) -> Self:
        """How far back missed runs are made up for."""
        self._whole.catchup_window = window
        return self

    def set_overlap(self, overlap: Literal["queue", "skip", "cancel_old", "allow"]) -> Self:
        """What becomes of a run that is due while max_active_runs are unfinished."""
        self._whole.overlap = overlap
        return self

    def set_jitter(self, jitter: timedelta) -> Self:
        """Spread starts over this long after their time."""
        self._whole.jitter = jitter
        return self

    def set_depends_on_past(self, depends: bool = True) -> Self:
        """Whether a run waits for the success of the one before it."""
        self._whole.depends_on_past = depends
        return self

    def set_deadline(self, deadline: timedelta, on_deadline: str | None = None) -> Self:
        """Raise an alert when a run has not ended so long after its time, and start `on_deadline` with it."""
        self._whole.deadline = deadline
        self._whole.on_deadline = on_deadline
        return self

    def set_fail_fast(self, enabled: bool = True) -> Self:
        """Whether a run stops at its first failure that has no handler."""
        self._whole.fail_fast = enabled
        return self

    def set_accept_handled(self, enabled: bool = True) -> Self:
        """Whether a run succeeds whose failures all have a handler."""
        self._whole.accept_handled = enabled
        return self

    def set_lenient_templates(self, enabled: bool = True) -> Self:
        """Whether a name that is not there is null, and no error."""
        self._whole.lenient_templates = enabled
        return self

    def set_default_retry_policy(self, policy: RetryPolicy) -> Self:
        """The retry policy of tasks without one."""
        self._whole.set_default_retry_policy(policy)
        return self

    def build(self) -> Workflow:
        """The workflow, checked as a whole: all its faults are raised at once."""
        workflow = self.workflow
        if not workflow.start_task and workflow.tasks:
            workflow.start_task = next(iter(workflow.tasks))
        return settled(workflow) if self.parent is None else workflow

    # How tasks get into the workflow

    def _add(self, kind: type[BaseOperator], task_id: str, fields: dict[str, Any], **own: Any) -> Self:
        given = self._accepted(kind, task_id, fields)
        dependencies = self._dependencies(task_id, given.pop("dependencies", None))
        task, faults = made(kind, task_id, {"dependencies": dependencies, **given, **own})
        self._keep(*faults)
        self._put(task, caller())
        self._current_task = task.task_id
        return self

    def _accepted(self, kind: type[BaseOperator], task_id: str, fields: dict[str, Any]) -> dict[str, Any]:
        """`fields` under their own names; one that the operator lacks is an error, never lost."""
        if fields.keys() >= {"dependencies", "depends_on"}:
            raise TypeError("dependencies and depends_on are the same field: give one")
        given = {("dependencies" if name == "depends_on" else name): value for name, value in fields.items()}
        unknown = sorted(given.keys() - kind.model_fields.keys())
        if unknown and not keeping():
            raise TypeError(f"{kind.__name__} has no field {', '.join(unknown)}")
        for name in unknown:
            self._keep(_unknown_field(kind, str(task_id), name))
            del given[name]
        return given

    def _keep(self, *faults: Fault) -> None:
        at = caller()
        self.workflow.origin.faults += [fault.at(at) for fault in faults]

    def _dependencies(self, task_id: str, given: Any) -> Any:
        if given is None:
            chained = self._current_task is not None and task_id not in self._handlers
            return [self._current_task] if chained else []
        if isinstance(given, Iterable) and not isinstance(given, str | bytes):
            return sorted(set(given))
        return given

    def _put(self, task: BaseOperator, at: Position | None) -> None:
        if task.task_id in self.workflow.tasks:
            first = self.workflow.origin.tasks.get(task.task_id)
            hint = f"first in line {first.line}" if first and at and first.file == at.file else None
            fault = Fault("duplicate_id", "is added twice", ("tasks", task.task_id), task.task_id, hint, at)
            self.workflow.origin.faults.append(fault)
        else:
            self.workflow.add_task(task)
            if at:  # for a task of a branch, its own line
                self.workflow.origin.tasks[task.task_id] = at
            self._handlers.update(callbacks_of(task))

    def _built(self, name: str, branch: Branch) -> WorkflowBuilder:
        builder = WorkflowBuilder(name, parent=self)
        returned = branch(builder)
        return builder if returned is None else returned

    def _take(self, branch: WorkflowBuilder) -> None:
        part = branch.workflow.origin
        for task in branch.workflow.tasks.values():
            self._put(task, part.tasks.get(task.task_id))
        self.workflow.origin.faults += part.faults

    def _current(self, method: str) -> BaseOperator | None:
        task = self.workflow.tasks.get(self._current_task or "")
        if task is None:
            _warn(f"{method}() has no effect: no task was added before it")
        return task

    @property
    def _whole(self) -> Workflow:
        return self.workflow if self.parent is None else self.parent._whole


def _unknown_field(kind: type[BaseOperator], task_id: str, name: str) -> Fault:
    near = get_close_matches(name, kind.model_fields, n=1)
    hint = f"did you mean '{near[0]}'?" if near else None
    return Fault("unknown_field", f"{kind.__name__} has no field '{name}'", ("tasks", task_id, name), task_id, hint)


def _first(branch: WorkflowBuilder) -> str | None:
    return next(iter(branch.workflow.tasks), None)


def _depend(task: BaseOperator, task_id: str) -> None:
    if task_id not in task.dependencies:
        task.dependencies.append(task_id)


def _warn_of_outsiders(condition: str, branch: WorkflowBuilder) -> None:
    tasks = branch.workflow.tasks
    for task in list(tasks.values())[1:]:
        if not task.is_internal_loop_task and not tasks.keys() & set(task.dependencies):
            # Only dependencies say in a document which tasks belong to a branch (section 5.2).
            _warn(
                f"'{task.task_id}' depends on no other task of its branch of '{condition}': in a document "
                f"it reads as a task that comes after '{condition}'"
            )


def _warn(message: str) -> None:
    warnings.warn(message, HighwayWarning, stacklevel=3)
