"""Cancel, deadlines and cleanup: a stopped run starts no further step."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from durable import DurableContext, RunCancelled, RunFailed, Start, workflow

from .conftest import Runtime


async def echo(value: Any) -> Any:
    return value


async def test_cancelling_a_parked_run_is_immediate(runtime: Runtime) -> None:
    """A run that waits needs no worker to be cancelled but the one that applies it."""

    @workflow
    async def waits(ctx: DurableContext) -> None:
        await ctx.wait_for_event("never")

    await runtime.work(waits)
    run_id = await runtime.client.start(waits)
    await runtime.state_is(run_id, "parked")
    await runtime.client.cancel(run_id, "changed my mind")
    with pytest.raises(RunCancelled, match="changed my mind"):
        await runtime.client.result(run_id, timeout=30)
    assert await runtime.sql("select 1 from durable.wait") == []


@pytest.mark.parametrize("start", [Start(start_at=datetime.now(UTC) + timedelta(days=9)), Start(queue="nobody")])
async def test_cancelling_a_run_that_has_not_begun(runtime: Runtime, start: Start) -> None:
    """A delayed run and one that no worker has claimed end at once, and leave nothing behind."""

    @workflow
    async def idle(ctx: DurableContext) -> None:
        await ctx.step(echo, 1)

    await runtime.work(idle)
    run_id = await runtime.client.start(idle, options=start)
    await runtime.client.cancel(run_id)
    await runtime.state_is(run_id, "cancelled")
    assert await runtime.sql("select 1 from durable.ready union all select 1 from durable.timer") == []


async def test_a_running_run_stops_at_its_next_step(runtime: Runtime) -> None:
    """The step under way is finished and recorded; the next one never starts."""
    gate, begun = asyncio.Event(), asyncio.Event()
    ran: list[str] = []

    async def first() -> None:
        begun.set()
        await gate.wait()
        ran.append("first")

    async def second() -> None:
        ran.append("second")

    @workflow
    async def two(ctx: DurableContext) -> None:
        try:
            await ctx.step(first)
            await ctx.step(second)
        except Exception:
            # A cancel is no Exception: this cannot swallow it.
            ran.append("swallowed")

    await runtime.work(two)
    run_id = await runtime.client.start(two)
    await begun.wait()
    await runtime.client.cancel(run_id)
    await runtime.until(lambda: _told(runtime))
    gate.set()
    await runtime.state_is(run_id, "cancelled")
    assert ran == ["first"]
    assert await runtime.names(run_id) == ["first"]


@pytest.mark.parametrize("kept", [256, 0], ids=["from memory", "by replay"])
async def test_the_cleanup_runs_before_the_end(runtime: Runtime, kept: int) -> None:
    """A cancelled run with a cleanup runs it, with steps of its own, and then ends as cancelled."""
    undone: list[str] = []

    async def undo(order: str) -> None:
        undone.append(order)

    async def clean(ctx: DurableContext, order: str) -> None:
        await ctx.step(undo, order)

    @workflow(cleanup=clean)
    async def reserve(ctx: DurableContext, order: str) -> None:
        await ctx.step(echo, order)
        await ctx.wait_for_event("never")

    await runtime.work(reserve, kept_continuations=kept)
    run_id = await runtime.client.start(reserve, "o-1")
    await runtime.state_is(run_id, "parked")
    await runtime.client.cancel(run_id)
    await runtime.state_is(run_id, "cancelled")
    assert undone == ["o-1"]
    assert await runtime.names(run_id) == ["echo", "cleanup/undo"]


async def test_a_failing_cleanup_is_told(runtime: Runtime) -> None:
    """A cleanup that fails does not hide the cancel; its own error is kept beside it."""

    async def clean(ctx: DurableContext) -> None:
        raise OSError("could not undo")

    @workflow(cleanup=clean)
    async def reserve(ctx: DurableContext) -> None:
        await ctx.wait_for_event("never")

    await runtime.work(reserve)
    run_id = await runtime.client.start(reserve)
    await runtime.state_is(run_id, "parked")
    await runtime.client.cancel(run_id)
    await runtime.state_is(run_id, "cancelled")
    error = (await runtime.client.run(run_id)).error or {}
    assert error["cleanup"]["message"] == "could not undo"


async def test_a_run_past_its_deadline_fails(runtime: Runtime) -> None:
    """A deadline ends a parked run, a running one at its next step, and a run that never began."""

    @workflow(deadline=3600)
    async def late(ctx: DurableContext) -> None:
        await ctx.wait_for_event("never")

    await runtime.work(late)
    parked = await runtime.client.start(late)
    unclaimed = await runtime.client.start(late, options=Start(queue="nobody", deadline=60))
    await runtime.state_is(parked, "parked")
    await runtime.skip(3601)
    for run_id in (parked, unclaimed):
        with pytest.raises(RunFailed, match="DeadlineExceeded"):
            await runtime.client.result(run_id, timeout=30)


async def test_a_workers_passer_knows_the_deadlines_of_runs_and_children(runtime: Runtime) -> None:
    """A deadline is acted on when it is due, although nobody polls: the start and the spawn told the worker."""

    @workflow
    async def late(ctx: DurableContext) -> None:
        await ctx.wait_for_event("never")

    @workflow
    async def parent(ctx: DurableContext) -> None:
        await ctx.wait_for(await ctx.spawn(late, options=Start(deadline=0.3)))

    await runtime.work(late, parent, poll_seconds=3600, idle_poll_seconds=3600)
    own = await runtime.client.start(late, options=Start(deadline=0.3))
    with pytest.raises(RunFailed, match="DeadlineExceeded"):
        await runtime.client.result(own, timeout=30)
    with pytest.raises(RunFailed, match="deadline"):
        await runtime.run(parent)


async def test_a_run_in_time_forgets_its_deadline(runtime: Runtime) -> None:
    """The deadline of a finished run leaves no timer behind."""

    @workflow(deadline=timedelta(hours=1))
    async def quick(ctx: DurableContext) -> str:
        return str(await ctx.step(echo, "ok"))

    await runtime.work(quick)
    assert await runtime.run(quick) == "ok"
    assert await runtime.sql("select 1 from durable.timer") == []


async def _told(runtime: Runtime) -> bool:
    return bool(await runtime.sql("select 1 from durable.held where stop"))
