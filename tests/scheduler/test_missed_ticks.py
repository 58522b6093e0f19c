"""Downtime, clocks that jump, and the ticks in between. The numbers are those of the cases of scheduling."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from scheduler.deciding import LATEST, MISSED, NO_SLOT, WINDOW
from scheduler.ticks import run_of
from tests.scheduler.stage import Stage, june

MINUTELY = "* * * * *"
WEEK = 7 * 1440


async def test_catchup_of_ten_thousand_is_one_unfinished_run_at_a_time(stage: Stage) -> None:
    """27: with one slot there is one run; the rest is owed in the cursor, oldest first, and no other rows exist."""
    stage.workflow(max_active_runs=1)
    stage.now_is(june(1) + timedelta(minutes=10_000, seconds=30))
    await stage.set(MINUTELY, start_date=june(1) - timedelta(minutes=1), catchup=True)
    await stage.look()
    assert stage.ticks() == [june(1)]
    assert await stage.schedules.owed("w") == 10_000
    for done in range(1, 4):
        assert stage.unfinished() == 1
        stage.end_one()
        await stage.look()
        assert stage.ticks() == [june(1) + timedelta(minutes=n) for n in range(done + 1)]
    assert stage.store.value("select count(*) from durable.task") == 4
    assert (await stage.schedules.show("w")).waiting == NO_SLOT
    assert await stage.schedules.owed("w") == 10_000 - 3


async def test_a_long_catchup_does_not_delay_another_workflow(stage: Stage) -> None:
    """27, 49: whatever one owes, the tick of another is made in the same look; so with five thousand queued runs."""
    stage.workflow("w", "many", "other", max_active_runs=10)
    stage.now_is(june(1, 12))
    await stage.set(MINUTELY, start_date=june(1) - timedelta(days=300), catchup=True)
    await stage.set("0 0 * * *", "other")
    stage.store.start_many("many", 5000)
    await stage.set(MINUTELY, "many", catchup=True)
    stage.now_is(june(2))
    await stage.looks.run_once(stage.connection)
    assert stage.ticks("other") == [june(2)]
    stage.settle()
    assert stage.store.state(stage.run_at(june(2), "other")) == "ready"
    assert stage.ticks("many") == []


async def test_without_a_cap_a_catchup_takes_turns(stage: Stage) -> None:
    """27: a hundred a look, and whoever came due in between is looked at before the next hundred."""
    stage.workflow("w", "other")
    stage.now_is(june(1, 12))
    await stage.set(MINUTELY, start_date=june(1), catchup=True)
    await stage.looks.run_once(stage.connection)
    assert len(stage.ticks()) == 100
    await stage.look()
    assert len(stage.ticks()) == 12 * 60


async def test_a_catchup_window_forgets_what_is_older(stage: Stage) -> None:
    """28: only the last day is owed, and one line has the count and the range of the rest."""
    stage.workflow(max_active_runs=1)
    stage.now_is(june(8, 0, 0, 30))
    await stage.set(MINUTELY, start_date=june(1), catchup=True, catchup_window="1d")
    await stage.look()
    assert stage.ticks() == [june(7, 0, 1)]
    [note] = await stage.notes("skipped")
    assert (note.note, note.ticks, note.first_tick, note.last_tick) == (WINDOW, 6 * 1440, june(1, 0, 1), june(7))
    assert await stage.schedules.owed("w") == 1439


@pytest.mark.parametrize(
    ("catchup", "made", "skipped"),
    [(False, [june(8)], [(MISSED, WEEK - 1)]), ("latest", [june(8)], [(LATEST, WEEK - 1)])],
)
async def test_after_downtime(stage: Stage, catchup: Any, made: list[Any], skipped: list[Any]) -> None:
    """29, 31: nothing beyond the grace, or one run with latest; and one line with the count, after downtime as after a
    clock that jumps forward."""
    stage.workflow()
    stage.now_is(june(1))
    await stage.set(MINUTELY, catchup=catchup)
    await stage.look()
    assert await stage.look_at(june(8, 0, 0, 30)) == made
    assert await stage.skips() == skipped


async def test_downtime_longer_than_the_grace_loses_a_daily_tick(stage: Stage) -> None:
    """29: down over midnight for an hour: nothing, and the history says so; for half a minute: the tick fires."""
    stage.workflow()
    stage.now_is(june(1, 12))
    await stage.set("0 0 * * *")
    await stage.look()
    assert await stage.look_at(june(2, 1)) == []
    assert await stage.skips() == [(MISSED, 1)]
    assert await stage.look_at(june(3, 0, 0, 30)) == [june(3)]


async def test_a_clock_that_jumps_forward_and_catchup_is_owed(stage: Stage) -> None:
    """31: three days later, with catchup: all of them, in order."""
    stage.workflow()
    stage.now_is(june(1, 12))
    await stage.set("0 0 * * *", catchup=True)
    assert await stage.look_at(june(4, 12)) == [june(2), june(3), june(4)]


async def test_a_clock_that_jumps_back_fires_nothing_again(stage: Stage) -> None:
    """30: last tick 06-12, now 06-10: the next is 06-13, and every tick has one run."""
    stage.workflow()
    stage.now_is(june(9, 12))
    await stage.set("0 0 * * *", catchup=True)
    assert await stage.look_at(june(12, 1)) == [june(10), june(11), june(12)]
    assert await stage.look_at(june(10)) == []
    assert (await stage.schedules.show("w")).next_tick == june(13)
    assert await stage.look_at(june(12, 12)) == []
    assert await stage.look_at(june(13)) == [june(13)]


async def test_a_clock_moved_back_and_forth_makes_each_tick_once(stage: Stage) -> None:
    """30, 31: whatever the clock does, unique ticks, none missing, and a cursor that never goes back."""
    stage.workflow("w")
    stage.now_is(june(1))
    await stage.set("0 * * * *", catchup=True)
    cursor = june(1)
    for hours in (5, 2, 9, 8, 30, 1, 31, 29, 60):
        await stage.look_at(june(1, 0, 30) + timedelta(hours=hours))
        assert stage.store.value("select cursor_at from durable.schedule") >= cursor
        cursor = stage.store.value("select cursor_at from durable.schedule")
    assert stage.ticks() == [june(1) + timedelta(hours=n) for n in range(1, 61)]


async def test_a_tick_whose_commit_was_lost_is_the_same_run(stage: Stage) -> None:
    """34: after a fail-over that lost the last commit, the cursor makes the tick again: with the same run id, and so
    with the same idempotency keys in its steps."""
    stage.workflow()
    stage.now_is(june(1, 12))
    await stage.set("0 0 * * *")
    await stage.look()
    before = stage.store.rows("select cursor_at, next_at, seen_at from durable.schedule")[0]
    assert await stage.look_at(june(2)) == [june(2)]
    run = stage.run_at(june(2))
    assert run == run_of("w", june(2))
    for sql in ("delete from durable.ready", "delete from durable.task", "delete from durable.tick"):
        stage.store.run(sql)
    stage.store.run("update durable.schedule set cursor_at = %s, next_at = %s, seen_at = %s", *before)
    await stage.look()
    assert stage.run_at(june(2)) == run


async def test_a_history_can_be_pruned_and_the_last_tick_stays(stage: Stage) -> None:
    """Retention takes ticks with their runs and old lines, but not the tick that the next may depend on."""
    stage.workflow()
    stage.now_is(june(1, 12))
    await stage.set("0 0 * * *", depends_on_past=True, catchup=True)
    await stage.look_at(june(2))
    stage.end_one()
    await stage.look_at(june(3))
    stage.end_one("failed")
    stage.now_is(june(60))
    stage.store.run("select * from durable.prune_runs(durable.now())")
    assert stage.store.rows("select * from durable.prune_ticks(durable.now() - interval '1 day')") == [(1, 1)]
    assert stage.store.rows("select tick, outcome from durable.tick") == [(june(3), "failed")]
    await stage.look()
    assert stage.ticks() == [june(3)]
