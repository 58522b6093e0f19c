"""What a person does after a failure, and what a replay refuses to do."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import psycopg
import pytest

from durable import ChildFailed, DurableContext, RunFailed, StepFailed, workflow
from durable.errors import WrongArguments, WrongState
from durable.journal import PATIENCE
from durable.link import Link, Told
from durable.writer import RECORD

from .conftest import Runtime


class Shop:
    """Steps with effects that can be counted, and a switch that makes one fail."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.broken = True

    async def charge(self) -> str:
        self.ran.append("charge")
        return "charged"

    async def ship(self) -> str:
        self.ran.append("ship")
        if self.broken:
            raise ConnectionError("the carrier is down")
        return "shipped"

    async def apologise(self) -> None:
        self.ran.append("apologise")


async def test_a_retried_run_goes_on_from_the_step_that_failed(runtime: Runtime) -> None:
    """What was recorded before the failure does not run again."""
    shop = Shop()

    @workflow
    async def order(ctx: DurableContext) -> list[str]:
        return [await ctx.step(shop.charge), await ctx.step(shop.ship)]

    await runtime.work(order)
    run_id = await runtime.client.start(order)
    with pytest.raises(RunFailed, match="the carrier is down"):
        await runtime.client.result(run_id, timeout=30)
    shop.broken = False
    await runtime.client.retry(run_id)
    assert await runtime.client.result(run_id, timeout=30) == ["charged", "shipped"]
    assert shop.ran == ["charge", "ship", "ship"]


async def test_a_retried_run_forgets_what_followed_the_failure(runtime: Runtime) -> None:
    """Steps of the failure's own path are neither demanded nor repeated; siblings keep their records."""
    shop = Shop()

    async def sibling() -> str:
        shop.ran.append("sibling")
        return "sibling"

    @workflow
    async def order(ctx: DurableContext) -> list[Any]:
        try:
            done = await ctx.gather(ctx.step(shop.ship), ctx.step(sibling))
        except StepFailed:
            await ctx.step(shop.apologise)
            raise
        await ctx.sleep(0.01)
        return done

    await runtime.work(order, kept_continuations=0)
    run_id = await runtime.client.start(order)
    with pytest.raises(RunFailed):
        await runtime.client.result(run_id, timeout=30)
    shop.broken = False
    await runtime.client.retry(run_id)
    assert await runtime.client.result(run_id, timeout=30) == ["shipped", "sibling"]
    assert sorted(shop.ran) == ["apologise", "ship", "ship", "sibling"]


async def test_retrying_a_run_retries_the_child_that_failed_it(runtime: Runtime) -> None:
    """A run that failed by a child goes on from the child's failed step."""
    shop = Shop()

    @workflow
    async def shipping(ctx: DurableContext) -> str:
        await ctx.step(shop.charge)
        return str(await ctx.step(shop.ship))

    @workflow
    async def order(ctx: DurableContext) -> Any:
        return await ctx.wait_for(await ctx.spawn(shipping))

    await runtime.work(order, shipping, kept_continuations=0)
    run_id = await runtime.client.start(order)
    with pytest.raises(RunFailed, match="the carrier is down"):
        await runtime.client.result(run_id, timeout=30)
    shop.broken = False
    await runtime.client.retry(run_id)
    assert await runtime.client.result(run_id, timeout=30) == "shipped"
    assert shop.ran == ["charge", "ship", "ship"]


async def test_only_a_run_that_failed_is_retried(runtime: Runtime) -> None:
    """A run that succeeded, or still goes on, is refused with what to do in its place."""

    @workflow
    async def fine(ctx: DurableContext, wait: bool) -> None:
        if wait:
            await ctx.wait_for_event("go")

    await runtime.work(fine)
    done = await runtime.client.start(fine, wait=False)
    await runtime.client.result(done, timeout=30)
    going = await runtime.client.start(fine, wait=True)
    with pytest.raises(WrongState, match=r"is succeeded.*Use fork"):
        await runtime.client.retry(done)
    with pytest.raises(WrongState, match=r"still going on.*Cancel it first"):
        await runtime.client.retry(going)


