"""One operator as one node of a plan. What it waits for and who waits for it is not decided here."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

from highway_dsl import (
    BaseOperator,
    ChildWorkflowOperator,
    ConditionOperator,
    EmitEventOperator,
    ForEachOperator,
    JoinMode,
    JoinOperator,
    RetryPolicy,
    SwitchOperator,
    TaskOperator,
    TerminateOperator,
    WaitForEventOperator,
    WaitOperator,
    WhileOperator,
)
from interpreter.highway.names import ITEM_NAME, output_name
from interpreter.highway.secrets import secrets_in
from interpreter.plan import (
    AwaitEvent,
    Call,
    Case,
    Choose,
    Each,
    Emit,
    Node,
    Pass,
    Repeat,
    RetryRule,
    Return,
    Span,
    Trigger,
    Wait,
)

_JOINS: Final[dict[JoinMode, Trigger]] = {
    JoinMode.ALL_OF: "all_done",
    JoinMode.ANY_OF: "one_done",
    JoinMode.ALL_SUCCESS: "all_success",
    JoinMode.ONE_SUCCESS: "one_success",
}
_ENDS: Final[dict[str, Literal["succeeded", "failed", "cancelled"]]] = {
    "completed": "succeeded",
    "failed": "failed",
    "cancelled": "cancelled",
}
Spawn = Literal["never", "auto", "always"]
_DEFAULT: Final = "(default)"
# Zero seconds or a factor of zero say "at once"; the plan wants a number above zero.
_LEAST: Final = 1e-6


class Operators:
    """Makes nodes of the operators of one workflow."""

    def __init__(self, default: RetryPolicy | None, spans: dict[str, Span], limit: int) -> None:
        self._default = default
        self._spans = spans
        self._limit = limit

    def node(self, task: BaseOperator, id: str) -> Node:
        """The node of an operator that has no members."""
        for kind, make in _MAKERS:
            if isinstance(task, kind):
                node: Node = make(self, task, {**self.common(task, id), "id": id})
                return node
        raise TypeError(f"no node for {task.operator_type}")

    def common(self, task: BaseOperator, id: str) -> dict[str, Any]:
        return {
            "trigger": task.trigger_rule.value,
            "title": task.description or None,
            "span": self._spans.get(task.task_id),
        }

    def retry(self, task: BaseOperator) -> tuple[RetryRule, ...]:
        """The retries of a leaf: its own policy, else the workflow's."""
        return _rules(task.retry_policy or self._default)

    def limits(self, task: BaseOperator) -> dict[str, Any]:
        """The retries and the timeout of a composite: only what it says itself, or retries would multiply."""
        return {"retry": _rules(task.retry_policy), "timeout": timeout_of(task)}

    def _task(self, task: TaskOperator, common: dict[str, Any]) -> Node:
        args: dict[str, Any] = {"args": task.args, "kwargs": task.kwargs, "key": task.idempotency_key}
        config: dict[str, Any] = {}
        if task.timeout_policy is not None and not task.timeout_policy.kill_on_timeout:
            config["kill"] = False
        if names := sorted(secrets_in([task.args, task.kwargs])):
            config["secrets"] = names
        given = {name: part for name, part in args.items() if part}
        policies: dict[str, Any] = {"retry": self.retry(task), "timeout": timeout_of(task)}
        return Call(target=task.function, args=given or None, config=config, bind=_bind(task), **policies, **common)

    def _child(self, task: ChildWorkflowOperator, common: dict[str, Any]) -> Node:
        args: dict[str, Any] = {
            name: {"workflow": child["workflow_name"], "inputs": child.get("inputs") or {}}
            for name, child in sorted(task.children.items())
        }
        timeout = timeout_of(task) if task.timeout_seconds is None else task.timeout_seconds or _LEAST
        rules = _rules(task.retry_policy)
        return Call(target="", via="workflow", args=args, timeout=timeout, retry=rules, bind=_bind(task), **common)

    def _wait(self, task: WaitOperator, common: dict[str, Any]) -> Node:
        wait = task.wait_for
        if isinstance(wait, timedelta):
            return Wait(seconds=max(0.0, wait.total_seconds()), **common)
        if isinstance(wait, datetime):
            moment = wait if wait.tzinfo is not None else wait.replace(tzinfo=UTC)
            return Wait(until=moment.astimezone(UTC).isoformat(), **common)
        return Wait(until=wait, **common)

    def _emit(self, task: EmitEventOperator, common: dict[str, Any]) -> Node:
        bind = (task.result_key,) if task.result_key else ()
        return Emit(event=task.event_name, payload=task.payload, retry=self.retry(task), bind=bind, **common)

    def _await(self, task: WaitForEventOperator, common: dict[str, Any]) -> Node:
        timeout = timeout_of(task) if task.timeout_seconds is None else task.timeout_seconds or _LEAST
        return AwaitEvent(event=task.event_name, timeout=timeout, retry=self.retry(task), bind=_bind(task), **common)

    def _condition(self, task: ConditionOperator, common: dict[str, Any]) -> Node:
        case = Case(label="true", when=task.condition)
        return Choose(cases=(case,), default="false", bind=_bind(task), **common)

    def _switch(self, task: SwitchOperator, common: dict[str, Any]) -> Node:
        cases = tuple(Case(label=value, equals=value) for value in sorted(task.cases))
        default = None if task.default is None else default_label(task)
        return Choose(on=task.switch_on, cases=cases, default=default, bind=_bind(task), **common)

    def _each(self, task: ForEachOperator, common: dict[str, Any]) -> Node:
        mode = "parallel" if task.parallel else "sequential"
        bind = (*_bind(task), f"{task.task_id}_results")
        body: dict[str, Any] = {"items": task.items, "item": (ITEM_NAME,), "body": task.task_id}
        many: dict[str, Any] = {"mode": mode, "cap": task.max_parallel}
        many["spawn"] = spawn_of(task) if task.parallel else "never"
        return Each(**body, **many, bind=bind, **self.limits(task), **common)

    def _while(self, task: WhileOperator, common: dict[str, Any]) -> Node:
        return Repeat(
            when=task.condition,
            body=task.task_id,
            limit=task.max_iterations or self._limit,
            bind=_bind(task),
            **self.limits(task),
            **common,
        )

    def _join(self, task: JoinOperator, common: dict[str, Any]) -> Node:
        return Pass(**{**common, "trigger": _JOINS[JoinMode(task.join_mode)]})

    def _terminate(self, task: TerminateOperator, common: dict[str, Any]) -> Node:
        outcome = _ENDS[task.status]
        reason = task.reason or f"ended as {task.status} by {task.task_id}"
        value = (task.result or None) if outcome == "succeeded" else reason
        return Return(exit="terminate", outcome=outcome, value=value, **common)


