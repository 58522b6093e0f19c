"""Retention of what schedulers leave behind: old things go in batches, and what still counts stays."""

from __future__ import annotations

from durable import Settings
from durable.maintenance import Pruner
from scheduler.backfills import BackfillLooks, Backfills
from scheduler.deadlines import DeadlineLooks
from scheduler.triggers import TriggerLooks, Triggers
from tests.scheduler.looking import look_at_all
from tests.scheduler.stage import Stage, june

KEPT = ("tick", "schedule_note", "backfill", "cap", "alert", "trigger_run", "trigger_event")


def counts(stage: Stage) -> dict[str, int]:
    return {name: stage.store.value(f"select count(*) from durable.{name}") for name in KEPT}


async def look(stage: Stage) -> None:
    stage.settle()
    for looks in (TriggerLooks(), BackfillLooks(), DeadlineLooks()):
        await look_at_all(looks, stage.connection)
    stage.settle()


async def test_old_history_goes_with_the_runs_it_tells_of(stage: Stage) -> None:
    """A year later nothing is left but the last tick and what a person should still read of the pruning itself."""
    stage.now_is(june(1, 12))
    stage.workflow("w", "pair", "sink")
    await stage.set(deadline="2h")
    await Triggers(stage.dsn).set("sink", ["n"])
    await Triggers(stage.dsn).set("pair", ["n", "m"], mode="all")
    await Backfills(stage.dsn).create("w", june(-2), june(0), limit=5)
    stage.store.emit("n", {})
    await stage.look_at(june(2))
    stage.now_is(june(2, 3))
    await look(stage)
    for task in stage.worker.claim(10):
        stage.worker.end(task)
    await look(stage)
    assert counts(stage) == {
        "tick": 4, "schedule_note": 5, "backfill": 1, "cap": 1, "alert": 1, "trigger_run": 1, "trigger_event": 1,
    }  # fmt: skip
    await stage.schedules.pause("w")
    stage.now_is(june(400))
    await Pruner(stage.dsn, Settings(retention_days=30)).run_once()
    assert counts(stage) == {
        "tick": 1, "schedule_note": 1, "backfill": 0, "cap": 1, "alert": 0, "trigger_run": 0, "trigger_event": 0,
    }  # fmt: skip
    assert stage.ticks() == [june(2)]
    [given_up] = await stage.notes("incomplete", "pair")
    assert given_up.note == "1 events were given up: the others of their set never came"


async def test_what_is_not_over_is_kept(stage: Stage) -> None:
    """A backfill that still runs, and events that nobody has looked at, however old."""
    stage.now_is(june(1, 12))
    stage.workflow("w", "sink")
    await stage.set()
    backfill = await Backfills(stage.dsn).create("w", june(-2), june(0))
    await Triggers(stage.dsn).set("sink", ["n"])
    stage.store.emit("n", {})
    stage.settle()
    stage.now_is(june(400))
    await Pruner(stage.dsn, Settings(retention_days=30)).run_once()
    assert (await Backfills(stage.dsn).show(backfill)).state == "running"
    await look(stage)
    assert stage.store.value("select count(*) from durable.run where workflow = 'sink'") == 1
