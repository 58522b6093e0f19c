"""Ticks: how long after its time a tick runs, how long after a run's end the next begins, and many ticks at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from bench.latency import spread
from bench.probe import Probe
from bench.process import worker
from bench.result import Result
from bench.stage import Stage
from bench.workloads import in_line, ticked
from durable import Durable
from scheduler.definition import Schedule
from scheduler.schedules import Schedules
from scheduler.service import Scheduler

LATE = "select extract(epoch from made_at - tick)::float8 from durable.tick order by tick"
RAN = (
    "select (r.result #>> '{}')::float8 - extract(epoch from i.tick)::float8 from durable.tick i"
    " join durable.run r using (run_id) where r.workflow = 'ticked' order by i.tick"
)
GAPS = (
    "select extract(epoch from t.started_at - lag(t.finished_at) over (order by t.task_id))::float8 from durable.task t"
    " where t.parent_id is null and t.finished_at is not null"
)
DONE = "select count(*) from durable.run where state = 'succeeded'"
MADE = "select count(*) from durable.tick"
MANY = (
    "insert into durable.workflow (name, registered_at) select 'many' || n, durable.now() from generate_series(1, %s) n"
)
MIDNIGHT = (
    "insert into durable.schedule (workflow, every, start_date, definition, since, next_at, changed_at)"
    " select name, interval '1 day', %(at)s, '', durable.now(), %(at)s, durable.now()"
    " from durable.workflow where name like 'many%%'"
)
# A tick a second: more of them at once would measure a queue.
SECOND = timedelta(seconds=1)
AT_ONCE = 500


async def run(stage: Stage) -> AsyncIterator[Result]:
    yield await _one_a_second(stage)
    yield await _one_after_the_other(stage)
    yield await _all_at_once(stage)


async def _one_a_second(stage: Stage) -> Result:
    """From the instant of a tick to the first line of its run, in another process."""
    count = max(3, stage.sizes.latencies // 10)
    async with stage.database() as dsn, worker(dsn), _scheduler(dsn), await Probe.open(dsn) as probe:
        await Schedules(dsn).set(ticked.name, Schedule.of(ticked.name, every=SECOND))
        await _await(probe, DONE, count)
        ran = [row for (row,) in await probe.rows(RAN)][1:]
        made = [row for (row,) in await probe.rows(LATE)][1:]
    values = spread(ran) | {"of it until made, p50 ms": spread(made)["p50 ms"]}
    return Result("ticks", "tick to running, one a second", values, "notify_ms")


async def _one_after_the_other(stage: Stage) -> Result:
    """A catchup with one slot: from the end of a run to the beginning of the next."""
    count = stage.sizes.latencies
    start = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=count)
    async with stage.database() as dsn, worker(dsn), _scheduler(dsn), await Probe.open(dsn) as probe:
        terms = {"schedule": "* * * * *", "start_date": start, "catchup": True}
        await Schedules(dsn).set(in_line.name, Schedule.of(in_line.name, **terms))
        await _await(probe, DONE, count - 1)
        gaps = [gap for (gap,) in await probe.rows(GAPS) if gap is not None]
    return Result("ticks", "end of a run to the next, one slot", spread(gaps), "notify_ms")


async def _all_at_once(stage: Stage) -> Result:
    """Five hundred schedules that are due at the same instant: until the last of their runs is there."""
    async with stage.database() as dsn, Durable(dsn), await Probe.open(dsn) as probe:
        await probe.run(MANY, (AT_ONCE,))
        at = datetime.now(UTC) + 2 * SECOND
        await probe.run(MIDNIGHT, {"at": at})
        async with _scheduler(dsn):
            await _await(probe, MADE, AT_ONCE)
            took = time.time() - at.timestamp()
        transactions = await probe.value("select count(distinct xmin::text) from durable.tick")
    values = {"ms until all are made": took * 1000, "transactions": float(transactions)}
    return Result("ticks", f"{AT_ONCE} schedules at one instant", values)


@asynccontextmanager
async def _scheduler(dsn: str) -> AsyncIterator[None]:
    service = Scheduler(dsn)
    running = asyncio.create_task(service.run())
    await service.ready()
    try:
        yield
    finally:
        service.stop()
        await running


async def _await(probe: Probe, sql: str, count: int) -> None:
    # The condition is in the database: there is no event to wait for.
    while await probe.value(sql) < count:  # noqa: ASYNC110
        await asyncio.sleep(probe.POLL)
