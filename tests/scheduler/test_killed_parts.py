"""Schedulers that are killed while events, backfills and deadlines are at work: everything happens, and once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from scheduler.backfills import Backfills
from scheduler.deadlines import Alerts
from scheduler.triggers import Triggers
from tests.faults.fleet import eventually
from tests.scheduler.scheduler_process import Schedulers, locked
from tests.scheduler.stage import Stage, june


@pytest.fixture
def schedulers(stage: Stage, tmp_path: Path) -> Iterator[Schedulers]:
    started = Schedulers(stage.dsn, tmp_path)
    try:
        yield started
    finally:
        started.close()


async def begin(stage: Stage) -> None:
    """A daily schedule with a deadline that is over, a backfill of four ticks and an event that waits for its run."""
    stage.now_is(june(1, 12))
    stage.workflow("w", "alarm", "sink")
    await stage.set(deadline="2h", on_deadline="alarm")
    await stage.look_at(june(2))
    await Backfills(stage.dsn).create("w", june(-3), june(0), limit=10)
    await Triggers(stage.dsn).set("sink", ["n"])
    stage.store.emit("n", {"n": 1})
    stage.settle()


def found(stage: Stage) -> list[tuple[int, ...]]:
    """Runs of events, runs of backfills, alerts and their callbacks."""
    return stage.store.rows(
        "select (select count(*) from durable.run where workflow = 'sink'),"
        " (select count(*) from durable.tick i join durable.run r using (run_id) where i.kind = 'backfill'),"
        " (select count(*) from durable.alert), (select count(*) from durable.run where workflow = 'alarm')"
    )


@pytest.mark.parametrize(
    ("point", "left"),
    [
        ("trigger.applied", (0, 0, 0, 0)),
        ("backfill.applied", (1, 0, 0, 0)),
        ("deadline.applied", (1, 4, 0, 0)),
    ],
)
async def test_a_scheduler_killed_before_its_commit_leaves_nothing_of_it(
    stage: Stage, schedulers: Schedulers, point: str, left: tuple[int, ...]
) -> None:
    """What it had begun is undone as a whole; the next scheduler does it, once."""
    await begin(stage)
    stage.now_is(june(2, 3))
    assert schedulers.start(point).await_end(30) == -9
    eventually(lambda: locked(stage) == 0, "the dead scheduler's transaction is over")
    assert found(stage) == [left]
    schedulers.start()
    eventually(lambda: found(stage) == [(1, 4, 1, 1)], "another has done it")


async def test_random_kills_lose_and_double_nothing(stage: Stage, schedulers: Schedulers) -> None:
    """Four schedulers, one killed after the other, while events come, runs of a backfill end and deadlines pass."""
    choice = random.Random(7)
    stage.now_is(june(1))
    stage.workflow("w", "alarm", "sink")
    stage.workflow("each", "pair")
    await stage.set("*/10 * * * *", catchup="true", overlap="allow", deadline="15m", on_deadline="alarm")
    await Triggers(stage.dsn).set("sink", ["n"])
    await Triggers(stage.dsn).set("pair", ["n", "m"], mode="all")
    backfill = await Backfills(stage.dsn).create("w", june(-2), june(-1), limit=7)
    for _ in range(4):
        schedulers.start()
    for number in range(60):
        stage.now_is(june(1) + timedelta(minutes=number))
        for _ in range(5):
            stage.store.emit("n", {"n": number})
        stage.store.emit("m", {"n": number})
        stage.settle()
        for task in stage.worker.claim(30, [{"line": stage.store.lines[0], "prio": 8}]):
            stage.worker.end(task)
        if number % 3 == 0:
            await asyncio.sleep(choice.uniform(0, 0.1))
            schedulers.kill_one(choice)
            points = (None, "trigger.applied:2", "backfill.applied:2", "deadline.applied:1", "look.after:1")
            schedulers.start(choice.choice(points))

    def over() -> bool:
        stage.settle()
        for task in stage.worker.claim(30, [{"line": stage.store.lines[0], "prio": 8}]):
            stage.worker.end(task)
        done = stage.store.value("select state from durable.backfill where id = %s", backfill) == "done"
        alerted = stage.store.value("select coalesce(sum(ticks), 0) from durable.alert")
        return done and count(stage, "sink") >= 300 and count(stage, "pair") >= 60 and alerted >= 4

    for _ in range(2):
        schedulers.start()
    eventually(over, "all of it was done", within=60)
    assert (count(stage, "sink"), count(stage, "pair")) == (300, 60)
    assert stage.store.value("select count(distinct e) from durable.trigger_run, unnest(events) e") == 360
    made = stage.store.column("select tick from durable.tick where kind = 'backfill' order by tick")
    assert made == [june(-2) + timedelta(minutes=10 * step) for step in range(145)]
    # Ticks whose deadline passed while nobody looked may stand in one alert; none stands in two.
    alerts = await Alerts(stage.dsn).list()
    alerted = [alert.tick + timedelta(minutes=10 * step) for alert in alerts for step in range(alert.ticks)]
    assert sorted(alerted) == [june(1) + timedelta(minutes=10 * step) for step in range(1, 5)]
    assert len(alerts) == count(stage, "alarm")


def count(stage: Stage, workflow: str) -> int:
    return int(stage.store.value("select count(*) from durable.run where workflow = %s", workflow))