_MAKERS: Final[tuple[tuple[type[BaseOperator], Any], ...]] = (
    (TaskOperator, Operators._task),
    (ConditionOperator, Operators._condition),
    (SwitchOperator, Operators._switch),
    (WaitOperator, Operators._wait),
    (ForEachOperator, Operators._each),
    (WhileOperator, Operators._while),
    (EmitEventOperator, Operators._emit),
    (WaitForEventOperator, Operators._await),
    (JoinOperator, Operators._join),
    (TerminateOperator, Operators._terminate),
    (ChildWorkflowOperator, Operators._child),
)


def default_label(task: SwitchOperator) -> str:
    """What stands for no case at all, and is no case of this switch."""
    label = _DEFAULT
    while label in task.cases:
        label = f"({label})"
    return label


def timeout_of(task: BaseOperator) -> float | None:
    """The longest one attempt of an operator may take."""
    own = getattr(task, "timeout", None)
    if isinstance(own, int):
        return float(own)
    return task.timeout_policy.timeout.total_seconds() if task.timeout_policy is not None else None


def spawn_of(task: BaseOperator) -> Spawn:
    """Whether branches or items become tasks of their own: as the author says in `metadata.spawn`."""
    said = task.metadata.get("spawn")
    if said is True or said == "always":
        return "always"
    return "never" if said is False or said == "never" else "auto"


def _rules(policy: RetryPolicy | None) -> tuple[RetryRule, ...]:
    if policy is None or policy.max_retries == 0:
        return ()
    return (
        RetryRule(
            attempts=policy.max_retries + 1,
            delay=policy.delay.total_seconds(),
            backoff="exponential",
            factor=max(policy.backoff_factor, _LEAST),
        ),
    )


def _bind(task: BaseOperator) -> tuple[str, ...]:
    own = output_name(task.task_id)
    return (own, task.result_key) if task.result_key else (own,)
