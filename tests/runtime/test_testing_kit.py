"""The kit that users test their workflows with: time that is skipped, crashes, and what ran."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from durable import DurableContext, EventTimeout, RetryPolicy, RunFailed, Start, step, workflow
from durable.testing.lab import Lab
from durable.testing.stillness import Stuck

MakeLab = Callable[..., Lab]


async def charge() -> str:
    return "charged"


async def ship() -> str:
    return "shipped"


@workflow
async def order(ctx: DurableContext) -> str:
    await ctx.step(charge)
    await ctx.sleep(30 * 86400)
    return str(await ctx.step(ship))


async def test_a_thirty_day_sleep_takes_no_time(durable_lab: MakeLab) -> None:
    """`result` skips to the next timer whenever everything waits, and the clock of the run shows it."""

    @workflow
    async def timed(ctx: DurableContext) -> float:
        before = await ctx.now()
        await ctx.sleep(30 * 86400)
        return ((await ctx.now()) - before).total_seconds()

    async with durable_lab(timed) as lab:
        assert await lab.run(timed) >= 30 * 86400


async def test_time_can_be_skipped_step_by_step(durable_lab: MakeLab) -> None:
    """After a skip everything that became due has been done, and nothing else."""
    async with durable_lab(order) as lab:
        run = await lab.start(order)
        await lab.skip(days=29)
        assert (await lab.client.state(run), lab.ran(run)) == ("parked", ["charge"])
        await lab.skip(days=1, minutes=1)
        assert (await lab.client.state(run), lab.ran(run)) == ("succeeded", ["charge", "ship"])


async def test_retries_with_hours_between_them_take_no_time(durable_lab: MakeLab) -> None:
    """Every attempt is seen, and the rests in between are skipped."""
    left = [True, True, True]

    @step(retry=RetryPolicy(max_attempts=5, delay=3600, backoff=10, max_delay=1e6))
    async def flaky() -> int:
        if left and left.pop():
            raise ConnectionError("not today")
        return 42

    @workflow
    async def stubborn(ctx: DurableContext) -> Any:
        return await ctx.step(flaky)

    async with durable_lab(stubborn) as lab:
        run = await lab.start(stubborn)
        assert await lab.result(run) == 42
        assert lab.ran(run) == ["flaky"] * 4


@workflow
async def approval(ctx: DurableContext) -> str:
    try:
        return str(await ctx.wait_for_event("approved", timeout=7 * 86400))
    except EventTimeout:
        return "too late"


async def test_the_timeout_of_a_week_takes_no_time(durable_lab: MakeLab) -> None:
    """Without the event the wait times out; with it, it does not."""
    async with durable_lab(approval) as lab:
        assert await lab.run(approval) == "too late"
        run = await lab.start(approval)
        await lab.skip(days=6)
        await lab.emit("approved", "by ada")
        assert await lab.result(run) == "by ada"


async def test_a_run_that_starts_later_starts_at_once(durable_lab: MakeLab) -> None:
    """A start time and a deadline are timers like any other."""
    async with durable_lab(order) as lab:
        run = await lab.start(order, options=Start(deadline=86400))
        with pytest.raises(RunFailed, match="DeadlineExceeded"):
            await lab.result(run)


@pytest.mark.parametrize(
    ("moment", "ran"),
    [("crash_before", ["charge", "ship"]), ("crash_after", ["charge", "ship", "ship"])],
)
async def test_a_crash_does_not_repeat_a_recorded_step(durable_lab: MakeLab, moment: str, ran: list[str]) -> None:
    """What was recorded before the crash is replayed; only the step that was not recorded runs again."""
    async with durable_lab(order) as lab:
        getattr(lab, moment)("ship")
        run = await lab.start(order)
        assert await lab.result(run) == "shipped"
        assert (lab.ran(run), lab.crashes) == (ran, 1)
        assert [record.name for record in await lab.client.steps(run)].count("ship") == 1


async def test_a_worker_can_be_crashed_at_any_moment(durable_lab: MakeLab) -> None:
    """A step that runs is cut off and runs again under the next worker; the crashed one has said nothing more."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def long() -> str:
        begun.set()
        await go_on.wait()
        return "done"

    @workflow
    async def slow(ctx: DurableContext) -> Any:
        await ctx.step(charge)
        return await ctx.step(long)

    async with durable_lab(slow) as lab:
        run = await lab.start(slow)
        await begun.wait()
        await lab.crash_worker()
        go_on.set()
        assert await lab.result(run) == "done"
        assert lab.ran(run) == ["charge", "long", "long"]