async def test_a_fork_takes_over_the_records_before_a_step(runtime: Runtime) -> None:
    """A new run with another input keeps what was recorded and runs from the chosen step on."""
    ran: list[str] = []

    async def part(name: str, suffix: str) -> str:
        ran.append(name)
        return name + suffix

    @workflow
    async def parts(ctx: DurableContext, suffix: str) -> list[str]:
        return [await ctx.step(name, part, name, suffix) for name in ("a", "b", "c")]

    await runtime.work(parts)
    run_id = await runtime.client.start(parts, "1")
    await runtime.client.result(run_id, timeout=30)
    forked = await runtime.client.fork(run_id, "b", input={"suffix": "2"})
    assert await runtime.client.result(forked, timeout=30) == ["a1", "b2", "c2"]
    assert ran == ["a", "b", "c", "b", "c"]
    assert await runtime.client.result(await runtime.client.fork(run_id), timeout=30) == ["a1", "b1", "c1"]
    with pytest.raises(WrongArguments, match="has no step 'z'; it has a, b, c"):
        await runtime.client.fork(run_id, "z")
    with pytest.raises(WrongArguments, match="missing 'suffix'"):
        await runtime.client.fork(run_id, "b", input={"x": 1})


async def test_a_replay_that_meets_another_step_stops_and_shows_both(runtime: Runtime) -> None:
    """Changed code is found out before it does anything new; the old code brings the run to its end."""
    shop = Shop()
    shop.broken = False
    changed = False

    @workflow
    async def order(ctx: DurableContext) -> str:
        if changed:
            await ctx.step(shop.apologise)
        await ctx.step(shop.charge)
        await ctx.wait_for_event("go")
        return str(await ctx.step(shop.ship))

    await runtime.work(order, kept_continuations=0)
    run_id = await runtime.client.start(order)
    await runtime.state_is(run_id, "parked")
    changed = True
    await runtime.client.emit("go")
    with pytest.raises(RunFailed, match=r"holds step 'charge' at position 0.*asked for 'apologise'"):
        await runtime.client.result(run_id, timeout=10 * PATIENCE + 20)
    assert shop.ran == ["charge"]
    changed = False
    await runtime.client.retry(run_id)
    assert await runtime.client.result(run_id, timeout=30) == "shipped"
    assert shop.ran == ["charge", "ship"]


async def test_a_workflow_that_ends_too_early_on_replay_is_stopped(runtime: Runtime) -> None:
    """Returning while the journal still holds records is a divergence too."""
    shop = Shop()
    changed = False

    @workflow
    async def order(ctx: DurableContext) -> str:
        if changed:
            return "early"
        await ctx.step(shop.charge)
        await ctx.wait_for_event("go")
        return "late"

    await runtime.work(order, kept_continuations=0)
    run_id = await runtime.client.start(order)
    await runtime.state_is(run_id, "parked")
    changed = True
    await runtime.client.emit("go")
    with pytest.raises(RunFailed, match=r"holds step 'charge' at position 0, but the workflow returned"):
        await runtime.client.result(run_id, timeout=30)


async def test_a_drained_worker_gives_its_tasks_back_uncharged(runtime: Runtime) -> None:
    """Stopping records the step under way, gives the task back at the next one, and another worker goes on."""
    gate, begun = asyncio.Event(), asyncio.Event()
    ran: list[str] = []

    async def first() -> None:
        ran.append("first")
        begun.set()
        await gate.wait()

    async def second() -> None:
        ran.append("second")

    @workflow
    async def two(ctx: DurableContext) -> str:
        await ctx.step(first)
        await ctx.step(second)
        return "done"

    await runtime.work(two)
    run_id = await runtime.client.start(two)
    await begun.wait()
    stopping = asyncio.create_task(runtime.stop())
    await asyncio.sleep(0.05)
    gate.set()
    await stopping
    assert await runtime.client.state(run_id) == "ready"
    assert await runtime.names(run_id) == ["first"]
    assert await runtime.sql("select lost from durable.task") == [(0,)]
    assert await runtime.sql("select 1 from durable.worker union all select 1 from durable.fence") == []
    await runtime.work(two)
    assert await runtime.client.result(run_id, timeout=30) == "done"
    assert ran == ["first", "second"]


