"""How a run or child is to be started, beside its input."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from durable.errors import WrongArguments
from durable.workflow import Workflow


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Options of a start. `key` makes it idempotent: the same key of the same workflow is the same run.

    `version` is one of a deployed workflow; else the run gets the current one.
    """

    key: str | None = None
    queue: str | None = None
    priority: int | None = None
    start_at: datetime | None = None
    tags: tuple[str, ...] = ()
    cap_key: str | None = None
    deadline: float | timedelta | None = None
    name: str | None = None
    version: str | None = None

    def __post_init__(self) -> None:
        if self.priority is not None and not 0 <= self.priority <= 9:
            raise WrongArguments(f"priority {self.priority} is not between 0 (first) and 9")
        if self.start_at is not None and self.start_at.tzinfo is None:
            raise WrongArguments(f"start_at {self.start_at.isoformat()} has no zone; add tzinfo=UTC")


NOW = Start()
DEFAULT_PRIORITY = 5


def row_of(options: Start | None, deadline: float | None) -> dict[str, Any]:
    """The options as fields of a row for the store; `deadline` is the workflow's own."""
    chosen = options or NOW
    own = chosen.deadline.total_seconds() if isinstance(chosen.deadline, timedelta) else chosen.deadline
    row = {
        "prio": chosen.priority,
        "at": chosen.start_at.isoformat() if chosen.start_at else None,
        "tags": list(chosen.tags) or None,
        "cap": chosen.cap_key,
        "version": chosen.version,
        "deadline": own if own is not None else deadline,
    }
    return {name: value for name, value in row.items() if value is not None}


def input_of(workflow: Workflow | str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The input object of a call. By name only keyword arguments can be given: nobody knows the others' names."""
    if isinstance(workflow, Workflow):
        return workflow.params.bind(workflow.name, args, kwargs)
    if args:
        raise WrongArguments(f"workflow {workflow!r} is started by its name, so pass its arguments by name too")
    return kwargs
