"""The clock changes of a zone, found by asking for its offset: zone files have no other way to tell."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from scheduler.walltimes import WallTimes

_DAY = timedelta(days=1)
_TINY = timedelta(microseconds=1)


@dataclass(frozen=True)
class Change:
    """A clock is set from one offset to another at an instant."""

    at: datetime
    old: timedelta
    new: timedelta

    def times_skipped(self, cron: str) -> int:
        """How many times of an expression the clock does not show."""
        naive = self.at.replace(tzinfo=None) - _TINY
        return WallTimes(cron).count(naive + self.old, max(naive + self.old, naive + self.new))

    def aftermath(self, tick: datetime) -> bool:
        """Whether skipped times may have moved to an instant, or past it."""
        return self.at <= tick <= self.at + 2 * (self.new - self.old)


def changes(zone: str, first: datetime, last: datetime) -> list[Change]:
    """The changes between two instants, to the microsecond."""
    found, there = [], ZoneInfo(zone)
    while first < last:
        day = first + _DAY
        if _offset(first, there) != _offset(day, there):
            found.append(_exactly(first, day, there))
        first = day
    return found


def changes_of_year(zone: str, year: int) -> list[Change]:
    return changes(zone, datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC))


def _exactly(before: datetime, after: datetime, zone: ZoneInfo) -> Change:
    old, new = _offset(before, zone), _offset(after, zone)
    while after - before > _TINY:
        middle = before + (after - before) / 2
        before, after = (middle, after) if _offset(middle, zone) == old else (before, middle)
    return Change(after, old, new)


def _offset(instant: datetime, zone: ZoneInfo) -> timedelta:
    offset = instant.astimezone(zone).utcoffset()
    assert offset is not None
    return offset
