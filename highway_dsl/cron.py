"""Cron expressions: five fields, or one of the names for common ones (section 6.1).

A fault names the field, and `cron_hint` says what to write instead.
"""

from __future__ import annotations

from datetime import datetime

from croniter import CroniterBadCronError, CroniterBadDateError, CroniterError, croniter

PRESETS = frozenset(("@hourly", "@daily", "@weekly", "@monthly", "@yearly", "@once", "@continuous"))
FIELDS = ("minute", "hour", "day of month", "month", "day of week")

_RANGES = {
    "minute": "0 to 59",
    "hour": "0 to 23",
    "day of month": "1 to 31, or L for the last one",
    "month": "1 to 12, or JAN to DEC",
    "day of week": "0 to 7 (0 and 7 are Sunday), or SUN to SAT",
}

# A fixed day to look ahead from: whether an expression is valid must not depend on when it is asked.
_ANY_DAY = datetime(2024, 1, 1)


def cron_fault(expression: object) -> str | None:
    """What is wrong with a cron expression, or None."""
    if not isinstance(expression, str):
        return "a schedule is a cron expression in text"
    if expression in PRESETS:
        return None
    if expression.startswith("@"):
        return f"'{expression}' is none of {', '.join(sorted(PRESETS))}"
    fields = expression.split()
    if len(fields) != len(FIELDS):
        return f"'{expression}' has {len(fields)} fields, not the five: {', '.join(FIELDS)}"
    return _field_fault(fields) or _mixture_fault(fields) or _firing_fault(expression)


def cron_hint(expression: object) -> str | None:
    """What to write instead of an expression that has a fault."""
    if not isinstance(expression, str) or expression.startswith("@"):
        return "five fields such as '0 2 * * *', or a name such as @daily"
    fields = expression.split()
    if any("TZ=" in field for field in fields):
        return "give the zone in `timezone`, such as Europe/Berlin"
    if len(fields) in (6, 7):
        return "there are no seconds and no years: the first field is the minute, the last one the day of the week"
    if len(fields) != len(FIELDS):
        return "such as '0 2 * * *', every day at two"
    for name, field in zip(FIELDS, fields, strict=True):
        if not _is_field(name, field):
            return f"{name}: {_RANGES[name]}; *, lists (1,2), ranges (1-5) and steps (*/5) of them"
    if _mixture_fault(fields):
        return "name the days either by number or by weekday"
    return "no month has such a day" if _firing_fault(expression) else None


def _field_fault(fields: list[str]) -> str | None:
    for name, field in zip(FIELDS, fields, strict=True):
        if not _is_field(name, field):
            return f"'{field}' is no {name} of a cron expression"
    return None


def _is_field(name: str, field: str) -> bool:
    alone = ["*"] * len(FIELDS)
    alone[FIELDS.index(name)] = field
    # Hashed and random fields of croniter differ from one expansion to the next.
    return field[:1] not in ("H", "h", "R", "r") and _valid(" ".join(alone))


def _mixture_fault(fields: list[str]) -> str | None:
    # Elsewhere a day is one of either; croniter takes a counted weekday only where both agree.
    if fields[2] != "*" and ("#" in fields[4] or "L" in fields[4].upper()):
        return f"'{fields[2]}' as day of month and '{fields[4]}' as day of week choose days in two ways"
    return None


def _valid(expression: str) -> bool:
    try:
        croniter(expression, _ANY_DAY)
    except (CroniterBadCronError, CroniterError, ValueError, KeyError, TypeError):
        return False
    return True


def _firing_fault(expression: str) -> str | None:
    try:
        croniter(expression, _ANY_DAY).get_next(datetime)
    except CroniterBadDateError:
        return f"'{expression}' never fires"
    except (CroniterError, ValueError) as error:
        return f"'{expression}' is no cron expression: {error}"
    return None
