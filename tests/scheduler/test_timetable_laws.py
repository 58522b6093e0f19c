"""Laws that every timetable keeps, whatever its expression and zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from croniter import croniter
from hypothesis import given, settings
from hypothesis import strategies as st

from highway_dsl.cron import cron_fault
from scheduler.timetable import Timetable
from scheduler.walltimes import WallTimes
from tests.scheduler.expressions import DATES, ZONES, expressions

INSTANTS = st.datetimes(datetime(2005, 1, 1), datetime(2035, 1, 1), timezones=st.just(UTC))


@settings(deadline=None, max_examples=200)
@given(cron=expressions(), zone=ZONES, instant=INSTANTS)
def test_before_and_after_agree(cron: str, zone: str, instant: datetime) -> None:
    """The tick before the next one is the last one, from wherever it is asked; and ticks increase."""
    rule = Timetable.of(cron=cron, zone=zone)
    after, before = rule.next_after(instant), rule.at_or_before(instant)
    assert after is not None
    assert before is not None
    assert before <= instant < after
    assert before == rule.last_before(after)
    assert after == rule.next_after(before)


@settings(deadline=None, max_examples=100)
@given(cron=expressions(), zone=ZONES, instant=INSTANTS, hours=st.integers(0, 100))
def test_a_count_is_the_number_of_ticks(cron: str, zone: str, instant: datetime, hours: int) -> None:
    """Counting does not list, and finds as many."""
    rule = Timetable.of(cron=cron, zone=zone)
    until = instant + timedelta(hours=hours)
    assert len(rule.ticks(instant, until, 100_000)) == rule.count(instant, until)


@settings(deadline=None, max_examples=100)
@given(cron=expressions(), zone=ZONES, start=INSTANTS, instant=INSTANTS)
def test_no_interval_begins_before_start_date(cron: str, zone: str, start: datetime, instant: datetime) -> None:
    """A timetable with a start_date is the one without it, less the ticks whose interval begins earlier."""
    whole, rule = Timetable.of(cron=cron, zone=zone), Timetable.of(cron=cron, zone=zone, start_date=start)
    tick = rule.next_after(instant)
    assert tick is not None
    assert whole.interval(tick) == rule.interval(tick)
    assert rule.interval(tick)[0] >= start
    skipped = whole.last_before(tick)
    assert skipped is not None
    assert skipped <= instant or whole.interval(skipped)[0] < start


@settings(deadline=None, max_examples=100)
@given(minutes=st.integers(1, 5000), start=st.none() | INSTANTS, instant=INSTANTS)
def test_an_interval_keeps_its_distance(minutes: int, start: datetime | None, instant: datetime) -> None:
    """Ticks of `every` are its length apart, and counted as they are listed."""
    rule = Timetable.of(every=timedelta(minutes=minutes), start_date=start)
    first = rule.next_after(instant)
    assert first is not None
    until = first + timedelta(minutes=minutes * 5, seconds=1)
    ticks = rule.ticks(instant, until, 100)
    assert [first + n * timedelta(minutes=minutes) for n in range(6)] == ticks
    assert rule.count(instant, until) == 6


@settings(deadline=None, max_examples=150)
@given(cron=expressions(), moment=DATES)
def test_local_times_are_those_of_croniter(cron: str, moment: datetime) -> None:
    """Our stepping names the times that the library names, forwards and backwards."""
    times = WallTimes(cron)
    up, down = croniter(cron, moment), croniter(cron, moment)
    rising, falling = times.rising(moment), times.falling(moment - timedelta(microseconds=1))
    assert [up.get_next(datetime) for _ in range(5)] == [next(rising) for _ in range(5)]
    assert [down.get_prev(datetime) for _ in range(5)] == [next(falling) for _ in range(5)]


@settings(deadline=None, max_examples=50)
@given(cron=expressions())
def test_what_has_ticks_has_no_fault(cron: str) -> None:
    """Every expression of these tests is one that a definition may name."""
    assert None is cron_fault(cron)
