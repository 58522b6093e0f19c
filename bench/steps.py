"""W1: workflows of ten steps, one worker process, so many in flight."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

from bench.limits import Limits
from bench.probe import Probe
from bench.process import WorkerProcess, worker
from bench.result import Budget, Result
from bench.stage import Stage
from bench.workloads import ten_steps
from durable import Durable

STEPS = 10
WARM_UP = 100


async def run(stage: Stage) -> AsyncIterator[Result]:
    for workflows, in_flight in stage.sizes.in_flight:
        async with stage.database() as dsn, worker(dsn, slots=in_flight) as process:
            yield await _measure(dsn, process, workflows, in_flight)


async def _measure(dsn: str, process: WorkerProcess, workflows: int, in_flight: int) -> Result:
    async with Durable(dsn) as durable, await Probe.open(dsn) as probe:
        await durable.start_many(ten_steps, [{"number": 0}] * min(WARM_UP, workflows))
        await probe.drained(ten_steps.name)
        used, transactions, server = await process.used(), await probe.transactions(), await probe.server_cpu()
        await durable.start_many(ten_steps, [{"number": 0}] * workflows)
        began = time.time()
        await probe.drained(ten_steps.name)
        seconds = await probe.last_end() - began
        after, transactions = await process.used(), await probe.transactions() - transactions
        server = await probe.server_cpu() - server
    steps = workflows * STEPS
    values = {
        "steps/s": steps / seconds,
        "ms/step": seconds / steps * 1000,
        "commits/step": transactions / steps,
        "calls/step": (after["calls"] - used["calls"]) / steps,
        "entries/flush": (after["entries"] - used["entries"]) / (after["flushes"] - used["flushes"]),
        "worker cpu us/step": (after["cpu_s"] - used["cpu_s"]) / steps * 1e6,
        "server cpu us/step": server / steps * 1e6,
        "worker cpu share": (after["cpu_s"] - used["cpu_s"]) / seconds,
    }
    against = "commits_per_s" if in_flight == 1 else "rows_per_s"
    return Result("W1", f"{workflows:,} workflows, {in_flight} in flight", values, against)


def judge(results: list[Result]) -> None:
    """Judge the cases whose budget is a ratio to the bare limits."""
    for result in results:
        limits = result.limits
        assert limits is not None
        if result.case.endswith(" 500 in flight"):
            result.budgets = [Budget("of the rows/s of bare inserts of 200", 0.45, result.ratio or 0)]
        elif result.case.endswith(" 1 in flight"):
            result.budgets = [Budget("a step / one bare commit", 1.25, _commits(result, limits), at_least=False)]


def _commits(result: Result, limits: Limits) -> float:
    return result.values["ms/step"] / limits.commit_ms