async def test_a_step_that_never_ends_cannot_hold_up_a_drain(runtime: Runtime) -> None:
    """After `drain_seconds` the rest is given back as it is."""
    begun = asyncio.Event()

    async def endless() -> None:
        begun.set()
        await asyncio.sleep(3600)

    @workflow
    async def stuck(ctx: DurableContext) -> None:
        await ctx.step(endless)

    await runtime.work(stuck, drain_seconds=0.1)
    run_id = await runtime.client.start(stuck)
    await begun.wait()
    async with asyncio.timeout(20):
        await runtime.stop()
    assert await runtime.client.state(run_id) == "ready"


async def test_a_worker_declared_dead_begins_anew(runtime: Runtime) -> None:
    """A worker that lost its lease changes nothing more under its old id; its task runs on elsewhere or anew."""
    begun: list[asyncio.Event] = [asyncio.Event(), asyncio.Event()]
    gate = asyncio.Event()
    tries: list[int] = []

    async def effect() -> int:
        tries.append(1)
        begun[len(tries) - 1].set()
        if len(tries) == 1:
            await gate.wait()
        return len(tries)

    @workflow
    async def one(ctx: DurableContext) -> int:
        return int(await ctx.step(effect))

    worker = await runtime.work(one, lease_seconds=60)
    run_id = await runtime.client.start(one)
    await begun[0].wait()
    assert worker.term is not None
    old = worker.term.worker_id
    await runtime.sql("select durable.bury(worker_id, beat) from durable.worker")
    await runtime.sql("select pg_notify('durable_work', 'a')")
    assert await runtime.client.result(run_id, timeout=60) == 2
    assert worker.term.worker_id != old
    assert await runtime.sql("select lost, epoch from durable.task") == [(1, 2)]


async def test_a_child_that_failed_and_was_handled_stays_failed(runtime: Runtime) -> None:
    """Retrying a run does not touch children whose failure it had handled."""
    shop = Shop()
    ran: list[str] = []

    async def note() -> None:
        ran.append("child")

    @workflow
    async def fails(ctx: DurableContext) -> None:
        await ctx.step(note)
        raise ValueError("on purpose")

    @workflow
    async def order(ctx: DurableContext) -> str:
        with contextlib.suppress(ChildFailed):
            await ctx.wait_for(await ctx.spawn(fails))
        return str(await ctx.step(shop.ship))

    await runtime.work(order, fails, kept_continuations=0)
    run_id = await runtime.client.start(order)
    with pytest.raises(RunFailed, match="carrier"):
        await runtime.client.result(run_id, timeout=30)
    shop.broken = False
    await runtime.client.retry(run_id)
    assert await runtime.client.result(run_id, timeout=30) == "shipped"
    assert ran == ["child"]


async def test_a_record_whose_answer_was_lost_counts_once(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store has a single record, and its answer never came: sent again it meets itself, and the run goes on."""
    shop = Shop()
    lost: list[str] = []
    post = Link.post

    def loses(self: Link, sql: str, params: Any, told: Told, fault: str | None = None) -> None:
        def instead(answer: bytes | None, error: BaseException | None) -> None:
            lost.append(sql)
            told(None, psycopg.OperationalError("the connection is gone"))

        post(self, sql, params, instead if sql == RECORD and not lost else told, fault)

    @workflow
    async def order(ctx: DurableContext) -> list[str]:
        return [await ctx.step(shop.charge), await ctx.step("again", shop.charge), await ctx.step("last", shop.charge)]

    monkeypatch.setattr(Link, "post", loses)
    await runtime.work(order)
    assert await runtime.run(order) == ["charged"] * 3
    assert (lost, shop.ran) == ([RECORD], ["charge"] * 3)
    assert await runtime.sql("select pos, epoch from durable.journal order by pos") == [(0, 1), (1, 1), (2, 1)]
