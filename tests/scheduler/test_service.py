"""The scheduler as a service, beside real workers: told, not polled."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import pairwise

from durable import Durable, Settings, Worker, workflow
from scheduler.service import Scheduler
from tests.scheduler.stage import Stage, june

# A day: whatever happens within a test was not found by looking once in a while.
NEVER = 86_400.0


@workflow(max_active_runs=1)
async def one_at_a_time(ctx, ds: str):  # type: ignore[no-untyped-def]
    return ds


@workflow
async def plain(ctx):  # type: ignore[no-untyped-def]
    return None


@asynccontextmanager
async def serving(stage: Stage, **options: float) -> AsyncIterator[Scheduler]:
    scheduler = Scheduler(stage.dsn, fallback=options.get("fallback", NEVER))
    task = asyncio.create_task(scheduler.run())
    await scheduler.ready()
    try:
        yield scheduler
    finally:
        scheduler.stop()
        await task


@asynccontextmanager
async def working(stage: Stage) -> AsyncIterator[None]:
    worker = Worker(stage.dsn, [one_at_a_time, plain], settings=Settings(lease_seconds=30))
    task = asyncio.create_task(worker.run())
    await worker.ready()
    try:
        yield
    finally:
        worker.stop()
        await task


async def eventually(condition: Callable[[], Awaitable[bool] | bool], what: str, within: float = 30.0) -> None:
    deadline = time.monotonic() + within
    while True:
        found = condition()
        if found if isinstance(found, bool) else await found:
            return
        assert time.monotonic() < deadline, f"after {within:g} s still not: {what}"
        await asyncio.sleep(0.02)


def ended(stage: Stage, name: str) -> int:
    sql = "select count(*) from durable.run where workflow = %s and state = 'succeeded'"
    return int(stage.store.value(sql, name))


async def test_a_finished_run_starts_the_next_at_once(stage: Stage) -> None:
    """Thirty owed ticks and one slot, and nobody polls: each end starts the next, in order, never two at once."""
    stage.now_is(june(1, 12))
    async with working(stage), serving(stage):
        await stage.set("0 0 * * *", "one_at_a_time", catchup=True, start_date=june(1) - timedelta(days=30))
        await eventually(lambda: ended(stage, "one_at_a_time") == 30, "all thirty have run")
    spans = stage.store.rows("select started_at, finished_at from durable.run order by run_id")
    assert all(later[0] >= earlier[1] for earlier, later in pairwise(spans))


async def test_a_schedule_that_is_set_is_looked_at_at_once(stage: Stage) -> None:
    """The service hears of a new schedule, of the end of a pause, and rings by itself when a tick is due."""
    stage.now_is(june(1, 23, 59, 59))
    async with working(stage), serving(stage):
        await stage.set("@once", "plain")
        await eventually(lambda: ended(stage, "plain") == 1, "the run of @once")
        stage.now_is(june(1, 23, 59, 59))
        await stage.set("0 0 * * *", "one_at_a_time")
        await eventually(lambda: ended(stage, "one_at_a_time") == 1, "the run of midnight")
    assert stage.ticks("one_at_a_time") == [june(2)]


async def test_a_moved_clock_leaves_one_line(stage: Stage) -> None:
    """Two schedulers see a clock that goes forward and back; the history has a line for each move, not two."""
    stage.workflow()
    stage.now_is(june(1, 12))
    await stage.set("0 0 * * *")
    async with serving(stage) as first, serving(stage) as second:
        for day in (4, 2):
            stage.now_is(june(day, 12))
            await eventually(lambda day=day: looked_on(first, day) and looked_on(second, day), "both have seen it")  # type: ignore[misc]
    lines = [note.note for note in await stage.notes("clock")]
    assert [line.partition(";")[0] for line in lines] == [
        "the database's clock went back by 2 days", "the database's clock went forward by 3 days",
    ]  # fmt: skip
    assert clock_lines(stage) == 2


def looked_on(scheduler: Scheduler, day: int) -> bool:
    return scheduler.looked_at is not None and scheduler.looked_at.date() == june(day).date()


def clock_lines(stage: Stage) -> int:
    return int(stage.store.value("select count(*) from durable.schedule_note where kind = 'clock'"))


async def test_a_service_survives_its_connections(stage: Stage) -> None:
    """All its sessions are ended by the server: it comes back and makes what is due."""
    stage.workflow()
    stage.now_is(june(1, 12))
    await stage.set("0 0 * * *")
    async with serving(stage, fallback=0.2):
        kill = "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'durable-scheduler%'"
        stage.store.run(f"{kill} and datname = current_database()".replace("%", "%%"))
        stage.now_is(june(2))
        await eventually(lambda: stage.ticks() == [june(2)], "the tick of midnight")


async def test_a_queued_run_tells_a_client_who_holds_its_slot(stage: Stage) -> None:
    """A client and the command show the same: which run holds which slot."""
    stage.workflow(max_active_runs=1)
    first, second = stage.store.start("w"), stage.store.start("w")
    stage.settle()
    async with Durable(stage.dsn) as durable:
        assert await durable.state(second) == "queued"
        [held] = await durable.holders(second)
        assert (str(held.run_id), held.workflow, held.cap_key, held.slots) == (first, "w", "a:w", 1)
        assert await durable.holders(first) == []
