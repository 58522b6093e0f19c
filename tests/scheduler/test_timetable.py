"""Fire times, case by case: gaps and overlaps of local time, odd days, start dates, intervals."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from scheduler.timetable import Timetable

NEW_YORK = "America/New_York"
LORD_HOWE = "Australia/Lord_Howe"


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def days(ticks: list[datetime]) -> list[str]:
    return [tick.strftime("%Y-%m-%d") for tick in ticks]


@pytest.mark.parametrize(
    ("cron", "zone", "first", "last", "expected"),
    [
        pytest.param(
            *("30 2 * * *", NEW_YORK, "2026-03-07T12:00", "2026-03-09T12:00"),
            ["2026-03-08T03:30-04:00", "2026-03-09T02:30-04:00"],
            id="a skipped time moves forward by the gap, for one day",
        ),
        pytest.param(
            *("0 2 * * *", NEW_YORK, "2026-03-07T12:00", "2026-03-08T12:00"),
            ["2026-03-08T03:00-04:00"],
            id="the first skipped minute moves to the first one after the gap",
        ),
        pytest.param(
            *("*/30 * * * *", NEW_YORK, "2026-03-08T06:00", "2026-03-08T07:30"),
            ["2026-03-08T01:30-05:00", "2026-03-08T03:00-04:00", "2026-03-08T03:30-04:00"],
            id="every half hour stays half an hour apart across a gap",
        ),
        pytest.param(
            *("30 1 * * *", NEW_YORK, "2026-10-31T12:00", "2026-11-01T12:00"),
            ["2026-11-01T01:30-05:00"],
            id="a repeated time fires once, the second time",
        ),
        pytest.param(
            *("0 * * * *", NEW_YORK, "2026-11-01T04:00", "2026-11-01T07:00"),
            ["2026-11-01T01:00-04:00", "2026-11-01T01:00-05:00", "2026-11-01T02:00-05:00"],
            id="every hour neither skips nor repeats in an overlap",
        ),
        pytest.param(
            *("30 1-3 * * *", NEW_YORK, "2026-11-01T04:00", "2026-11-01T12:00"),
            ["2026-11-01T01:30-05:00", "2026-11-01T02:30-05:00", "2026-11-01T03:30-05:00"],
            id="some hours fire once each in an overlap",
        ),
        pytest.param(
            *("0 */2 * * *", NEW_YORK, "2026-11-01T03:00", "2026-11-01T07:00"),
            ["2026-11-01T00:00-04:00", "2026-11-01T02:00-05:00"],
            id="every second hour is three real hours apart over an overlap",
        ),
        pytest.param(
            *("15 2 * * *", LORD_HOWE, "2026-10-03T12:00", "2026-10-04T00:00"),
            ["2026-10-04T02:45+11:00"],
            id="a gap of half an hour moves by half an hour",
        ),
        pytest.param(
            *("45 1 * * *", LORD_HOWE, "2026-04-04T12:00", "2026-04-05T00:00"),
            ["2026-04-05T01:45+10:30"],
            id="an overlap of half an hour fires once, the second time",
        ),
        pytest.param(
            *("0 9 * * *", "Pacific/Apia", "2011-12-29T00:00", "2011-12-31T00:00"),
            ["2011-12-29T09:00-10:00", "2011-12-31T09:00+14:00"],
            id="a day that does not exist is skipped without an extra run",
        ),
        pytest.param(
            *("*/30 * * * 1-5", NEW_YORK, "2026-03-07T04:00", "2026-03-09T05:00"),
            ["2026-03-06T23:30-05:00", "2026-03-09T00:00-04:00", "2026-03-09T00:30-04:00", "2026-03-09T01:00-04:00"],
            id="weekdays begin at their own midnight after a clock change at the weekend",
        ),
        pytest.param(
            *("0 * * * 0", NEW_YORK, "2026-11-01T04:30", "2026-11-01T07:00"),
            ["2026-11-01T01:00-04:00", "2026-11-01T01:00-05:00", "2026-11-01T02:00-05:00"],
            id="every hour of a Sunday of twenty-five hours",
        ),
    ],
)
def test_a_local_time_fires_where_the_clock_shows_it(
    cron: str, zone: str, first: str, last: str, expected: list[str]
) -> None:
    """Cases 1 to 8b: a skipped time moves forward, a repeated one fires at its second occurrence."""
    rule = Timetable.of(cron=cron, zone=zone)
    assert [datetime.fromisoformat(at) for at in expected] == rule.ticks(utc(first), utc(last), 10)


@pytest.mark.parametrize(
    ("cron", "after", "expected"),
    [
        pytest.param(
            *("0 0 31 * *", "2026-01-01"),
            ["2026-01-31", "2026-03-31", "2026-05-31", "2026-07-31", "2026-08-31", "2026-10-31", "2026-12-31"],
            id="the 31st, in months that have one",
        ),
        pytest.param(
            *("0 0 L * *", "2028-01-01"),
            ["2028-01-31", "2028-02-29", "2028-03-31", "2028-04-30"],
            id="the last day of a month",
        ),
        pytest.param("0 0 29 2 *", "2026-01-01", ["2028-02-29"], id="the next leap day"),
        pytest.param("0 0 29 2 *", "2096-03-01", ["2104-02-29"], id="a leap day eight years away"),
        pytest.param(
            *("0 0 13 * 5", "2026-11-01"),
            ["2026-11-06", "2026-11-13", "2026-11-20", "2026-11-27", "2026-12-04", "2026-12-11", "2026-12-13"],
            id="every Friday or the 13th",
        ),
        pytest.param("0 0 * * 7", "2026-11-02", ["2026-11-08", "2026-11-15"], id="7 is Sunday"),
        pytest.param("0 0 * * 0", "2026-11-02", ["2026-11-08", "2026-11-15"], id="0 is Sunday"),
        pytest.param("0 0 * * 5#2", "2026-11-01", ["2026-11-13", "2026-12-11"], id="the second Friday"),
        pytest.param("@weekly", "2026-11-02", ["2026-11-08", "2026-11-15"], id="weekly is Sunday midnight"),
        pytest.param("@monthly", "2026-11-02", ["2026-12-01", "2027-01-01"], id="monthly is the first"),
        pytest.param("@yearly", "2026-11-02", ["2027-01-01"], id="yearly is New Year"),
    ],
)
def test_days_are_those_the_expression_chooses(cron: str, after: str, expected: list[str]) -> None:
    """Cases 9, 10, 11, 13, 14 and the presets: days of the month or of the week, when both are named."""
    ticks = Timetable.of(cron=cron).ticks(utc(after), utc("2150-01-01"), len(expected))
    assert expected == days(ticks)


@pytest.mark.parametrize(
    ("start_date", "expected"),
    [
        ("2026-06-01T10:00", ["2026-06-03", "2026-06-04", "2026-06-05"]),
        ("2026-06-01T00:00", ["2026-06-02", "2026-06-03", "2026-06-04"]),
        ("2026-06-20T10:00", ["2026-06-22", "2026-06-23", "2026-06-24"]),
    ],
)
def test_a_tick_counts_when_its_interval_begins_at_start_date_or_later(start_date: str, expected: list[str]) -> None:
    """Cases 16, 17 and 19: with a daily cron the first run is a whole day after the first midnight."""
    rule = Timetable.of(cron="0 0 * * *", start_date=utc(start_date))
    assert expected == days(rule.ticks(utc("2026-01-01"), utc("2026-12-01"), 3))
    assert rule.last_before(utc(expected[0])) is None
    assert rule.interval(utc(expected[0]))[0] >= utc(start_date)


def test_the_example_of_the_specification_owes_january_2_to_15() -> None:
    """Section 6.2: daily at two from January 1, deployed on January 15, with catchup."""
    rule = Timetable.of(cron="0 2 * * *", start_date=utc("2025-01-01"))
    owed = rule.ticks(utc("2024-01-01"), utc("2025-01-15T12:00"), 100)
    assert [f"2025-01-{day:02}" for day in range(2, 16)] == days(owed)


def test_without_a_start_date_the_next_tick_is_the_first() -> None:
    """Case 20: nothing but what lies ahead, however short after a tick the deployment is."""
    rule = Timetable.of(cron="0 0 * * *")
    assert utc("2026-06-11") == rule.next_after(utc("2026-06-10T15:30"))
    assert utc("2026-06-11") == rule.next_after(utc("2026-06-10T01:00"))


def test_a_start_date_of_another_zone_is_compared_as_an_instant() -> None:
    """Case 22: half past midnight in Berlin is still the day before in UTC."""
    start = datetime(2026, 6, 2, 0, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    rule = Timetable.of(cron="0 0 * * *", start_date=start)
    assert utc("2026-06-03") == rule.next_after(utc("2026-01-01"))


def test_an_interval_begins_at_its_start_date_and_stays_on_its_grid() -> None:
    """Cases 24 and 25: the first tick is start_date itself, and downtime does not move the grid."""
    rule = Timetable.of(every=timedelta(days=1), start_date=utc("2026-06-01T10:00"))
    assert [utc(f"2026-06-0{day}T10:00") for day in (1, 2, 3)] == rule.ticks(utc("2026-01-01"), utc("2027-01-01"), 3)
    assert utc("2026-06-18T10:00") == rule.next_after(utc("2026-06-17T13:37:11"))
    assert (utc("2026-06-17T10:00"), utc("2026-06-18T10:00")) == rule.interval(utc("2026-06-18T10:00"))


def test_an_interval_without_a_start_date_has_a_grid_too() -> None:
    """Every fifteen minutes falls on the quarters of the hour, every week on Mondays."""
    quarters = Timetable.of(every=timedelta(minutes=15))
    assert utc("2026-06-10T15:45") == quarters.next_after(utc("2026-06-10T15:30"))
    assert utc("2026-06-15") == Timetable.of(every=timedelta(days=7)).next_after(utc("2026-06-10"))


def test_months_come_from_cron_and_do_not_drift() -> None:
    """Case 26: the last day of each month stays the last day, where adding a month to January 31 would not."""
    rule = Timetable.of(cron="0 0 L * *")
    assert days(rule.ticks(utc("2026-02-01"), utc("2026-05-01"), 9)) == ["2026-02-28", "2026-03-31", "2026-04-30"]


def test_once_is_one_instant_never_before_it_counts() -> None:
    """`@once` fires at its start_date, or at once when that is past."""
    ahead = Timetable.of(cron="@once", start_date=utc("2026-06-20"), since=utc("2026-06-10"))
    past = Timetable.of(cron="@once", start_date=utc("2026-06-01"), since=utc("2026-06-10"))
    assert utc("2026-06-20") == ahead.next_after(utc("2026-06-10"))
    assert None is ahead.next_after(utc("2026-06-20"))
    assert utc("2026-06-10") == past.next_after(utc("2026-06-09"))


def test_continuous_has_no_times_of_its_own() -> None:
    """Case 55: the end of a run is the tick of the next, and no clock says when."""
    rule = Timetable.of(cron="@continuous")
    assert rule.kind == "continuous"
    assert (rule.next_after(utc("2026-06-10")), rule.last_before(utc("2026-06-10"))) == (None, None)


def test_a_changed_zone_file_moves_only_what_is_ahead() -> None:
    """Case 60: from the same cursor on, ticks are those of the zone as it is known now."""
    before, after = _zone("America/New_York"), _zone("Etc/GMT+5")
    cursor = utc("2026-06-10T06:00")
    assert utc("2026-06-11T06:00") == Timetable.of(cron="0 2 * * *", zone=before).next_after(cursor)
    assert utc("2026-06-10T07:00") == Timetable.of(cron="0 2 * * *", zone=after).next_after(cursor)


def _zone(name: str) -> ZoneInfo:
    """A zone of the same name whose file says what another one's does."""
    with Path("/usr/share/zoneinfo", name).open("rb") as file:
        return ZoneInfo.from_file(file, key="Some/Zone")


def test_an_instant_in_any_zone_asks_the_same() -> None:
    """A database session in another zone changes nothing: sums are made in UTC."""
    rule = Timetable.of(cron="0 * * * *", zone=NEW_YORK)
    here = datetime(2026, 11, 1, 1, 30, tzinfo=ZoneInfo(NEW_YORK))
    assert rule.next_after(here.astimezone(UTC)) == rule.next_after(here)
    assert getattr(rule.next_after(here), "tzinfo", None) == UTC
    assert rule.count(here, here + timedelta(days=2)) == rule.count(here.astimezone(UTC), here + timedelta(days=2))


@pytest.mark.parametrize("rule", [{}, {"cron": "* * * * *", "every": timedelta(hours=1)}, {"every": timedelta(0)}])
def test_a_rule_is_one_cron_or_one_interval(rule: dict[str, object]) -> None:
    """Neither, both, or an interval of nothing is no timetable."""
    with pytest.raises(ValueError, match="interval"):
        Timetable.of(**rule)  # type: ignore[arg-type]  # the case is about what types do not refuse
