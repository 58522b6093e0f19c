"""What a worker costs while nothing happens: statements, CPU and memory, without and with parked runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from bench.probe import Probe
from bench.process import WorkerProcess, worker
from bench.result import Budget, Result
from bench.stage import Stage
from bench.workloads import waiting
from durable import Durable

# Statistics reach the view when a session has been quiet for a while; counting needs a window that is longer.
COMMITS = "select xact_commit + xact_rollback from pg_stat_database where datname = current_database()"
BATCH = 1_000


async def run(stage: Stage) -> AsyncIterator[Result]:
    async with stage.database() as dsn, worker(dsn) as process, await Probe.open(dsn) as probe:
        yield await _rest(stage, process, probe, "idle worker")
        await _park(dsn, probe, stage.sizes.parked_in_memory)
        yield await _rest(stage, process, probe, f"worker that has parked {stage.sizes.parked_in_memory:,} runs")


async def _park(dsn: str, probe: Probe, count: int) -> None:
    async with Durable(dsn) as durable:
        for first in range(0, count, BATCH):
            events = range(first, min(first + BATCH, count))
            await durable.start_many(waiting, [{"event": f"never/{number}"} for number in events])
        await probe.parked(count)


async def _rest(stage: Stage, process: WorkerProcess, probe: Probe, case: str) -> Result:
    """Look at it for a while. The two commits of the looking itself are taken off."""
    seconds = stage.sizes.idle_seconds
    before, commits, written = await process.used(), await probe.value(COMMITS), await probe.transactions()
    await asyncio.sleep(seconds)
    after, commits = await process.used(), await probe.value(COMMITS) - commits - 2
    values = {
        "statements/s": max(0, commits) / seconds,
        "write commits/s": (await probe.transactions() - written) / seconds,
        "cpu ms/s": (after["cpu_s"] - before["cpu_s"]) * 1000 / seconds,
        "memory MB": after["memory_mb"],
    }
    return Result("idle", case, values)


def judge(results: list[Result]) -> None:
    empty, full = results
    grown = full.values["memory MB"] / empty.values["memory MB"]
    full.budgets = [Budget("of the memory of the idle one", 1.10, grown, at_least=False)]
