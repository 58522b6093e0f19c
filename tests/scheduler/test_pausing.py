"""Pauses and manual runs. The numbers are those of the cases of scheduling."""

from __future__ import annotations

from typing import Any

import pytest

from durable.errors import WrongArguments, WrongState
from scheduler.deciding import LATEST, PAUSED
from tests.scheduler.stage import Stage, june

DAILY = "0 0 * * *"


@pytest.mark.parametrize(
    ("catchup", "at_once", "skipped"),
    [
        (False, [], [(PAUSED, 3)]),
        ("latest", [june(4)], [(LATEST, 2)]),
        (True, [june(2), june(3), june(4)], []),
    ],
)
async def test_three_days_of_pause(stage: Stage, catchup: Any, at_once: list[Any], skipped: list[Any]) -> None:
    """39, 40: without catchup nothing until the next tick; latest gives one run; catchup gives all."""
    stage.workflow()
    stage.now_is(june(1, 12))
    await stage.set(DAILY, catchup=catchup)
    await stage.look()
    assert await stage.schedules.pause("w", by="ann", note="the source is broken")
    assert await stage.look_at(june(4, 12)) == []
    assert await stage.schedules.unpause("w", by="bob", note="repaired")
    await stage.look()
    assert stage.ticks() == at_once
    assert await stage.skips() == skipped
    assert await stage.look_at(june(5)) == [june(5)]


async def test_a_pause_over_a_single_tick_loses_it_without_catchup(stage: Stage) -> None:
    """39: the grace is for schedulers that were down, not for ticks that nobody wanted."""
    stage.workflow()
    stage.now_is(june(1, 23, 59, 50))
    await stage.set(DAILY)
    await stage.look()
    await stage.schedules.pause("w", by="ann")
    stage.now_is(june(2, 0, 0, 10))
    await stage.schedules.unpause("w", by="ann")
    await stage.look()
    assert stage.ticks() == []


async def test_a_catchup_after_a_pause_is_bounded_by_slots(stage: Stage) -> None:
    """40: all owed ticks, one unfinished run at a time."""
    stage.workflow(max_active_runs=1)
    stage.now_is(june(1, 12))
    await stage.set(DAILY, catchup=True)
    await stage.schedules.pause("w", by="ann")
    stage.now_is(june(4, 12))
    await stage.schedules.unpause("w", by="ann")
    await stage.look()
    assert (stage.ticks(), stage.unfinished(), await stage.schedules.owed("w")) == ([june(2)], 1, 2)


async def test_who_paused_when_and_why_is_kept(stage: Stage) -> None:
    """Pause and unpause leave who, when and why; doing it twice changes nothing."""
    stage.workflow()
    stage.now_is(june(1, 12))
    await stage.set(DAILY)
    assert await stage.schedules.pause("w", by="ann", note="the source is broken")
    assert not await stage.schedules.pause("w", by="bob", note="again")
    shown = await stage.schedules.show("w")
    assert (shown.paused, shown.paused_by, shown.pause_note) == (True, "ann", "the source is broken")
    assert shown.paused_at is not None
    assert await stage.schedules.unpause("w", by="bob", note="repaired")
    assert not await stage.schedules.unpause("w", by="bob")
    lines = [(note.kind, note.by, note.note) for note in await stage.notes()]
    assert lines[1:] == [("paused", "ann", "the source is broken"), ("unpaused", "bob", "repaired")]


async def test_queued_runs_go_on_in_a_pause(stage: Stage) -> None:
    """41: five runs in line run on, one after the other."""
    await queue_of_five(stage)
    await stage.schedules.pause("w", by="ann")
    for _ in range(5):
        stage.end_one()
    assert stage.unfinished() == 0


async def test_queued_runs_wait_in_a_pause_that_holds_them(stage: Stage) -> None:
    """41: with hold the one that has begun ends, the others stay in line until the pause ends."""
    await queue_of_five(stage)
    await stage.schedules.pause("w", by="ann", hold=True)
    stage.end_one()
    assert (stage.unfinished(), stage.worker.claim(10)) == (4, [])
    await stage.schedules.unpause("w", by="ann")
    for _ in range(4):
        stage.end_one()
    assert stage.unfinished() == 0


