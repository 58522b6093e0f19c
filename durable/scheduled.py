"""The schedule of a workflow in code: what its decorator takes along, for the scheduler to read and to judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict


class ScheduleOptions(TypedDict, total=False):
    """When a workflow runs by itself. `schedule` is a cron expression, a name such as @daily, @once or @continuous;
    `schedule_deadline` raises an alert, and starts `on_deadline`, when a run has not ended so long after its time."""

    schedule: str
    every: timedelta | str
    timezone: str
    start_date: datetime | str
    end_date: datetime | str
    catchup: bool | Literal["latest"]
    catchup_window: timedelta | str
    overlap: Literal["queue", "skip", "cancel_old", "allow"]
    jitter: timedelta | str
    depends_on_past: bool
    is_paused: bool
    schedule_deadline: timedelta | str
    on_deadline: str
    schedule_inputs: Mapping[str, Any]
    tags: Sequence[str]


# As the schedule's own definition names them.
_NAMES = {"schedule_deadline": "deadline", "schedule_inputs": "inputs"}


def take_schedule(workflow: str, options: dict[str, Any]) -> Mapping[str, Any] | None:
    """Take what a schedule is made of out of a decorator's options; None: the workflow has none."""
    taken = {name: options.pop(name) for name in ScheduleOptions.__annotations__ if name in options}
    given = {_NAMES.get(name, name): value for name, value in taken.items() if value is not None}
    if given and "schedule" not in given and "every" not in given:
        raise ValueError(
            f"workflow {workflow!r}: {', '.join(taken)} says nothing without a schedule;"
            " give it one with schedule='0 2 * * *' or every='1d'"
        )
    return given or None
