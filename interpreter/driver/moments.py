"""When a wait of a plan is over, by the clock at its start. The runtime records what comes out."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta
from typing import Any

from interpreter.errors import ExpressionError

End = Callable[[float], float]


def end_of(seconds: float | None, until: Any) -> End:
    """The end of a wait for `seconds`, or `until` a moment."""
    if until is None:
        length = max(0.0, seconds or 0.0)
        return lambda now: now + length
    if isinstance(until, str) and until.startswith("time:"):
        clock = time.fromisoformat(until.removeprefix("time:"))
        return lambda now: _next(clock, now)
    moment = moment_of(until)
    return lambda now: moment


def _next(clock: time, now: float) -> float:
    """The next such time of day in UTC; today's, if it is still to come."""
    today = datetime.fromtimestamp(now, UTC)
    at = datetime.combine(today.date(), clock, UTC)
    return (at if at.timestamp() >= now else at + timedelta(days=1)).timestamp()


def moment_of(until: Any) -> float:
    """A moment as a number of seconds; UTC unless it says otherwise."""
    if isinstance(until, int | float) and not isinstance(until, bool):
        return float(until)
    try:
        moment = datetime.fromisoformat(str(until))
    except ValueError:
        raise ExpressionError(f"{until!r} is no moment to wait for", type="ValueError") from None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