async def test_without_a_worker_nothing_happens(durable_lab: MakeLab) -> None:
    """A crashed worker that is not replaced leaves its runs where they are."""
    async with durable_lab(order) as lab:
        run = await lab.start(order)
        await lab.settled()
        await lab.crash_worker(restart=False)
        assert await lab.client.state(run) == "parked"
        await lab.start_worker()
        assert await lab.result(run) == "shipped"
        assert lab.ran(run) == ["charge", "ship"]


@pytest.mark.parametrize("plain", [False, True])
async def test_a_transaction_step_takes_effect_once_through_a_crash(durable_lab: MakeLab, plain: bool) -> None:
    """Crashed between its writes and its commit it has written nothing, and runs again."""

    async def sell(connection: psycopg.AsyncConnection) -> None:
        await connection.execute("insert into sold values (1)")

    def sell_plainly(connection: psycopg.Connection) -> None:
        connection.execute("insert into sold values (1)")

    @workflow
    async def shop(ctx: DurableContext) -> None:
        await ctx.transaction("sell", sell_plainly if plain else sell)

    async with durable_lab(shop) as lab, await psycopg.AsyncConnection.connect(lab.dsn, autocommit=True) as session:
        await session.execute("create table sold (item int)")
        lab.crash_after("sell")
        run = await lab.start(shop)
        await lab.result(run)
        assert lab.ran(run) == ["sell", "sell"]
        assert await (await session.execute("select count(*) from sold")).fetchone() == (1,)


async def test_steps_of_children_count_as_the_runs_own(durable_lab: MakeLab) -> None:
    """`ran` shows what a run did, in whichever of its tasks."""

    @workflow
    async def parent(ctx: DurableContext) -> Any:
        return await ctx.map(order, [{}, {}])

    async with durable_lab(parent, order) as lab:
        run = await lab.start(parent)
        assert await lab.result(run) == ["shipped", "shipped"]
        assert sorted(lab.ran(run)) == ["charge", "charge", "ship", "ship"]


async def test_a_run_that_nobody_will_wake_fails_the_test_and_says_why(durable_lab: MakeLab) -> None:
    """Instead of a timeout: the name of the event that it waits for."""

    @workflow
    async def patient(ctx: DurableContext) -> None:
        await ctx.wait_for_event("godot")

    async with durable_lab(patient) as lab:
        with pytest.raises(Stuck, match="is parked and waits for event 'godot'"):
            await lab.run(patient)


async def test_an_event_from_elsewhere_is_waited_for(durable_lab: MakeLab) -> None:
    """Another task of the test may emit what a run waits for."""

    @workflow
    async def patient(ctx: DurableContext) -> Any:
        return await ctx.wait_for_event("godot")

    async with durable_lab(patient) as lab:
        run = await lab.start(patient)
        waiting = asyncio.create_task(lab.result(run))
        await lab.settled()
        await lab.emit("godot", "here")
        assert await waiting == "here"


async def test_labs_do_not_see_each_other(durable_lab: MakeLab, durable_databases: Any) -> None:
    """A crash point of one lab leaves the worker of another alone."""
    other = durable_databases.create()
    async with durable_lab(order) as lab, Lab(other, [order]) as second:
        lab.crash_before("ship")
        run, theirs = await lab.start(order), await second.start(order)
        assert await second.result(theirs) == "shipped"
        assert (second.crashes, second.ran(run), second.ran(theirs)) == (0, [], ["charge", "ship"])
        assert await lab.result(run) == "shipped"
        assert lab.crashes == 1
    durable_databases.drop(other)
