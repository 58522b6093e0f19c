"""Schedules that change, are removed and restored; versions; zones whose rules move. Case numbers of scheduling."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zoneinfo import TZPATH, ZoneInfo, reset_tzpath

import pytest

from durable.errors import WrongState
from scheduler.deciding import PAUSED
from scheduler.service import Scheduler
from scheduler.store import _timetable
from tests.scheduler.stage import Stage, june

DAILY = "0 0 * * *"


async def test_a_changed_cron_counts_from_its_deployment(stage: Stage) -> None:
    """35: daily to hourly at 15:30 after the run of 00:00: next 16:00, nothing for 01:00 to 15:00."""
    stage.workflow()
    stage.now_is(june(9, 12))
    await stage.set(DAILY, catchup=True)
    assert await stage.look_at(june(10)) == [june(10)]
    stage.now_is(june(10, 15, 30))
    assert await stage.set("0 * * * *", catchup=True)
    assert await stage.look_at(june(10, 15, 59)) == []
    assert await stage.look_at(june(10, 16)) == [june(10, 16)]
    assert [note.kind for note in await stage.notes()] == ["set", "changed"]


async def test_what_the_old_cron_owed_stays_with_the_old_version(stage: Stage) -> None:
    """35: ticks that were owed at the change run on the version of their time, in order, before the new ones."""
    deploy(stage, "v1")
    stage.now_is(june(5, 12))
    await stage.set(DAILY, catchup=True, start_date=june(2), max_active_runs=1, inputs={"a": 1})
    await stage.look()
    deploy(stage, "v2")
    await stage.set("0 * * * *", catchup=True, start_date=june(2), max_active_runs=1, inputs={"a": 2})
    stage.now_is(june(5, 13, 10))
    await stage.look()
    assert await stage.schedules.owed("w") == 3
    for _ in range(3):
        stage.end_one()
        await stage.look()
    runs = stage.store.rows(
        "select i.tick, i.version, r.version, r.input ->> 'a' from durable.tick i"
        " join durable.run r using (run_id) order by i.tick"
    )
    assert runs == [
        (june(3), "v1", "v1", "1"),
        (june(4), "v1", "v1", "1"), (june(5), "v1", "v1", "1"), (june(5, 13), "v2", "v2", "2"),
    ]  # fmt: skip
    assert stage.store.value("select count(*) from durable.owed_span") == 0


def deploy(stage: Stage, version: str) -> None:
    stage.store.run("select durable.deploy('w', %s, 'highway', '', '{}', 'ann', '{\"max_active_runs\": 1}')", version)
    line = stage.store.value("select durable.line_of('default', 'w')")
    stage.store._lines["default", "w"] = line


@pytest.mark.parametrize(("moved", "expected"), [("15 2 * * *", []), ("15 23 * * *", [june(10, 23, 15)])])
async def test_a_cron_that_moves_within_the_day(stage: Stage, moved: str, expected: list[Any]) -> None:
    """36: no second run today, unless the new time is still ahead."""
    stage.workflow()
    stage.now_is(june(9, 12))
    await stage.set("15 1 * * *", catchup=True)
    assert await stage.look_at(june(10, 1, 15)) == [june(10, 1, 15)]
    stage.now_is(june(10, 9))
    await stage.set(moved, catchup=True)
    assert await stage.look_at(june(10, 23, 59)) == expected


async def test_a_changed_zone_counts_from_its_deployment(stage: Stage) -> None:
    """37: as a changed cron."""
    stage.workflow()
    stage.now_is(june(9, 12))
    await stage.set(DAILY, catchup=True)
    assert await stage.look_at(june(10)) == [june(10)]
    stage.now_is(june(10, 12))
    await stage.set(DAILY, catchup=True, timezone="America/New_York")
    assert await stage.look_at(june(11, 3, 59)) == []
    assert await stage.look_at(june(11, 4)) == [june(11, 4)]


async def test_terms_can_change_without_beginning_anew(stage: Stage) -> None:
    """Inputs or tags are no timetable: the cursor goes on, and setting the same again changes nothing."""
    stage.workflow()
    stage.now_is(june(9, 12))
    assert await stage.set(DAILY, catchup=True)
    assert not await stage.set(DAILY, catchup=True)
    since = stage.row()["since"]
    assert await stage.set(DAILY, catchup=True, inputs={"a": 1}, tags=["x"], jitter="5m", deadline="2h")
    assert not await stage.set(DAILY, catchup=True, inputs={"a": 1}, tags=["x"], jitter="5m", deadline="2h")
    assert stage.row()["since"] == since
    assert (await stage.notes("changed"))[0].note == "changed: jitter, deadline, inputs, tags"


async def test_a_removed_schedule_restarts_when_it_is_restored(stage: Stage) -> None:
    """38: nothing for the time without a schedule, not even with catchup."""
    stage.workflow()
    stage.now_is(june(1, 12))
    await stage.set(DAILY, catchup=True)
    assert await stage.look_at(june(2)) == [june(2)]
    assert await stage.schedules.remove("w", by="ann")
    assert not await stage.schedules.remove("w", by="ann")
    assert await stage.look_at(june(5, 12)) == []
    with pytest.raises(WrongState, match="has no schedule"):
        await stage.schedules.show("w")
    await stage.set(DAILY, catchup=True)
    assert await stage.look_at(june(6)) == [june(6)]
    assert [note.kind for note in await stage.notes()] == ["set", "removed", "restored"]


async def test_a_run_ends_on_the_version_it_started_with(stage: Stage) -> None:
    """54: a deployment changes the runs to come, never one that has begun."""
    deploy(stage, "v1")
    stage.now_is(june(1, 12))
    await stage.set(DAILY, catchup=True)
    await stage.look_at(june(2))
    deploy(stage, "v2")
    await stage.look_at(june(3))
    stage.end_one()
    await stage.look()
    sql = "select r.version from durable.tick i join durable.run r using (run_id) order by i.tick"
    assert stage.store.column(sql) == ["v1", "v2"]


async def test_once_is_once_per_workflow_name(stage: Stage) -> None:
    """56: deployed again, changed, removed and restored: still one run."""
    stage.workflow()
    stage.now_is(june(1, 12))
    await stage.set("@once")
    await stage.look_at(june(1, 13))
    assert (len(stage.ticks()), stage.row()["state"]) == (1, "ended")
    await stage.set("@once")
    await stage.look_at(june(2))
    await stage.set("@once", start_date=june(5))
    await stage.look_at(june(6))
    await stage.schedules.remove("w")
    await stage.set("@once", timezone="Asia/Tokyo")
    await stage.look_at(june(9))
    assert len(stage.ticks()) == 1


async def test_once_waits_for_its_start_date(stage: Stage) -> None:
    """56: with a start_date ahead that is its time."""
    stage.workflow()
    stage.now_is(june(1, 12))
    await stage.set("@once", start_date=june(3))
    assert await stage.look_at(june(2, 23)) == []
    assert await stage.look_at(june(3)) == [june(3)]


async def test_a_zone_whose_rules_move_takes_its_future_ticks_along(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """60: new tzdata: the next tick is where the new rules say, sooner than what was computed before; those that were
    made stay as they are."""
    zones = Zones(tmp_path)
    stage.workflow()
    stage.now_is(june(1, 12))
    with zones:
        zones.move("America/New_York")
        await stage.set("0 12 * * *", timezone="Test/Moving")
        assert await stage.look_at(june(2, 16)) == [june(2, 16)]
        zones.move("Europe/Paris")
        await restart(stage)
        assert await stage.look_at(june(3, 9, 59)) == []
        assert await stage.look_at(june(3, 10)) == [june(3, 10)]
    assert stage.ticks() == [june(2, 16), june(3, 10)]


async def restart(stage: Stage) -> None:
    """A scheduler that starts anew looks at what others have computed."""
    scheduler = Scheduler(stage.dsn)
    await scheduler._refresh()
    await scheduler._hang_up()


class Zones:
    """A zone `Test/Moving` whose rules can be exchanged, as an update of tzdata does it."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._paths = TZPATH

    def __enter__(self) -> None:
        reset_tzpath([str(self._folder), *self._paths])

    def __exit__(self, *_: object) -> None:
        reset_tzpath(self._paths)
        self._forget()

    def move(self, like: str) -> None:
        source = next(Path(path) / like for path in self._paths if (Path(path) / like).exists())
        target = self._folder / "Test" / "Moving"
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(source.read_bytes())
        self._forget()

    def _forget(self) -> None:
        """What a new process does not know."""
        ZoneInfo.clear_cache()
        _timetable.cache_clear()


async def test_paused_is_the_operators_switch(stage: Stage) -> None:
    """Rule 6: is_paused counts at the first deployment; later deployments leave the switch alone."""
    stage.workflow()
    stage.now_is(june(1, 12))
    await stage.set(DAILY, is_paused=True)
    assert stage.row()["paused"]
    assert await stage.look_at(june(2)) == []
    await stage.schedules.unpause("w", by="ann", note="ready")
    assert await stage.skips() == [(PAUSED, 1)]
    await stage.set(DAILY, is_paused=True, tags=["x"])
    assert not stage.row()["paused"]
    assert await stage.look_at(june(3)) == [june(3)]
