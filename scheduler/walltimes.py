"""The naive local times that a cron expression names: minutes of a day, on the days that it chooses.

No zone and no clock here; what an instant of them is, `timetable` decides. croniter reads the expression, and this
steps through it: croniter's own stepping costs a third of a millisecond a time, too much to count ten thousand.
"""

from __future__ import annotations

from bisect import bisect_right
from calendar import monthrange
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from typing import Any

from croniter import croniter

_DAY = timedelta(days=1)
# February 29 is at most eight years away (1896 to 1904, 2096 to 2104); a rule that needs more never fires.
_FARTHEST = 366 * 9


class WallTimes:
    """What a cron expression says without a zone: strictly increasing naive datetimes, without end."""

    def __init__(self, expression: str):
        read = croniter(expression, datetime(2024, 1, 1))
        minutes, hours, days, months, weekdays = read.expanded[:5]
        self.every_hour = hours == ["*"]
        self.every_day = days == months == weekdays == ["*"]
        self._times = [time(hour, minute) for hour in _numbers(hours, 24) for minute in _numbers(minutes, 60)]
        self._days = _Days(days, months, weekdays, {int(day): nth for day, nth in read.nth_weekday_of_month.items()})

    def after(self, moment: datetime) -> datetime | None:
        """The first time later than a moment."""
        return next(self.rising(moment), None)

    def rising(self, moment: datetime) -> Iterator[datetime]:
        """Every time later than a moment, the earliest first."""
        first = bisect_right(self._times, moment.time()) if self._days.has(moment.date()) else len(self._times)
        yield from (datetime.combine(moment.date(), at) for at in self._times[first:])
        for day in self._days.rising(moment.date()):
            yield from (datetime.combine(day, at) for at in self._times)

    def falling(self, moment: datetime) -> Iterator[datetime]:
        """Every time up to a moment and at it, the latest first."""
        last = bisect_right(self._times, moment.time()) if self._days.has(moment.date()) else 0
        yield from (datetime.combine(moment.date(), at) for at in reversed(self._times[:last]))
        for day in self._days.falling(moment.date()):
            yield from (datetime.combine(day, at) for at in reversed(self._times))

    def count(self, after: datetime, until: datetime) -> int:
        """How many times lie after the one moment and not after the other."""
        first, last = after.date(), until.date()
        days = sum(self._days.has(first + _DAY * n) for n in range((last - first).days))
        return days * len(self._times) + self._before(until) - self._before(after)

    def _before(self, moment: datetime) -> int:
        """How many times of its day a moment has seen, its own included."""
        return bisect_right(self._times, moment.time()) if self._days.has(moment.date()) else 0


class _Days:
    """The days a cron expression chooses: by day of month or by day of week, when it names both."""

    def __init__(self, days: list[Any], months: list[Any], weekdays: list[Any], nth: dict[int, set[Any]]):
        self._months = frozenset(_numbers(months, 12, first=1))
        self._of_month = None if days == ["*"] else frozenset(days)
        self._of_week = None if weekdays == ["*"] else frozenset(weekdays)
        self._nth = nth

    def has(self, day: date) -> bool:
        if day.month not in self._months:
            return False
        if self._of_month is None:
            return self._of_week is None or self._on_weekday(day)
        return self._on_day(day) or (self._of_week is not None and self._on_weekday(day))

    def rising(self, day: date) -> Iterator[date]:
        return self._from(day, _DAY)

    def falling(self, day: date) -> Iterator[date]:
        return self._from(day, -_DAY)

    def _from(self, day: date, step: timedelta) -> Iterator[date]:
        idle = 0
        while idle < _FARTHEST:
            day, idle = day + step, idle + 1
            if self.has(day):
                yield day
                idle = 0

    def _on_day(self, day: date) -> bool:
        assert self._of_month is not None
        return day.day in self._of_month or ("l" in self._of_month and day.day == monthrange(day.year, day.month)[1])

    def _on_weekday(self, day: date) -> bool:
        assert self._of_week is not None
        weekday = day.isoweekday() % 7
        if weekday not in self._of_week:
            return False
        nth = self._nth.get(weekday)
        return nth is None or (day.day - 1) // 7 + 1 in nth or ("l" in nth and (day + 7 * _DAY).month != day.month)


def _numbers(field: list[Any], size: int, first: int = 0) -> list[int]:
    return list(range(first, first + size)) if field == ["*"] else sorted(field)
