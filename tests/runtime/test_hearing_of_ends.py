"""Whoever waits for a run hears of its end by a notification; where nobody waits, nobody is notified."""

from __future__ import annotations

import psycopg
import pytest

from durable import DurableContext, RunCancelled, workflow
from durable.completions import Completions

from .conftest import Runtime


@workflow
async def ends(ctx: DurableContext, number: int) -> int:
    return number


@workflow
async def waits(ctx: DurableContext) -> None:
    await ctx.wait_for_event("never")


@pytest.fixture
def no_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look once an hour: what is heard in a test is heard by notification."""
    monkeypatch.setattr(Completions, "POLL", 3600.0)


@pytest.mark.parametrize("runs", [1, 50], ids=["told by the commit", "told after it"])
async def test_ends_are_heard(runtime: Runtime, no_polling: None, runs: int) -> None:
    """Of one run, and of many that end at once."""
    await runtime.work(ends)
    assert await runtime.run(ends, 7) == 7
    ids = await runtime.client.start_many(ends, [{"number": number} for number in range(runs)])
    assert [await runtime.client.result(run_id, timeout=30) for run_id in ids] == list(range(runs))


async def test_a_waiting_run_that_is_cancelled_is_heard(runtime: Runtime, no_polling: None) -> None:
    """It ends in the store, and no worker runs it then."""
    await runtime.work(waits)
    run_id = await runtime.client.start(waits)
    await runtime.state_is(run_id, "parked")
    await runtime.client.cancel(run_id)
    with pytest.raises(RunCancelled):
        await runtime.client.result(run_id, timeout=30)


async def test_nobody_is_notified_where_nobody_waits(runtime: Runtime) -> None:
    """A session that only listens hears of no end; with somebody who waits, it does."""
    await runtime.work(ends)
    async with await psycopg.AsyncConnection.connect(runtime.dsn, autocommit=True) as ear:
        await ear.execute("listen durable_done")
        for runs in (1, 50):
            for run_id in await runtime.client.start_many(ends, [{"number": 0}] * runs):
                await runtime.state_is(run_id, "succeeded")
        await runtime.sql("select pg_notify('durable_done', 'nothing before')")
        # The first may have ended before anybody waits; the client waits on for whatever comes next.
        assert [await runtime.run(ends, number) for number in (1, 2)] == [1, 2]
        heard = [notice.payload async for notice in ear.notifies(timeout=30, stop_after=2)]
    assert heard[0] == "nothing before"
    assert len(heard) == 2
