"""Lengths of time, and what a wait may wait for.

Durations travel as ISO 8601 text (`PT1H`, `P1D`; a year is 365 days); section 5.3 adds the forms
`duration:<seconds>` and `datetime:<ISO 8601>` for waits, and `time:HH:MM:SS` is the next such UTC time.
"""

from __future__ import annotations

import re
from datetime import date, datetime, time, timedelta
from typing import Annotated, TypeAlias

from pydantic import BeforeValidator, TypeAdapter

WaitFor: TypeAlias = timedelta | datetime | str

_SHORT = re.compile(r"([0-9]{1,9})([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_ISO_DURATION = re.compile(r"[-+]?P(?=[0-9T])[0-9.,YMWDTHS]*")
_ISO_DATETIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[Tt ][0-9:.,]+(?:[Zz]|[-+][0-9:]+)?)?")
_DURATION: TypeAdapter[timedelta] = TypeAdapter(timedelta)


class Duration:
    """Lengths of time by their unit: `Duration.minutes(5)`."""

    @staticmethod
    def seconds(n: float) -> timedelta:
        return timedelta(seconds=n)

    @staticmethod
    def minutes(n: float) -> timedelta:
        return timedelta(minutes=n)

    @staticmethod
    def hours(n: float) -> timedelta:
        return timedelta(hours=n)

    @staticmethod
    def days(n: float) -> timedelta:
        return timedelta(days=n)

    @staticmethod
    def weeks(n: float) -> timedelta:
        return timedelta(weeks=n)


# Months of an ISO 8601 duration, in front of its time. A year of it is 365 days, as it is written.
_MONTHS = re.compile(r"[-+]?P[^T]*M")


def read_span(value: object) -> object:
    """A length of time in one unit (`90s`, `15m`, `2h`, `1d`, `1w`); anything else is left to pydantic."""
    if isinstance(value, str) and _MONTHS.match(value):
        raise ValueError("a month is of no fixed length; use a cron expression such as '0 0 1 * *', or days")
    found = _SHORT.fullmatch(value) if isinstance(value, str) else None
    return timedelta(**{_UNITS[found[2]]: int(found[1])}) if found else value


# A length of time as people write it beside a cron expression.
Span: TypeAlias = Annotated[timedelta, BeforeValidator(read_span)]


def read_wait(value: object) -> WaitFor:
    """The time a `wait_for` names; text that names none comes back as it is, for the check to refuse."""
    if isinstance(value, timedelta | datetime):
        return value
    if isinstance(value, date):
        return datetime.combine(value, time())
    if isinstance(value, int | float):
        return _seconds(value)
    if isinstance(value, str):
        return _read_text(value)
    raise ValueError("wait_for is a duration (PT1H), a datetime, or a number of seconds")


def _read_text(text: str) -> WaitFor:
    if text.startswith("duration:"):
        return _seconds(float(text.removeprefix("duration:")))
    if text.startswith("datetime:"):
        return datetime.fromisoformat(text.removeprefix("datetime:"))
    if _ISO_DURATION.fullmatch(text):
        return _DURATION.validate_python(text)
    if _ISO_DATETIME.fullmatch(text):
        return datetime.fromisoformat(text)
    return text


def _seconds(number: float) -> timedelta:
    try:
        return timedelta(seconds=number)
    except OverflowError as error:
        # pydantic turns ValueError into its own error, and lets this one through.
        raise ValueError(str(error)) from error


def prefixed(wait: object) -> object:
    """`wait` in the prefixed form of section 5.3."""
    if isinstance(wait, timedelta):
        return f"duration:{wait.total_seconds()}"
    if isinstance(wait, datetime):
        return f"datetime:{wait.isoformat()}"
    return wait


def time_of_day(text: str) -> time | None:
    """The UTC time that `time:HH:MM:SS` names, or None if `text` is no such thing."""
    try:
        clock = time.fromisoformat(text.removeprefix("time:"))
    except ValueError:
        return None
    return clock if text.startswith("time:") and clock.tzinfo is None else None
