"""The operators: the nodes of a workflow (sections 4.2, 4.3 and 5).

The serialised form of an operator that uses nothing newer than 1.1.0 is exactly that of 1.1.0: fields of
later versions are written only where they say something.
"""

from __future__ import annotations

from abc import ABC
from datetime import datetime, timedelta
from enum import Enum
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    Discriminator,
    Field,
    SerializerFunctionWrapHandler,
    Tag,
    model_serializer,
)
from pydantic_core import PydanticCustomError

from highway_dsl.durations import prefixed, read_wait
from highway_dsl.policies import RetryPolicy, TimeoutPolicy


class OperatorType(str, Enum):  # noqa: UP042 - StrEnum would change what str() gives
    """The kinds of operators; equal to their text, so that a loaded operator compares like a built one."""

    TASK = "task"
    CONDITION = "condition"
    WAIT = "wait"
    PARALLEL = "parallel"
    FOREACH = "foreach"
    SWITCH = "switch"
    TRY_CATCH = "try_catch"
    WHILE = "while"
    EMIT_EVENT = "emit_event"
    WAIT_FOR_EVENT = "wait_for_event"
    JOIN = "join"
    ACTIVITY = "activity"
    TERMINATE = "terminate"
    CHILD_WORKFLOW = "child_workflow"


# As OperatorType: StrEnum would change what str() gives.
class TriggerRule(str, Enum):  # noqa: UP042
    """Which outcomes of its dependencies let an operator run."""

    ALL_SUCCESS = "all_success"
    ALL_DONE = "all_done"
    ONE_SUCCESS = "one_success"
    ONE_DONE = "one_done"
    NONE_FAILED = "none_failed"


# As OperatorType: StrEnum would change what str() gives.
class JoinMode(str, Enum):  # noqa: UP042
    """When a join is satisfied by the tasks it names."""

    ALL_OF = "all_of"
    ANY_OF = "any_of"
    ALL_SUCCESS = "all_success"
    ONE_SUCCESS = "one_success"


def _refuse(value: object) -> None:
    if value not in (None, False, []):
        raise PydanticCustomError("unsupported", "a construct of highway-dsl 2.x that is not supported")


# A construct of a later version that nothing here would carry out: its empty form is let through, because
# documents of those versions write it out; anything else is refused at the field that names it.
Refused: TypeAlias = Annotated[Any, BeforeValidator(_refuse), Field(exclude=True, repr=False)]


def quiet(model: BaseModel, data: dict[str, Any], names: tuple[str, ...], kept: tuple[str, ...] = ()) -> dict[str, Any]:
    """`data` with the fields in `names` moved to its end, and left out (but `kept`) if they say nothing."""
    for name in names:
        if name in data:
            value = data.pop(name)
            if name in kept or value != type(model).model_fields[name].default:
                data[name] = value
    return data


