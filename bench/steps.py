"""W1: workflows of ten steps, one worker process, so many in flight."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import AsyncIterator

from bench import limits
from bench.probe import Probe
from bench.process import WorkerProcess, worker
from bench.result import Budget, Result
from bench.stage import Stage
from bench.workloads import ten_steps
from durable import Durable, Workflow

STEPS = 10
WARM_UP = 100
ROUNDS = 10

# What a turn is judged by: the median of the turns, each with the limits right before and after it.
OF_ROWS = "of the rows/s of bare inserts of 200"
OF_COMMITS = "a step / one bare commit"


async def run(stage: Stage) -> AsyncIterator[Result]:
    for workflows, in_flight in stage.sizes.in_flight:
        async with stage.database() as dsn, worker(dsn, slots=in_flight) as process:
            yield await _measure(stage, dsn, process, workflows, in_flight)


async def _measure(stage: Stage, dsn: str, process: WorkerProcess, workflows: int, in_flight: int) -> Result:
    """Several times, in turns with the bare limits: what else the machine does falls on both."""
    totals: dict[str, float] = defaultdict(float)
    turns: list[float] = []
    seconds = stage.sizes.limit_seconds / 2
    async with Durable(dsn) as durable, await Probe.open(dsn) as probe:
        await drain(durable, probe, ten_steps, min(WARM_UP, workflows))
        bare = [await limits.measure(stage.bare, seconds)]
        for _ in range(ROUNDS):
            before = await _used(process, probe)
            took = await drain(durable, probe, ten_steps, workflows)
            for name, used in (await _used(process, probe)).items():
                totals[name] += used - before[name]
            totals["seconds"] += took
            bare.append(await limits.measure(stage.bare, seconds))
            rate, beside = workflows * STEPS / took, limits.mean(bare[-2:])
            turns.append(beside.commits_per_s / rate if in_flight == 1 else rate / beside.rows_per_s)
    steps = workflows * ROUNDS * STEPS
    values = {
        "steps/s": steps / totals["seconds"],
        "ms/step": totals["seconds"] / steps * 1000,
        "commits/step": totals["commits"] / steps,
        "calls/step": totals["calls"] / steps,
        "entries/flush": totals["entries"] / totals["flushes"],
        "worker cpu us/step": totals["cpu_s"] / steps * 1e6,
        "server cpu us/step": totals["server"] / steps * 1e6,
        "worker cpu share": totals["cpu_s"] / totals["seconds"],
        OF_COMMITS if in_flight == 1 else OF_ROWS: statistics.median(turns),
    }
    against = "commits_per_s" if in_flight == 1 else "rows_per_s"
    return Result("W1", f"{workflows:,} workflows, {in_flight} in flight", values, against, limits.mean(bare))


async def drain(durable: Durable, probe: Probe, flow: Workflow, count: int) -> float:
    """How long some workflows take, from when they are started to the end of the last."""
    await durable.start_many(flow, [{"number": 0}] * count)
    began = time.time()
    await probe.drained(flow.name)
    return await probe.last_end() - began


async def _used(process: WorkerProcess, probe: Probe) -> dict[str, float]:
    """What the worker and its server have used until now."""
    return {
        **await process.used(),
        "commits": float(await probe.transactions()),
        "server": await probe.server_cpu(),
    }


def judge(results: list[Result]) -> None:
    """Judge the cases whose budget is a ratio to the bare limits."""
    for result in results:
        if result.case.endswith(" 500 in flight"):
            result.budgets = [Budget(OF_ROWS, 0.45, result.values[OF_ROWS])]
        elif result.case.endswith(" 1 in flight"):
            result.budgets = [Budget(OF_COMMITS, 1.25, result.values[OF_COMMITS], at_least=False)]
