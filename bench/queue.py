"""W2: trivial tasks enqueued in bulk by one process and drained by one worker, on empty and on full tables."""

from __future__ import annotations

import statistics
import time
from collections.abc import AsyncIterator

from bench.filling import fill, fill_ready, settle
from bench.probe import Probe
from bench.process import worker
from bench.result import Budget, Result
from bench.stage import Stage
from bench.workloads import SERVED, foreign, trivial
from durable import Durable

# As with the others that are measured beside us: two sizes are tried, and the better one counts.
BATCHES = (1_000, 5_000)
SLOTS = (500, 1_000)
BESIDE = "tasks/s on empty tables, before and after"


async def run(stage: Stage) -> AsyncIterator[Result]:
    sizes = stage.sizes
    async with stage.database() as dsn, Durable(dsn, workflows=[*SERVED, foreign]) as durable, \
            await Probe.open(dsn) as probe:  # fmt: skip
        yield await _enqueue(durable, sizes.trivial, "empty tables")
        drained = await _drain(dsn, probe, sizes.trivial, "empty tables")
    yield await _better(stage, drained)
    full = f"{sizes.finished:,} finished + {sizes.parked:,} parked + {sizes.ready:,} ready"
    async with stage.database() as dsn, Durable(dsn, workflows=[*SERVED, foreign]) as durable, \
            await Probe.open(dsn) as probe:  # fmt: skip
        await fill(probe, finished=sizes.finished, parked=sizes.parked)
        await fill_ready(probe, foreign.name, sizes.ready)
        yield await _enqueue(durable, sizes.trivial, f"{full} of another workflow")
        yield await _drain_beside_empty(stage, dsn, probe, sizes.trivial, f"{full} of another workflow")
        await fill_ready(probe, trivial.name, sizes.ready)
        yield await _drain_beside_empty(stage, dsn, probe, sizes.ready, f"{full} of its own", settled=True)


async def _enqueue(durable: Durable, count: int, case: str) -> Result:
    await durable.start_many(trivial, [{"number": 0}])
    half = (count - 1) // 2
    rates = {
        f"tasks/s, {batch:,} at once": share / await _enqueue_by(durable, share, batch)
        for batch, share in zip(BATCHES, (half, count - 1 - half), strict=True)
    }
    return Result("W2", f"enqueue, {case}", {"tasks/s": max(rates.values()), **rates}, "rows_per_s")


async def _enqueue_by(durable: Durable, count: int, batch: int) -> float:
    """The seconds it took."""
    began = time.perf_counter()
    for first in range(0, count, batch):
        await durable.start_many(trivial, [{"number": 0}] * min(batch, count - first))
    return time.perf_counter() - began


async def _better(stage: Stage, drained: Result) -> Result:
    """The better of a drain with few slots and one with many."""
    many = await _drain_empty(stage, settled=False, slots=SLOTS[1])
    rates = [each.values["tasks/s"] for each in (drained, many)]
    better = drained if rates[0] >= rates[1] else many
    better.values |= {f"tasks/s, {slots:,} slots": rate for slots, rate in zip(SLOTS, rates, strict=True)}
    return better


async def _drain(dsn: str, probe: Probe, count: int, case: str, slots: int = SLOTS[0]) -> Result:
    """From the moment the worker is ready until the last task has ended: its first connections count."""
    transactions = await probe.transactions()
    async with worker(dsn, slots=slots) as process:
        used = await process.used()
        await probe.drained(trivial.name)
        seconds = await probe.last_end() - process.ready_at
        after, server = await process.used(), await probe.server_cpu()
    transactions = await probe.transactions() - transactions
    values = {
        "tasks/s": count / seconds,
        "commits/task": transactions / count,
        "worker cpu us/task": (after["cpu_s"] - used["cpu_s"]) / count * 1e6,
        "server cpu us/task": server / count * 1e6,
    }
    return Result("W2", f"drain, {case}", values, "rows_per_s")


async def _drain_beside_empty(
    stage: Stage, dsn: str, probe: Probe, count: int, case: str, settled: bool = False
) -> Result:
    """A drain of full tables between two of empty ones: what else the machine does then falls on all of them.

    `settled`: there was a checkpoint since the tasks were enqueued; the first change of a page after one costs more.
    """
    before = await _drain_empty(stage, settled)
    result = await _drain(dsn, probe, count, case)
    after = await _drain_empty(stage, settled)
    result.values[BESIDE] = statistics.fmean(each.values["tasks/s"] for each in (before, after))
    return result


async def _drain_empty(stage: Stage, settled: bool, slots: int = SLOTS[0]) -> Result:
    async with stage.database() as dsn, Durable(dsn, workflows=SERVED) as durable, await Probe.open(dsn) as probe:
        await _enqueue_by(durable, stage.sizes.trivial, BATCHES[0])
        if settled:
            await settle(probe)
        return await _drain(dsn, probe, stage.sizes.trivial, "empty tables", slots)


def judge(results: list[Result]) -> None:
    """Draining full tables is compared with draining empty ones beside it."""
    for result in results:
        if BESIDE in result.values:
            share = result.values["tasks/s"] / result.values[BESIDE]
            result.budgets = [Budget("of the rate on empty tables", 0.8, share)]
