"""Which ticks a backfill makes. Pure: a dry run, a creation and every look ask the same function."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from scheduler.timetable import Timetable

Reprocess = Literal["none", "failed", "completed"]

TINY = timedelta(microseconds=1)

# Whose runs are made again.
AGAIN: dict[Reprocess, tuple[str, ...]] = {
    "none": (),
    "failed": ("failed", "cancelled"),
    "completed": ("failed", "cancelled", "succeeded"),
}

PAST_OPEN = "the run of the tick before has not ended"
PAST_FAILED = "the run of the tick before did not succeed"


@dataclass(frozen=True, slots=True)
class Past:
    """The newest run of a tick: open, succeeded, failed or cancelled. `was`: how it stood when the backfill was begun,
    "new" if it was not there."""

    attempt: int
    state: str
    was: str


@dataclass(frozen=True, slots=True)
class Planned:
    """What becomes of one tick: a run as its `attempt`, or nothing, because of `left_out`."""

    tick: datetime
    start: datetime
    attempt: int = 0
    left_out: str | None = None

    @property
    def made(self) -> bool:
        return self.left_out is None


@dataclass(frozen=True, slots=True)
class Range:
    """The ticks of a backfill, in the order of their making."""

    timetable: Timetable
    first: datetime
    last: datetime
    newest_first: bool = False

    def ticks(self, cursor: datetime | None, limit: int) -> list[datetime]:
        """Those behind the cursor, at most `limit` of them."""
        if not self.newest_first:
            return self.timetable.ticks(cursor or self.first - TINY, self.last, limit)
        return [tick for tick, _ in zip(self._falling(cursor or self.last + TINY), range(limit), strict=False)]

    def count(self) -> int:
        return self.timetable.count(self.first - TINY, self.last)

    def _falling(self, before: datetime) -> Iterator[datetime]:
        tick = self.timetable.last_before(before)
        while tick is not None and tick >= self.first:
            yield tick
            tick = self.timetable.last_before(tick)


@dataclass(frozen=True, slots=True)
class Step:
    """What one look does: ticks that were decided, how far it came, and why it went no further."""

    decided: tuple[Planned, ...]
    waiting: str | None = None

    @property
    def cursor(self) -> datetime | None:
        return self.decided[-1].tick if self.decided else None


def plan(of: Range, ticks: Sequence[datetime], past: Mapping[datetime, Past], reprocess: Reprocess) -> list[Planned]:
    """What becomes of each of these ticks."""
    return [_planned(tick, of.timetable.interval(tick)[0], past.get(tick), reprocess) for tick in ticks]


def step(planned: Sequence[Planned], free: int) -> Step:
    """As many runs as slots are free, and all that is left out on the way."""
    decided: list[Planned] = []
    for one in planned:
        if one.made and free <= 0:
            break
        free -= one.made
        decided.append(one)
    return Step(tuple(decided))


def careful_step(of: Range, planned: Sequence[Planned], past: Mapping[datetime, Past], free: int) -> Step:
    """With depends_on_past: up to the first run, and that only when the tick before it has succeeded or never ran."""
    if free <= 0:
        return step(planned, free)
    decided: list[Planned] = []
    for one in planned:
        before = of.timetable.last_before(one.tick)
        found = past.get(before) if before is not None else None
        if one.made and found is not None and found.state != "succeeded":
            return Step(tuple(decided), PAST_OPEN if found.state == "open" else PAST_FAILED)
        decided.append(one)
        if one.made:
            return Step(tuple(decided), PAST_OPEN)
    return Step(tuple(decided))


def _planned(tick: datetime, start: datetime, past: Past | None, reprocess: Reprocess) -> Planned:
    if past is None:
        return Planned(tick, start)
    if past.was in AGAIN[reprocess]:
        return Planned(tick, start, past.attempt + 1)
    said = {"open": "its run has not ended", "new": "was made meanwhile"}
    return Planned(tick, start, past.attempt, said.get(past.was, f"has {past.was}"))
