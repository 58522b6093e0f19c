"""Fire times against Airflow's own timetable code, over every zone and many expressions.

Two deviations, on purpose, each with a test that shows it:

* Several times of one day fall into a gap. Each moves forward by the gap; Airflow goes on from where the first one
  landed, and the others have no run that day.
* A rule fires every hour of some days. Ours begins when the wall clock shows the day; Airflow adds the naive distance
  to an instant, and after a clock change in between is an hour late on Monday, or runs on Sunday.
"""

from __future__ import annotations

import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from scheduler.timetable import Timetable
from scheduler.walltimes import WallTimes
from tests.scheduler.airflow import Airflow, environment
from tests.scheduler.clock_changes import Change, changes, changes_of_year
from tests.scheduler.expressions import ZONES, expressions

EVERY = ("30 2 * * *", "0 0 * * *", "15 * * * *", "*/20 * * * *", "30 1-3 * * *", "0 */2 * * *", "45 1,2 * * 0")
STARTS = st.datetimes(datetime(2008, 1, 1), datetime(2034, 1, 1), timezones=st.just(UTC))


@pytest.fixture(scope="session")
def airflow(request: pytest.FixtureRequest) -> Iterator[Airflow]:
    """Airflow's timetable, ready to answer."""
    running = Airflow(environment(request.config.rootpath / ".durable"))
    yield running
    running.close()


def test_clock_changes_are_taken_as_airflow_takes_them_in_every_zone(airflow: Airflow) -> None:
    """Around each clock change of two years, in zones that stand for all there are, both fire at the same instants."""
    tried = [
        same(airflow, cron, zone, change.at - timedelta(days=2), change.at + timedelta(days=1))
        for year in (2011, 2025)
        for zone, found in zones_that_differ(year).items()
        for change in found
        for cron in EVERY
    ]
    assert len(tried) > 500


@settings(deadline=None, max_examples=150)
@given(cron=expressions(), zone=ZONES, start=STARTS)
def test_fire_times_are_those_of_airflow(airflow: Airflow, cron: str, zone: str, start: datetime) -> None:
    """Two hundred ticks of any expression from any quiet instant on."""
    assume(not changes(zone, start - timedelta(days=2), start + timedelta(days=2)))
    ours = Timetable.of(cron=cron, zone=zone).ticks(start, start + timedelta(days=400), 200)
    assume(ours)
    times = WallTimes(cron)
    assume(not times.every_hour or times.every_day or not changes(zone, start, ours[-1]))
    same(airflow, cron, zone, start, ours[-1])


def same(airflow: Airflow, cron: str, zone: str, after: datetime, until: datetime) -> None:
    """Both fire at the same instants, save what a gap that swallows several times explains."""
    gaps = [change for change in changes(zone, after, until) if change.times_skipped(cron) > 1]
    theirs = airflow.ticks(cron, zone, after, until)
    ours = Timetable.of(cron=cron, zone=zone).ticks(after, until, 10_000)
    if WallTimes(cron).every_hour:
        assert theirs == ours, f"{cron} in {zone} from {after}"
    explained = [tick for tick in ours if tick in theirs or not any(gap.aftermath(tick) for gap in gaps)]
    assert theirs == explained, f"{cron} in {zone} from {after}"


def test_each_time_in_a_gap_moves_where_airflow_keeps_the_first(airflow: Airflow) -> None:
    """The first deviation: three times a day are three runs on the day of the gap too."""
    after, until = datetime(2026, 3, 7, 12, tzinfo=UTC), datetime(2026, 3, 8, 12, tzinfo=UTC)
    ours = Timetable.of(cron="*/20 2 * * *", zone="America/New_York").ticks(after, until, 10)
    assert [datetime(2026, 3, 8, 7, minute, tzinfo=UTC) for minute in (0, 20, 40)] == ours
    assert airflow.ticks("*/20 2 * * *", "America/New_York", after, until) == ours[:1]


@pytest.mark.parametrize("change", ["2026-03-08T07:00+00:00", "2026-11-01T06:00+00:00"])
def test_weekdays_begin_at_midnight_where_airflow_misses_it(airflow: Airflow, change: str) -> None:
    """The second deviation: the first hour of Monday is midnight, whatever happened on Sunday."""
    at, there = datetime.fromisoformat(change), ZoneInfo("America/New_York")
    after, until = at - timedelta(days=2), at + timedelta(days=1)
    ours = Timetable.of(cron="0 * * * 1-5", zone="America/New_York").next_after(at)
    theirs = airflow.ticks("0 * * * 1-5", "America/New_York", after, until)
    assert ours is not None
    assert f"{ours.astimezone(there):%a %H:%M}" == "Mon 00:00"
    assert next(tick for tick in theirs if tick > at) != ours


def zones_that_differ(year: int) -> dict[str, list[Change]]:
    """One zone of each kind that changes its clock in a year; the others change it alike."""
    kinds = {tuple(changes_of_year(zone, year)): zone for zone in sorted(zoneinfo.available_timezones())}
    return {zone: list(found) for found, zone in kinds.items() if found}