async def queue_of_five(stage: Stage) -> None:
    stage.workflow(max_active_runs=1)
    stage.now_is(june(1, 12))
    await stage.set(DAILY)
    for _ in range(5):
        await stage.schedules.trigger("w", by="ann")
    stage.settle()


async def test_a_manual_run_of_a_paused_workflow_runs(stage: Stage) -> None:
    """42: it is no tick, and moves no cursor."""
    stage.workflow()
    stage.now_is(june(1, 12))
    await stage.set(DAILY, inputs={"region": "eu"}, tags=["nightly"])
    await stage.schedules.pause("w", by="ann")
    run = await stage.schedules.trigger("w", inputs={"region": "us"}, by="ann")
    assert stage.store.state(run) == "ready"
    [(given, tags)] = stage.store.rows("select input, tags from durable.run")
    assert (given["region"], given["logical_date"][:13], tags) == ("us", "2026-06-01T12", ["nightly"])
    assert (stage.ticks(), stage.row()["cursor_at"]) == ([], None)
    assert [note.by for note in await stage.notes("triggered")] == ["ann"]


async def test_a_manual_run_counts_as_active(stage: Stage) -> None:
    """Rule 5: a tick waits for the manual run that holds the slot."""
    stage.workflow(max_active_runs=1)
    stage.now_is(june(1, 12))
    await stage.set(DAILY)
    run = await stage.schedules.trigger("w")
    stage.settle()
    assert await stage.look_at(june(2)) == []
    assert [str(holder) for holder in (await stage.schedules.show("w")).holders] == [run]
    stage.end_one()
    await stage.look()
    assert stage.ticks() == [june(2)]


async def test_a_tick_by_hand_that_has_a_run_is_refused(stage: Stage) -> None:
    """43: naming the run; asked for again it is a new attempt of the same tick, and the first one stays."""
    stage.workflow()
    stage.now_is(june(1, 12))
    await stage.set(DAILY)
    await stage.look_at(june(2))
    first = stage.run_at(june(2))
    with pytest.raises(WrongState, match=first):
        await stage.schedules.trigger("w", at=june(2))
    again = await stage.schedules.trigger("w", at=june(2), rerun=True, by="ann")
    assert again != first
    assert stage.store.rows("select tick, attempt, run_id::text, kind from durable.tick order by attempt") == [
        (june(2), 0, first, "schedule"), (june(2), 1, again, "manual"),
    ]  # fmt: skip
    [given] = stage.store.column("select input from durable.run where run_id = %s", again)
    assert (given["ds"], given["data_interval_end"]) == ("2026-06-01T00:00:00Z", "2026-06-02T00:00:00Z")


async def test_a_tick_by_hand_before_its_time_is_not_made_again(stage: Stage) -> None:
    """43: the schedule finds that the tick has its run."""
    stage.workflow()
    stage.now_is(june(1, 12))
    await stage.set(DAILY)
    run = await stage.schedules.trigger("w", at=june(2), by="ann")
    assert await stage.look_at(june(2)) == []
    assert (stage.run_at(june(2)), stage.row()["cursor_at"][:10]) == (run, "2026-06-02")
    assert await stage.look_at(june(3)) == [june(3)]


async def test_a_logical_time_needs_a_zone(stage: Stage) -> None:
    stage.workflow()
    with pytest.raises(WrongArguments, match="has no zone"):
        await stage.schedules.trigger("w", at=june(2).replace(tzinfo=None))


async def test_the_next_tick_can_be_left_out(stage: Stage) -> None:
    """skip-next: one tick, noted with who asked, and what was to come is listed without it."""
    stage.workflow()
    stage.now_is(june(1, 12))
    await stage.set(DAILY)
    assert await stage.schedules.skip_next("w", by="ann") == june(2)
    assert [tick.tick for tick in await stage.schedules.next("w", 2)] == [june(3), june(4)]
    assert await stage.look_at(june(2)) == []
    assert await stage.look_at(june(3)) == [june(3)]
    assert await stage.skips() == [("skipped by ann", 1)]
