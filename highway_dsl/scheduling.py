"""The fields of a schedule, as far as they can be judged before anything is deployed (section 6).

Faults are contradictions; doubts are what is probably not meant. Each names its field. Fields are read by attribute:
the same rules hold for a workflow of any language.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from highway_dsl.cron import cron_fault, cron_hint
from highway_dsl.faults import Fault


class Scheduled(Protocol):
    """What a schedule's rules look at."""

    @property
    def schedule(self) -> str | None: ...
    @property
    def every(self) -> timedelta | None: ...
    @property
    def timezone(self) -> str | None: ...
    @property
    def start_date(self) -> datetime | None: ...
    @property
    def end_date(self) -> datetime | None: ...
    @property
    def overlap(self) -> str | None: ...
    @property
    def max_active_runs(self) -> int | None: ...
    @property
    def depends_on_past(self) -> bool: ...
    @property
    def deadline(self) -> timedelta | None: ...
    @property
    def on_deadline(self) -> str | None: ...


def schedule_faults(fields: Scheduled) -> Iterator[Fault]:
    """What makes a schedule impossible."""
    yield from _rule(fields)
    if fields.timezone is not None and not is_zone(fields.timezone):
        yield Fault(
            "timezone",
            f"timezone: there is no time zone '{fields.timezone}'",
            ("timezone",),
            hint=_near(fields.timezone),
        )
    else:
        yield from _dates(fields)
    yield from _policies(fields)


def schedule_doubts(fields: Scheduled) -> Iterator[Fault]:
    """What a schedule can do without, or takes in a way that may surprise."""
    for name in ("start_date", "end_date"):
        moment: datetime | None = getattr(fields, name)
        if moment is not None and moment.tzinfo is None:
            zone = fields.timezone or "UTC"
            message = f"{name} {moment.isoformat()} has no zone and is taken in the schedule's, {zone}"
            yield Fault("naive_date", message, (name,), hint="write it like 2026-01-31T09:00:00Z")
    if fields.schedule is None and fields.every is None:
        for name in ("start_date", "end_date", "catchup_window", "jitter", "on_deadline"):
            if getattr(fields, name, None) is not None:
                yield Fault("no_schedule", f"{name} says nothing without a schedule", (name,))


def aware(moment: datetime, timezone: str | None) -> datetime:
    """A date with its zone: one without any is taken in the schedule's."""
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=ZoneInfo(timezone or "UTC"))


def is_zone(name: str) -> bool:
    """Whether a name is one of the time zones known here."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def _rule(fields: Scheduled) -> Iterator[Fault]:
    if fields.schedule is not None and (wrong := cron_fault(fields.schedule)):
        yield Fault("cron", f"schedule: {wrong}", ("schedule",), hint=cron_hint(fields.schedule))
    if fields.schedule is not None and fields.every is not None:
        yield Fault("every", "every: a schedule is a cron expression or an interval, not both", ("every",))
    if fields.every is not None and fields.every < timedelta(seconds=1):
        yield Fault("every", f"every: an interval of {fields.every.total_seconds():g} s is too short", ("every",))
    if fields.schedule == "@continuous" and fields.max_active_runs not in (None, 1):
        message = f"max_active_runs: @continuous runs one at a time, and this says {fields.max_active_runs}"
        yield Fault("max_active_runs", message, ("max_active_runs",), hint="set it to 1")


def _dates(fields: Scheduled) -> Iterator[Fault]:
    if fields.start_date is None or fields.end_date is None:
        return
    start, end = aware(fields.start_date, fields.timezone), aware(fields.end_date, fields.timezone)
    if end <= start:
        message = f"end_date: {end.isoformat()} is not after start_date {start.isoformat()}, so nothing would ever run"
        yield Fault("end_date", message, ("end_date",), hint="leave one of them out, or swap them")


def _policies(fields: Scheduled) -> Iterator[Fault]:
    if fields.depends_on_past and fields.overlap == "cancel_old":
        message = "overlap: cancel_old ends the run that the next one depends on (depends_on_past)"
        yield Fault("overlap", message, ("overlap",), hint="use queue")
    if fields.on_deadline is not None and fields.deadline is None:
        message = f"on_deadline: '{fields.on_deadline}' would never start, since there is no deadline"
        yield Fault("on_deadline", message, ("on_deadline",), hint="set deadline, such as PT2H")


def _near(zone: str) -> str:
    near = get_close_matches(zone, available_timezones(), n=1, cutoff=0.7)
    return f"did you mean {near[0]}?" if near else "a name of the IANA database, such as Europe/Berlin"
