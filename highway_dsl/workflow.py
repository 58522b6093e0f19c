"""The workflow: the root of a definition (section 4.1)."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_serializer,
    model_validator,
)

from highway_dsl.canonical import canonical, content_hash
from highway_dsl.document import Document, load, survey
from highway_dsl.durations import Span
from highway_dsl.faults import Fault, invalid
from highway_dsl.json_reader import read_json
from highway_dsl.later import flattened
from highway_dsl.lint import lint
from highway_dsl.loops import link_bodies
from highway_dsl.mermaid import mermaid
from highway_dsl.operators import AnyOperator, BaseOperator, quiet
from highway_dsl.origin import Origin, caller
from highway_dsl.policies import RetryPolicy
from highway_dsl.shape import examine
from highway_dsl.yaml_reader import read_yaml
from highway_dsl.yaml_writer import write_yaml


def _catchup(value: Any, read: ValidatorFunctionWrapHandler) -> Any:
    try:
        return read(value)
    except ValidationError as error:
        raise ValueError("true, false or latest") from error


class Workflow(BaseModel):
    """A workflow's definition; constructing one checks its fields, `check` the whole."""

    # A number that JSON has no word for must not turn into null on its way out.
    model_config = ConfigDict(ser_json_inf_nan="constants")

    LATER: ClassVar[tuple[str, ...]] = (
        *("every", "timezone", "end_date", "catchup_window", "overlap", "jitter", "depends_on_past"),
        *("deadline", "on_deadline"),
        *("deadline_seconds", "deadline_action", "max_active_excludes_waiting"),
        *("fail_fast", "accept_handled", "lenient_templates"),
    )

    name: str
    version: str = "1.1.0"
    description: str = ""
    tasks: dict[str, AnyOperator] = Field(default_factory=dict)
    variables: dict[str, Any] = Field(default_factory=dict)
    start_task: str | None = None
    schedule: str | None = None
    start_date: datetime | None = None
    catchup: Annotated[bool | Literal["latest"], WrapValidator(_catchup)] = False
    is_paused: bool = False
    tags: list[str] = Field(default_factory=list)
    max_active_runs: int = Field(default=1, ge=1)
    default_retry_policy: RetryPolicy | None = None
    every: Span | None = None
    timezone: str | None = None
    end_date: datetime | None = None
    catchup_window: Span | None = Field(default=None, gt=timedelta(0))
    overlap: Literal["queue", "skip", "cancel_old", "allow"] | None = None
    jitter: Span | None = Field(default=None, ge=timedelta(0))
    depends_on_past: bool = False
    deadline: Span | None = Field(default=None, gt=timedelta(0))
    on_deadline: str | None = None
    deadline_seconds: int | None = Field(default=None, gt=0)
    deadline_action: Literal["fail", "cancel"] = "fail"
    max_active_excludes_waiting: bool = False
    fail_fast: bool = False
    accept_handled: bool = False
    lenient_templates: bool = False

    @model_validator(mode="before")
    @classmethod
    def _flattened(cls, data: Any) -> Any:
        return flattened(data)

    @model_validator(mode="after")
    def _linked(self) -> Self:
        link_bodies(self.tasks)
        return self

    @model_serializer(mode="wrap")
    def _serialised(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return quiet(self, serialise(self), self.LATER)

    # A cached property, because pydantic neither compares nor serialises those.
    @cached_property
    def origin(self) -> Origin:
        """Where in a program the workflow was made, as far as its making was seen."""
        return Origin()

    def add_task(self, task: BaseOperator) -> Self:
        """Add an operator; its id must be new."""
        if task.task_id in self.tasks:
            raise ValueError(f"workflow '{self.name}' already has a task '{task.task_id}'")
        # Any operator is one of the union; the argument is typed by their base.
        self.tasks[task.task_id] = task  # type: ignore[assignment]
        if at := caller():
            self.origin.tasks[task.task_id] = at
        return self

    def set_variables(self, variables: dict[str, Any]) -> Self:
        """Merge `variables` into the workflow's."""
        self.variables.update(variables)
        return self

    def set_start_task(self, task_id: str) -> Self:
        """Name the first task."""
        self.start_task = task_id
        return self

    def set_schedule(self, cron: str) -> Self:
        """Run by a cron expression."""
        self.schedule = cron
        return self

    def set_start_date(self, start_date: datetime) -> Self:
        """Run by the schedule from then on."""
        if not isinstance(start_date, datetime):
            raise TypeError(f"start_date is a datetime, not {start_date!r}")
        self.start_date = start_date
        return self

    def set_catchup(self, enabled: bool | Literal["latest"]) -> Self:
        """Whether missed runs are made up for."""
        self.catchup = enabled
        return self

    def set_paused(self, paused: bool) -> Self:
        """Whether the schedule is suspended when the workflow is first deployed."""
        self.is_paused = paused
        return self

    def add_tags(self, *tags: str) -> Self:
        """Append tags."""
        self.tags.extend(tags)
        return self

    def set_max_active_runs(self, count: int) -> Self:
        """The most runs at once."""
        self.max_active_runs = count
        return self

    def set_default_retry_policy(self, policy: RetryPolicy) -> Self:
        """The retry policy of tasks without one."""
        self.default_retry_policy = policy
        return self

    def faults(self) -> list[Fault]:
        """Everything that is wrong with the workflow as it is now."""
        return self.examined()[1]

    def examined(self) -> tuple[Self | None, list[Fault]]:
        """What is left of the workflow without its faults, and the faults."""
        rest, found = examine(type(self), self.model_dump(warnings=False))
        if isinstance(self.start_date, str):
            found.append(Fault("start_date", f"start_date is a datetime, not {self.start_date!r}", ("start_date",)))
        return rest, [self.origin.placed(fault) for fault in (*self.origin.faults, *found)]

    def check(self) -> Self:
        """Raise all faults at once, if there are any."""
        found = self.faults()
        if found:
            raise invalid(type(self).__name__, found)
        return self

    def lint(self) -> list[Fault]:
        """What is valid but probably not meant."""
        return [self.origin.placed(fault) for fault in lint(self)]

    def canonical(self) -> bytes:
        """The canonical form: the same for equal definitions, whatever format or order they came in."""
        return canonical(self)

    def content_hash(self) -> str:
        """The identity of this version."""
        return content_hash(self)

    def to_yaml(self) -> str:
        """The workflow as YAML, keys sorted."""
        return write_yaml(self.model_dump(mode="json", exclude_none=True))

    def to_json(self) -> str:
        """The workflow as JSON, fields in the order of the model."""
        return self.model_dump_json(indent=2, exclude_none=True)

    def to_mermaid(self) -> str:
        """The workflow as a Mermaid flowchart."""
        return mermaid(self)

    @classmethod
    def from_yaml(cls, yaml_str: str | bytes, file: str | None = None) -> Self:
        """The workflow in a YAML text; `file` is only named in error messages."""
        return cls.load_yaml(yaml_str, file).workflow

    @classmethod
    def from_json(cls, json_str: str | bytes, file: str | None = None) -> Self:
        """The workflow in a JSON text; `file` is only named in error messages."""
        return cls.load_json(json_str, file).workflow

    @classmethod
    def load_yaml(cls, text: str | bytes, file: str | None = None) -> Document[Self]:
        """As `from_yaml`, with the place of each task."""
        return load(cls, read_yaml, text, file)

    @classmethod
    def load_json(cls, text: str | bytes, file: str | None = None) -> Document[Self]:
        """As `from_json`, with the place of each task."""
        return load(cls, read_json, text, file)

    @classmethod
    def survey_yaml(cls, text: str | bytes, file: str | None = None) -> Document[Self]:
        """As `load_yaml`, with the faults of the document instead of an error, as far as it can be understood."""
        return survey(cls, read_yaml, text, file)

    @classmethod
    def survey_json(cls, text: str | bytes, file: str | None = None) -> Document[Self]:
        """As `load_json`, with the faults of the document instead of an error, as far as it can be understood."""
        return survey(cls, read_json, text, file)
