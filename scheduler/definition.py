"""A schedule as people define it, whatever their workflow is written in, and everything that is wrong with one.

A definition is refused as a whole, with all its faults, before anything is written. A `Schedule` that exists is sound:
its dates have zones, its zone exists and its rule fires.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Annotated, Any, Literal, Self

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from durable.errors import WrongArguments
from highway_dsl.durations import Span
from highway_dsl.faults import Fault, faults_of
from highway_dsl.scheduling import aware, schedule_doubts, schedule_faults
from scheduler.timetable import Timetable

Catchup = Literal["false", "true", "latest"]
Overlap = Literal["queue", "skip", "cancel_old", "allow"]

_NOTHING = timedelta(0)
_PLAIN = (
    *("timezone", "catchup", "on_deadline", "depends_on_past", "inputs", "queue", "prio", "max_active_runs"),
    "origin",
)
_LENGTH = "such as 90s, 15m, 2h, 1d or PT15M"
_HINTS = {
    **dict.fromkeys(("every", "catchup_window", "jitter", "deadline"), _LENGTH),
    **dict.fromkeys(("start_date", "end_date"), "write it like 2026-01-31T09:00:00Z"),
    "max_active_runs": "at least 1; leave it out for no limit",
    "prio": "0 (first) to 9",
}
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class BadSchedule(WrongArguments):
    """A schedule that was refused; `faults` are all that is wrong with it."""

    def __init__(self, workflow: str, faults: Sequence[Fault]):
        self.faults = tuple(faults)
        lines = "".join(f"\n  {fault}" for fault in self.faults)
        super().__init__(f"the schedule of {workflow!r} is refused:{lines}")


@dataclass(frozen=True)
class Findings:
    """What a check found: the schedule is there exactly if there are no faults."""

    schedule: Schedule | None
    faults: tuple[Fault, ...]
    warnings: tuple[Fault, ...]


class Schedule(BaseModel):
    """When a workflow runs by itself, and on which terms."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schedule: str | None = None
    every: Span | None = None
    timezone: str = "UTC"
    start_date: datetime | None = None
    end_date: datetime | None = None
    catchup: Annotated[Catchup, BeforeValidator(lambda value: _word(value))] = "false"
    catchup_window: Span | None = Field(default=None, gt=_NOTHING)
    overlap: Overlap | None = None
    max_active_runs: int | None = Field(default=None, ge=1)
    jitter: Span | None = Field(default=None, ge=_NOTHING)
    deadline: Span | None = Field(default=None, gt=_NOTHING)
    on_deadline: str | None = None
    depends_on_past: bool = False
    inputs: dict[str, Any] = {}
    queue: str = Field(default="default", min_length=1)
    prio: int | None = Field(default=None, ge=0, le=9)
    tags: tuple[str, ...] = ()
    is_paused: bool = False
    origin: Literal["definition", "person"] = "person"

    @classmethod
    def of(cls, workflow: str = "?", /, **given: Any) -> Self:
        """A sound schedule, or `BadSchedule` with all that is wrong."""
        found = examine(given)
        if found.schedule is None:
            raise BadSchedule(workflow, found.faults)
        return cls.model_validate(dict(found.schedule))

    @property
    def rule(self) -> str:
        """The rule as a person says it."""
        return self.schedule or f"every {_said(self.every or _NOTHING)}"

    @property
    def policy(self) -> Overlap:
        """What becomes of a tick without a free slot: with catchup it waits, else it is skipped."""
        return self.overlap or ("queue" if self.catchup == "true" else "skip")

    @property
    def definition(self) -> str:
        """The identity of the timetable: a change of it counts from its deployment on."""
        parts = (self.schedule, self.every and self.every.total_seconds(), self.timezone, _text(self.start_date))
        return sha256(orjson.dumps(parts)).hexdigest()

    def timetable(self, since: datetime | None = None) -> Timetable:
        """When it fires."""
        return Timetable.of(
            cron=self.schedule, every=self.every, zone=self.timezone, start_date=self.start_date, since=since
        )

    def row(self) -> dict[str, Any]:
        """What the store is given: lengths of time in seconds, instants as text."""
        seconds = {
            name: (value and value.total_seconds()) or None
            for name in ("every", "catchup_window", "jitter", "deadline")
            for value in (getattr(self, name),)
        }
        return {
            "cron": self.schedule,
            **seconds,
            **{name: getattr(self, name) for name in _PLAIN},
            "start_date": _text(self.start_date),
            "end_date": _text(self.end_date),
            "overlap": self.policy,
            "tags": list(self.tags),
            "paused": self.is_paused,
            "definition": self.definition,
        }


def examine(given: Mapping[str, Any]) -> Findings:
    """A schedule from its fields, or everything that is wrong with them."""
    try:
        read = Schedule.model_validate(dict(given))
    except ValidationError as error:
        return Findings(None, tuple(_hinted(fault) for fault in faults_of(error)), ())
    faults, doubts = [*_missing(read), *schedule_faults(read)], tuple(schedule_doubts(read))
    if faults:
        return Findings(None, tuple(faults), doubts)
    dates = {name: _dated(getattr(read, name), read.timezone) for name in ("start_date", "end_date")}
    sound = read.model_copy(update=dates)
    never = _never_fires(sound)
    return Findings(None if never else sound, (never,) if never else (), doubts)


def _hinted(fault: Fault) -> Fault:
    return replace(fault, hint=fault.hint or _HINTS.get(str(fault.loc[0]) if fault.loc else ""))


def _missing(read: Schedule) -> list[Fault]:
    if read.schedule is not None or read.every is not None:
        return []
    hint = "a cron expression such as '0 2 * * *', a name such as @daily, or an interval in `every`"
    return [Fault("schedule", "schedule: there is no rule", ("schedule",), hint=hint)]


def _never_fires(sound: Schedule) -> Fault | None:
    """Dates can leave no tick between them, though each of them is fine."""
    if sound.end_date is None or sound.schedule == "@continuous":
        return None
    first = sound.timetable(sound.start_date or _LONG_AGO).next_after(_LONG_AGO)
    if first is not None and first <= sound.end_date:
        return None
    message = f"end_date: no tick of '{sound.rule}' lies between start_date and {sound.end_date.isoformat()}"
    hint = f"the first one would be {first.isoformat()}" if first else None
    return Fault("end_date", message, ("end_date",), hint=hint)


def _word(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value


def _dated(moment: datetime | None, zone: str) -> datetime | None:
    return None if moment is None else aware(moment, zone).astimezone(UTC)


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _said(length: timedelta) -> str:
    seconds = length.total_seconds()
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds:g}s"
