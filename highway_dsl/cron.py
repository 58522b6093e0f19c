"""Cron expressions: five fields, or one of the names for common ones (section 6.1)."""

from __future__ import annotations

from datetime import datetime

from croniter import CroniterBadCronError, CroniterBadDateError, CroniterError, croniter

PRESETS = frozenset(("@hourly", "@daily", "@weekly", "@monthly", "@yearly"))
FIELDS = ("minute", "hour", "day of month", "month", "day of week")

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
    return _field_fault(fields) or _firing_fault(expression)


def _field_fault(fields: list[str]) -> str | None:
    for index, (name, field) in enumerate(zip(FIELDS, fields, strict=True)):
        alone = ["*"] * len(FIELDS)
        alone[index] = field
        # Hashed and random fields of croniter differ from one expansion to the next.
        if any(letter in "HhRr" for letter in field.split("(")[0][:1]) or not _valid(" ".join(alone)):
            return f"'{field}' is no {name} of a cron expression"
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
