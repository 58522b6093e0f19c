"""Retention as a service of the worker."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from durable import DurableContext, Settings, workflow
from durable.errors import NoSuchRun
from durable.maintenance import Pruned, Pruner
from durable.testing.protocol import Store


@workflow
async def hello(ctx: DurableContext) -> str:
    return "hello"


def finished(dsn: str, count: int) -> None:
    """Runs and events that are over since a while."""
    with Store(dsn) as store:
        store.register("order")
        store.start_many("order", count)
        worker = store.worker()
        tasks = worker.claim(count)
        worker.flush(ends=[{"t": task.task_id, "e": task.epoch, "s": "succeeded"} for task in tasks])
        for number in range(3):
            store.emit("paid", number)
        worker.apply()
        store.skip("31 days")
        store.spawn("order")
        worker.end(worker.claim_one())


async def test_one_look_prunes_all_that_is_old_enough(durable_dsn: str) -> None:
    """In as many batches as it takes; younger runs stay."""
    finished(durable_dsn, 1200)
    pruner = Pruner(durable_dsn, Settings(retention_days=30))
    assert await pruner.run_once() == Pruned(1200, 3)
    assert await pruner.run_once() == Pruned(0, 0)
    with Store(durable_dsn) as store:
        assert store.value("select count(*) from durable.task") == 1


async def test_pruners_at_the_same_time_remove_each_run_once(durable_dsn: str) -> None:
    """Whoever comes second has nothing to do."""
    finished(durable_dsn, 600)
    pruners = [Pruner(durable_dsn, Settings(retention_days=30)) for _ in range(3)]
    counts = await asyncio.gather(*(pruner.run_once() for pruner in pruners))
    assert sum(pruned.runs for pruned in counts) == 600


async def test_a_batch_that_takes_long_is_made_smaller(durable_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs with many records are pruned a few at a time, and all the same."""
    finished(durable_dsn, 40)
    monkeypatch.setattr(Pruner, "MOST", 16)
    monkeypatch.setattr(Pruner, "LONGEST", 0.0)
    pruner = Pruner(durable_dsn, Settings(retention_days=30))
    assert await pruner.run_once() == Pruned(40, 3)
    assert pruner._batch < 16


async def test_a_worker_prunes_by_itself(runtime: Any) -> None:
    """On by default: a run is gone when it is older than the setting."""
    await runtime.work(hello, prune_seconds=0.05)
    run = await runtime.client.start(hello)
    assert await runtime.client.result(run, timeout=30) == "hello"
    await runtime.skip(31 * 86400)

    async def gone() -> bool:
        try:
            return not await runtime.client.run(run)
        except NoSuchRun:
            return True

    await runtime.until(gone)


async def test_retention_that_fails_does_not_end_the_worker(runtime: Any) -> None:
    """The worker goes on as the same one, and retention is tried again."""
    await runtime.sql("alter function durable.prune_runs(timestamptz, int, uuid) rename to hidden")
    worker = await runtime.work(hello, prune_seconds=0.01)
    before = worker.term.worker_id
    for _ in range(20):
        assert await runtime.run(hello) == "hello"
    assert worker.term.worker_id == before