class BaseOperator(BaseModel, ABC):
    """What every operator has."""

    LATER: ClassVar[tuple[str, ...]] = ("result_key", "trigger_rule", "idempotency_key")
    KEPT: ClassVar[tuple[str, ...]] = ()

    task_id: str
    operator_type: OperatorType
    dependencies: list[str] = Field(default_factory=list, validation_alias=AliasChoices("dependencies", "depends_on"))
    retry_policy: RetryPolicy | None = None
    timeout_policy: TimeoutPolicy | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    description: str = ""
    on_success_task_id: str | None = None
    on_failure_task_id: str | None = None
    is_internal_loop_task: bool = Field(default=False, exclude=True)
    result_key: str | None = None
    trigger_rule: TriggerRule = TriggerRule.ALL_SUCCESS
    idempotency_key: str | None = None
    circuit_breaker_policy: Refused = None
    preconditions: Refused = None
    postconditions: Refused = None

    @model_serializer(mode="wrap")
    def _serialised(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return quiet(self, serialise(self), self.LATER, self.KEPT)


class TaskOperator(BaseOperator):
    """Calls a function."""

    KEPT = ("result_key",)  # 1.1.0 has it, for tasks only

    operator_type: Literal[OperatorType.TASK] = Field(default=OperatorType.TASK, frozen=True)
    function: str
    args: list[Any] = Field(default_factory=list)
    kwargs: dict[str, Any] = Field(default_factory=dict)


def _queue_name(name: str) -> str:
    if not name.strip() or not name.isprintable():
        raise PydanticCustomError("queue", "a queue has a name")
    if "{{" in name:
        raise PydanticCustomError("queue", "a queue is named as it stands: a template is not rendered here")
    return name


class ActivityOperator(TaskOperator):
    """A task that may have a queue: then only workers that serve it make the call. Without one it runs as a task."""

    LATER = (*TaskOperator.LATER, "queue")

    # Narrower than the task's own literal: pydantic tells the two apart by it.
    operator_type: Literal[OperatorType.ACTIVITY] = Field(default=OperatorType.ACTIVITY, frozen=True)  # type: ignore[assignment]
    queue: Annotated[str, AfterValidator(_queue_name)] | None = None


class ConditionOperator(BaseOperator):
    """Goes one of two ways."""

    operator_type: Literal[OperatorType.CONDITION] = Field(default=OperatorType.CONDITION, frozen=True)
    condition: str
    if_true: str | None = None
    if_false: str | None = None


class WaitOperator(BaseOperator):
    """Waits for a length of time, or until one."""

    operator_type: Literal[OperatorType.WAIT] = Field(default=OperatorType.WAIT, frozen=True)
    wait_for: Annotated[timedelta | datetime | str, BeforeValidator(read_wait)]

    def model_dump(self, **options: Any) -> dict[str, Any]:
        """As pydantic's; in Python mode the wait is in the prefixed form of section 5.3."""
        data = super().model_dump(**options)
        if "wait_for" in data:
            data["wait_for"] = prefixed(data["wait_for"])
        return data


class ParallelOperator(BaseOperator):
    """Runs branches at the same time."""

    operator_type: Literal[OperatorType.PARALLEL] = Field(default=OperatorType.PARALLEL, frozen=True)
    branches: dict[str, list[str]] = Field(default_factory=dict)
    timeout: int | None = Field(default=None, gt=0)


class ForEachOperator(BaseOperator):
    """Runs its body once for each item, one after the other or `parallel`, at most `max_parallel` at once."""

    LATER = (*BaseOperator.LATER, "parallel", "max_parallel")

    operator_type: Literal[OperatorType.FOREACH] = Field(default=OperatorType.FOREACH, frozen=True)
    items: str
    loop_body: Body = Field(default_factory=list)
    parallel: bool = False
    max_parallel: int | None = Field(default=None, ge=1)
    dynamic: Refused = None


class WhileOperator(BaseOperator):
    """Runs its body as long as its condition holds, at most `max_iterations` times."""

    LATER = (*BaseOperator.LATER, "max_iterations")

    operator_type: Literal[OperatorType.WHILE] = Field(default=OperatorType.WHILE, frozen=True)
    condition: str
    loop_body: Body = Field(default_factory=list)
    max_iterations: int | None = Field(default=None, ge=1)


class EmitEventOperator(BaseOperator):
    """Emits a named event."""

    operator_type: Literal[OperatorType.EMIT_EVENT] = Field(default=OperatorType.EMIT_EVENT, frozen=True)
    event_name: str
    payload: dict[str, Any] = Field(default_factory=dict)


class WaitForEventOperator(BaseOperator):
    """Waits for a named event."""

    operator_type: Literal[OperatorType.WAIT_FOR_EVENT] = Field(default=OperatorType.WAIT_FOR_EVENT, frozen=True)
    event_name: str
    timeout_seconds: int | None = Field(default=None, ge=0)


class SwitchOperator(BaseOperator):
    """Goes the way whose case equals a value's text."""

    operator_type: Literal[OperatorType.SWITCH] = Field(default=OperatorType.SWITCH, frozen=True)
    switch_on: str
    cases: dict[str, str] = Field(default_factory=dict)
    default: str | None = None


class JoinOperator(BaseOperator):
    """Waits for tasks by a mode of its own, instead of by dependencies."""

    operator_type: Literal[OperatorType.JOIN] = Field(default=OperatorType.JOIN, frozen=True)
    join_tasks: list[str]
    join_mode: JoinMode = JoinMode.ALL_OF


class TerminateOperator(BaseOperator):
    """Ends the run."""

    operator_type: Literal[OperatorType.TERMINATE] = Field(default=OperatorType.TERMINATE, frozen=True)
    status: Literal["completed", "failed", "cancelled"] = "completed"
    result: dict[str, Any] = Field(default_factory=dict)
    reason: str = ""


class ChildWorkflowOperator(BaseOperator):
    """Starts other workflows as runs of their own and waits for them.

    Each of `children` names a `workflow_name` and may give its `inputs`.
    """

    operator_type: Literal[OperatorType.CHILD_WORKFLOW] = Field(default=OperatorType.CHILD_WORKFLOW, frozen=True)
    children: dict[str, dict[str, Any]] = Field(default_factory=dict)
    timeout_seconds: int | None = Field(default=None, ge=0)


CLASSES: dict[str, type[BaseOperator]] = {
    kind.model_fields["operator_type"].default.value: kind
    for kind in (
        TaskOperator,
        ActivityOperator,
        ConditionOperator,
        WaitOperator,
        ParallelOperator,
        ForEachOperator,
        WhileOperator,
        EmitEventOperator,
        WaitForEventOperator,
        SwitchOperator,
        JoinOperator,
        TerminateOperator,
        ChildWorkflowOperator,
    )
}


LATER_TYPES = ("reflexive", "multi_choice")


def type_of(value: object) -> str | None:
    """The operator type that a mapping or an operator names, if it names one by text."""
    named = value.get("operator_type") if isinstance(value, dict) else getattr(value, "operator_type", None)
    return named.value if isinstance(named, OperatorType) else named


def class_of(value: object) -> type[BaseOperator] | None:
    """The class of the operator that a mapping describes, if it names one."""
    named = type_of(value)
    return CLASSES.get(named) if isinstance(named, str) else None


def _known(value: object) -> object:
    if not isinstance(value, dict | BaseOperator):
        raise ValueError("a task is a mapping of an operator's fields")
    named = type_of(value)
    if not isinstance(named, str) or named not in CLASSES:
        later = " (of highway-dsl 2.x, and not supported)" if named in LATER_TYPES else ""
        raise ValueError(f"Unknown operator type: {named}{later}")
    return value


AnyOperator: TypeAlias = Annotated[
    Annotated[TaskOperator, Tag("task")]
    | Annotated[ActivityOperator, Tag("activity")]
    | Annotated[ConditionOperator, Tag("condition")]
    | Annotated[WaitOperator, Tag("wait")]
    | Annotated[ParallelOperator, Tag("parallel")]
    | Annotated[ForEachOperator, Tag("foreach")]
    | Annotated[WhileOperator, Tag("while")]
    | Annotated[EmitEventOperator, Tag("emit_event")]
    | Annotated[WaitForEventOperator, Tag("wait_for_event")]
    | Annotated[SwitchOperator, Tag("switch")]
    | Annotated[JoinOperator, Tag("join")]
    | Annotated[TerminateOperator, Tag("terminate")]
    | Annotated[ChildWorkflowOperator, Tag("child_workflow")],
    Discriminator(type_of),
    BeforeValidator(_known),
]


def _internal(body: list[BaseOperator]) -> list[BaseOperator]:
    for task in body:
        task.is_internal_loop_task = True
    return body


Body: TypeAlias = Annotated[list[AnyOperator], AfterValidator(_internal)]

ForEachOperator.model_rebuild()
WhileOperator.model_rebuild()
