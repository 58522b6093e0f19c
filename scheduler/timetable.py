"""Timetables: the instants at which a schedule fires. Pure; every datetime in and out is aware and in UTC.

A timetable is a set of instants, whoever asks and from wherever: `next_after`, `last_before`, `ticks` and `count`
agree with each other. Times of a cron expression are naive local times that become instants by one rule:

* a time that the clock shows twice fires once, at its second occurrence;
* a time that the clock skips moves forward by what was skipped;
* a rule that fires every hour of every day keeps real time instead: after the clock was changed it goes on at its
  old distance once, and then by the new clock. One that fires every hour of some days fires at each real hour of them.

With a `start_date`, a cron tick counts when its interval begins no earlier; `every` counts from the date itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Literal
from zoneinfo import ZoneInfo

from highway_dsl.cron import cron_fault
from scheduler.walltimes import WallTimes

Kind = Literal["cron", "every", "once", "continuous"]

ONCE = "@once"
CONTINUOUS = "@continuous"

_HOUR = timedelta(hours=1)
_TINY = timedelta(microseconds=1)
# A clock was never changed by more than a day (Apia 2011, Manila 1844); offsets are compared this far around.
_AROUND = timedelta(hours=26)
# How long a stretch is counted in one go: shorter than any two changes of a clock that undo each other.
_STRETCH = timedelta(days=6)
# A Monday, so that `every: 7d` without a start_date falls on Mondays.
_GRID = datetime(1970, 1, 5, tzinfo=UTC)


class Timetable(ABC):
    """When a schedule fires."""

    kind: Kind

    @staticmethod
    def of(
        *,
        cron: str | None = None,
        every: timedelta | None = None,
        zone: str | tzinfo = "UTC",
        start_date: datetime | None = None,
        since: datetime | None = None,
    ) -> Timetable:
        """The timetable of a rule; `since` is when `@once` fires that has no start_date ahead of it."""
        start_date, since = (moment and moment.astimezone(UTC) for moment in (start_date, since))
        if (cron is None) == (every is None):
            raise ValueError("a schedule is either a cron expression or an interval")
        if every is not None:
            return Every(every, start_date)
        assert cron is not None
        if cron == ONCE:
            return Once(max((moment for moment in (start_date, since) if moment), default=None))
        if cron == CONTINUOUS:
            return Continuous()
        rule = _rule(_times(cron), ZoneInfo(zone) if isinstance(zone, str) else zone)
        return rule if start_date is None else From(rule, start_date)

    def next_after(self, instant: datetime) -> datetime | None:
        """The first tick later than an instant."""
        # In UTC, since sums of a datetime in any other zone go by its wall clock.
        return self._next(instant.astimezone(UTC))

    def last_before(self, instant: datetime) -> datetime | None:
        """The last tick earlier than an instant."""
        return self._last(instant.astimezone(UTC))

    def interval(self, tick: datetime) -> tuple[datetime, datetime]:
        """The data interval that a tick closes."""
        return self._begin(tick.astimezone(UTC)), tick.astimezone(UTC)

    def at_or_before(self, instant: datetime) -> datetime | None:
        """The last tick that is not later than an instant."""
        return self.last_before(instant + _TINY)

    def ticks(self, after: datetime, until: datetime, limit: int) -> list[datetime]:
        """The ticks after one instant and not after another, the earliest first, at most `limit` of them."""
        found: list[datetime] = []
        tick = self.next_after(after)
        while tick is not None and tick <= until and len(found) < limit:
            found.append(tick)
            tick = self.next_after(tick)
        return found

    def count(self, after: datetime, until: datetime) -> int:
        """How many ticks lie after one instant and not after another."""
        return self._count(after.astimezone(UTC), until.astimezone(UTC)) if after < until else 0

    @abstractmethod
    def _next(self, instant: datetime) -> datetime | None: ...

    @abstractmethod
    def _last(self, instant: datetime) -> datetime | None: ...

    def _begin(self, tick: datetime) -> datetime:
        return tick

    def _count(self, after: datetime, until: datetime) -> int:
        return len(self.ticks(after, until, limit=1 << 62))


class _Cron(Timetable):
    """A cron expression in a zone, as a set of instants."""

    kind: Kind = "cron"

    def __init__(self, times: WallTimes, zone: tzinfo):
        self._times = times
        self._zone = zone

    def _begin(self, tick: datetime) -> datetime:
        return self._last(tick) or tick

    def _count(self, after: datetime, until: datetime) -> int:
        total = 0
        while after < until:
            end = min(after + _STRETCH, until)
            total += self._count_stretch(after, end)
            after = end
        return total

    def _count_stretch(self, after: datetime, until: datetime) -> int:
        if self._unrest(after, until):
            return len(self.ticks(after, until, limit=1 << 62))
        return self._times.count(self._local(after), self._local(until))

    def _unrest(self, first: datetime, last: datetime) -> timedelta:
        """By how much the clock is changed around a stretch of time: zero when it is left alone."""
        seen = [self._offset(moment) for moment in (first - _AROUND, first, last, last + _AROUND)]
        return max(seen) - min(seen)

    def _local(self, instant: datetime) -> datetime:
        return instant.astimezone(self._zone).replace(tzinfo=None)

    def _offset(self, instant: datetime) -> timedelta:
        offset = instant.astimezone(self._zone).utcoffset()
        assert offset is not None
        return offset


class OnTheWall(_Cron):
    """A rule that fires when the wall clock shows its times."""

    def _next(self, instant: datetime) -> datetime | None:
        best: datetime | None = None
        # A time that the wall clock has already shown may still be ahead: its second occurrence, or a skipped one.
        for moment in self._times.rising(self._local(instant) - self._unrest(instant, instant)):
            if best is not None and moment > self._local(best) + self._unrest(best, best):
                break
            best = min((at for at in (best, *self._instants(moment)) if at and at > instant), default=best)
        return best

    def _last(self, instant: datetime) -> datetime | None:
        best: datetime | None = None
        for moment in self._times.falling(self._local(instant) + self._unrest(instant, instant)):
            if best is not None and moment < self._local(best) - self._unrest(best, best):
                break
            best = max((at for at in (best, *self._instants(moment)) if at and at < instant), default=best)
        return best

    def _instants(self, moment: datetime) -> list[datetime]:
        early, late = sorted(moment.replace(tzinfo=self._zone, fold=fold).astimezone(UTC) for fold in (0, 1))
        # Only a time shown twice has an earlier occurrence; of a skipped one the earlier fold is an hour too soon.
        if self._times.every_hour and self._local(early) == moment:
            return [early, late]
        return [late]


class RealHours(_Cron):
    """A rule that fires every hour of every day, and keeps its distance in real time when the clock is changed."""

    def _next(self, instant: datetime) -> datetime | None:
        if (carried := self._carried(instant)) and carried > instant:
            return carried
        local = self._local(instant)
        moment = self._times.after(local)
        return None if moment is None else instant + (moment - local)

    def _last(self, instant: datetime) -> datetime | None:
        if not self._unrest(instant - 3 * _HOUR, instant):
            local = self._local(instant)
            return instant - (local - next(self._times.falling(local - _TINY)))
        # An hour holds a tick; two more, so that the walk begins before a clock change that bears on it.
        tick, last = self._next(instant - 3 * _HOUR), None
        while tick is not None and tick < instant:
            tick, last = self._next(tick), tick
        return last

    def _carried(self, instant: datetime) -> datetime | None:
        """The tick that the old clock still decides, when the clock was changed within the last hour."""
        before = instant - _HOUR
        old = self._offset(before)
        if old == self._offset(instant):
            return None
        while instant - before > _TINY:
            middle = before + (instant - before) / 2
            before, instant = (middle, instant) if self._offset(middle) == old else (before, middle)
        local = self._local(before)
        moment = self._times.after(local)
        return None if moment is None else before + (moment - local)


# Reading an expression costs some milliseconds, and a service asks for the same ones again and again.
@lru_cache(maxsize=4096)
def _times(cron: str) -> WallTimes:
    if fault := cron_fault(cron):
        raise ValueError(fault)
    return WallTimes(cron)


def _rule(times: WallTimes, zone: tzinfo) -> Timetable:
    return RealHours(times, zone) if times.every_hour and times.every_day else OnTheWall(times, zone)


class From(Timetable):
    """A cron rule from a start_date on: the first interval begins no earlier."""

    kind: Kind = "cron"

    def __init__(self, rule: Timetable, start_date: datetime):
        self._rule = rule
        begin = rule.next_after(start_date - _TINY)
        self._first = begin and rule.next_after(begin)

    def _next(self, instant: datetime) -> datetime | None:
        if self._first is None or instant < self._first:
            return self._first
        return self._rule.next_after(instant)

    def _last(self, instant: datetime) -> datetime | None:
        tick = self._rule.last_before(instant)
        return None if self._first is None or tick is None or tick < self._first else tick

    def _begin(self, tick: datetime) -> datetime:
        return self._rule.interval(tick)[0]

    def _count(self, after: datetime, until: datetime) -> int:
        return 0 if self._first is None else self._rule.count(max(after, self._first - _TINY), until)


class Every(Timetable):
    """A fixed distance in real time, on the grid of its start_date whatever was missed."""

    kind: Kind = "every"

    def __init__(self, every: timedelta, start_date: datetime | None):
        if every <= timedelta(0):
            raise ValueError("an interval is longer than nothing")
        self._every = every
        self._start = start_date
        self._grid = start_date or _GRID

    def _next(self, instant: datetime) -> datetime | None:
        if self._start is not None and instant < self._start:
            return self._start
        return self._grid + ((instant - self._grid) // self._every + 1) * self._every

    def _last(self, instant: datetime) -> datetime | None:
        tick = self._grid + ((instant - self._grid - _TINY) // self._every) * self._every
        return None if self._start is not None and tick < self._start else tick

    def _begin(self, tick: datetime) -> datetime:
        return tick - self._every

    def _count(self, after: datetime, until: datetime) -> int:
        after = max(after, self._start - _TINY) if self._start is not None else after
        return max(0, (until - self._grid) // self._every - (after - self._grid) // self._every)


class Once(Timetable):
    """One instant, `at`; None fires never. Who makes the run sees that a workflow gets only one in its life."""

    kind: Kind = "once"

    def __init__(self, at: datetime | None):
        self.at = at

    def _next(self, instant: datetime) -> datetime | None:
        return self.at if self.at is not None and self.at > instant else None

    def _last(self, instant: datetime) -> datetime | None:
        return self.at if self.at is not None and self.at < instant else None


class Continuous(Timetable):
    """No instants at all: the end of one run is the tick of the next."""

    kind: Kind = "continuous"

    def _next(self, instant: datetime) -> datetime | None:
        return None

    def _last(self, instant: datetime) -> datetime | None:
        return None
