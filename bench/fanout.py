"""W6: a parent that spawns many children and waits for all of them, one worker process."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

from bench.probe import Probe
from bench.process import WorkerProcess, worker
from bench.result import Budget, Result
from bench.stage import Stage
from bench.workloads import fan_out
from durable import Durable


async def run(stage: Stage) -> AsyncIterator[Result]:
    async with stage.database() as dsn, worker(dsn) as process, Durable(dsn) as durable, \
            await Probe.open(dsn) as probe:  # fmt: skip
        await durable.result(await durable.start(fan_out, 10))
        for children in stage.sizes.children:
            yield await _measure(durable, process, probe, children)


async def _measure(durable: Durable, process: WorkerProcess, probe: Probe, children: int) -> Result:
    used, transactions, server = await process.used(), await probe.transactions(), await probe.server_cpu()
    began = time.perf_counter()
    await durable.result(await durable.start(fan_out, children))
    seconds = time.perf_counter() - began
    after, transactions = await process.used(), await probe.transactions() - transactions
    server = await probe.server_cpu() - server
    values = {
        "seconds": seconds,
        "children/s": children / seconds,
        "commits/child": transactions / children,
        "worker cpu us/child": (after["cpu_s"] - used["cpu_s"]) / children * 1e6,
        "server cpu us/child": server / children * 1e6,
    }
    return Result("W6", f"parent with {children:,} children", values)


def judge(results: list[Result]) -> None:
    """Linear, with a little for what grows slowly."""
    if len(results) == 2:
        few, many = results
        grown = many.values["seconds"] / few.values["seconds"]
        size = (many.values["seconds"] * many.values["children/s"]) / (few.values["seconds"] * few.values["children/s"])
        many.budgets = [Budget(f"of the time of {few.case.split()[2]}", size * 1.25, grown, at_least=False)]
