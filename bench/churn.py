"""Sustained churn: trivial tasks come and go with a steady backlog; the last part must be as fast as the first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from bench.probe import Probe
from bench.process import worker
from bench.result import Budget, Result
from bench.stage import Stage
from bench.workloads import trivial
from durable import Durable

BACKLOG = 5_000
BATCH = 1_000
PARTS = 10

# The time between the ends of neighbouring tenths: tasks that end in one flush have one time.
TOOK = """
select array_agg(extract(epoch from x.until - x.since) order by x.part) from (
  select t.part, max(t.finished_at) as until,
         lag(max(t.finished_at), 1, min(t.started_at)) over (order by t.part) as since
  from (select finished_at, started_at, ntile(%s) over (order by finished_at) as part from durable.task) t group by 1) x
"""


async def run(stage: Stage) -> AsyncIterator[Result]:
    count = stage.sizes.churn
    async with stage.database() as dsn, Durable(dsn) as durable, await Probe.open(dsn) as probe:
        await durable.start_many(trivial, [{"number": 0}] * min(BACKLOG, count))
        async with worker(dsn):
            await _keep_up(durable, probe, count)
            await probe.drained(trivial.name)
        rates = [count / PARTS / max(float(took), 0.001) for took in await probe.value(TOOK, (PARTS,))]
    values = {
        "tasks/s": PARTS / sum(1 / rate for rate in rates),
        "tasks/s, first tenth": rates[0],
        "tasks/s, last tenth": rates[-1],
        "tasks/s, slowest tenth": min(rates),
    }
    yield Result("churn", f"{count:,} short tasks, a backlog of {BACKLOG:,}", values, "rows_per_s")


async def _keep_up(durable: Durable, probe: Probe, count: int) -> None:
    """Start tasks as they end, so that about as many are ready all the time."""
    started = min(BACKLOG, count)
    while started < count:
        waiting = await probe.value("select count(*) from durable.ready")
        if waiting >= BACKLOG:
            await asyncio.sleep(probe.POLL)
            continue
        batch = min(BATCH, count - started)
        await durable.start_many(trivial, [{"number": 0}] * batch)
        started += batch


def judge(results: list[Result]) -> None:
    for result in results:
        share = result.values["tasks/s, last tenth"] / result.values["tasks/s, first tenth"]
        result.budgets = [Budget("of the rate of the first tenth", 0.8, share)]
