"""Where the ticks of a schedule begin and end, on the real store. The numbers are those of the cases of scheduling."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

import pytest

from durable.errors import WrongArguments
from scheduler.definition import BadSchedule, Schedule, examine
from tests.scheduler.stage import Stage, june

DAILY = "0 0 * * *"
NOW, LATER = june(10, 15, 30), june(10, 15, 31)
TOKYO = timezone(timedelta(hours=9))
OVER = {"start_date": june(1), "end_date": june(5)}

# case, terms, when it is deployed, when it is looked at, which ticks have run by then
BEGINNINGS: list[tuple[str, dict[str, Any], datetime, datetime, list[datetime]]] = [
    ("16", {"start_date": june(1, 10), "catchup": True}, NOW, LATER, [june(day) for day in range(3, 11)]),
    ("17", {"start_date": june(8), "catchup": True}, NOW, LATER, [june(9), june(10)]),
    ("18", {"start_date": june(1, 10)}, NOW, june(10, 23, 59), []),
    ("18, next", {"start_date": june(1, 10)}, NOW, june(11), [june(11)]),
    ("19", {"start_date": june(20, 10)}, NOW, june(21, 23), []),
    ("19, next", {"start_date": june(20, 10)}, NOW, june(22), [june(22)]),
    ("20", {}, NOW, june(10, 23, 59), []),
    ("20, next", {}, NOW, june(11), [june(11)]),
    ("20, soon after a tick", {}, june(10, 0, 1), june(10, 1), []),
    ("22", {"start_date": june(8).astimezone(TOKYO), "catchup": True}, NOW, LATER, [june(9), june(10)]),
    ("23, catchup off", OVER, NOW, LATER, []),
    ("23, catchup on", OVER | {"catchup": True}, NOW, LATER, [june(d) for d in (2, 3, 4, 5)]),
    ("catchup without a start_date", {"catchup": True}, NOW, june(12, 1), [june(11), june(12)]),
    ("latest owes nothing at first", {"start_date": june(1), "catchup": "latest"}, NOW, LATER, []),
]  # fmt: skip


@pytest.mark.parametrize(("terms", "deployed", "looked", "expected"), [row[1:] for row in BEGINNINGS],
                         ids=[row[0] for row in BEGINNINGS])  # fmt: skip
async def test_which_ticks_a_schedule_begins_with(
    stage: Stage, terms: dict[str, Any], deployed: datetime, looked: datetime, expected: list[datetime]
) -> None:
    """16-20, 22, 23: a tick counts when its interval begins at start_date or later; the past only with catchup."""
    stage.workflow()
    stage.now_is(deployed)
    await stage.set(DAILY, **terms)
    await stage.look_at(looked)
    assert stage.ticks() == expected


async def test_the_run_of_a_tick_is_given_its_interval(stage: Stage) -> None:
    """17: the first interval begins at start_date, and the run gets both ends, the logical date and ds."""
    stage.workflow()
    stage.now_is(june(9, 1))
    await stage.set(DAILY, start_date=june(8), catchup=True, inputs={"region": "eu"}, tags=["nightly"], prio=3)
    await stage.look()
    [(given, tags, prio)] = stage.store.rows("select input, tags, prio from durable.run")
    assert given == {
        "data_interval_start": "2026-06-08T00:00:00Z", "data_interval_end": "2026-06-09T00:00:00Z",
        "logical_date": "2026-06-09T00:00:00Z", "ds": "2026-06-08T00:00:00Z", "region": "eu",
    }  # fmt: skip
    assert (tags, prio) == (["nightly"], 3)


async def test_a_python_workflow_is_given_what_it_declares(stage: Stage) -> None:
    """A closed signature gets only the names in it; what nothing provides is refused when the schedule is set."""
    params = {"required": ["ds", "region"], "optional": [], "open": False}
    stage.workflow(params=params)
    stage.now_is(NOW)
    with pytest.raises(WrongArguments, match="missing 'region'"):
        await stage.set(DAILY)
    with pytest.raises(WrongArguments, match="unknown 'nation'"):
        await stage.set(DAILY, inputs={"region": "eu", "nation": "fr"})
    await stage.set(DAILY, inputs={"region": "eu"})
    await stage.look_at(june(11))
    assert stage.store.value("select input from durable.run") == {"ds": "2026-06-10T00:00:00Z", "region": "eu"}


async def test_a_naive_start_date_is_taken_in_the_schedules_zone(stage: Stage) -> None:
    """21: with a warning, and stored with its zone."""
    given = {"schedule": DAILY, "timezone": "America/New_York", "start_date": datetime(2026, 6, 8)}
    found = examine(given)
    assert [fault.loc for fault in found.warnings] == [("start_date",)]
    stage.workflow()
    stage.now_is(NOW)
    await stage.schedules.set("w", Schedule.of("w", **given, catchup=True))
    await stage.look()
    assert stage.ticks() == [june(9, 4), june(10, 4)]


async def test_an_ended_schedule_says_so(stage: Stage) -> None:
    """23: when the last tick is decided its state is `ended`, and the history has the line."""
    stage.workflow()
    stage.now_is(june(4, 12))
    await stage.set(DAILY, end_date=june(5, 12))
    assert await stage.look_at(june(5)) == [june(5)]
    assert (stage.row()["state"], stage.row()["next_at"]) == ("ended", None)
    assert [note.note for note in await stage.notes("ended")] == ["its end_date has passed"]
    assert await stage.look_at(june(9)) == []


async def test_an_interval_counts_from_its_start_date(stage: Stage) -> None:
    """24: the first tick is the start_date itself."""
    stage.workflow()
    stage.now_is(june(3, 12))
    await stage.set(None, every="1d", start_date=june(1, 10), catchup=True)
    await stage.look()
    assert stage.ticks() == [june(1, 10), june(2, 10), june(3, 10)]


async def test_an_interval_stays_on_its_grid_after_downtime(stage: Stage) -> None:
    """25: what was missed does not move it."""
    stage.workflow()
    stage.now_is(june(3, 12))
    await stage.set(None, every="1d", start_date=june(1, 10))
    assert await stage.look_at(june(6, 17, 23)) == []
    assert await stage.look_at(june(7, 10)) == [june(7, 10)]


def test_months_are_for_cron() -> None:
    """26: an interval is a length of real time, so that nothing clamps or drifts: thirty days are thirty days."""
    table = Schedule.of("w", every="30d", start_date=datetime(2026, 1, 31, tzinfo=UTC)).timetable()
    ticks = table.ticks(datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC), 12)
    assert {later - tick for tick, later in pairwise(ticks)} == {timedelta(days=30)}


@pytest.mark.parametrize("slots", [0, -1])
def test_a_cap_below_one_is_refused(slots: int) -> None:
    """47: at deployment, by its name."""
    with pytest.raises(BadSchedule, match="max_active_runs"):
        Schedule.of("w", schedule=DAILY, max_active_runs=slots)
