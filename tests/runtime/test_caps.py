"""Caps are exact, under several workers, and never wait for themselves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from durable import DurableContext, Start, workflow
from durable.workflow import Workflow

from .conftest import Runtime


class Counter:
    """How many steps run at the same moment, and the most that ever did, by key."""

    def __init__(self) -> None:
        self.now: dict[str, int] = {}
        self.most: dict[str, int] = {}

    async def run(self, key: str) -> None:
        self.now[key] = self.now.get(key, 0) + 1
        self.most[key] = max(self.most.get(key, 0), self.now[key])
        await asyncio.sleep(0.005)
        self.now[key] -= 1


def counted(counter: Counter, **caps: Any) -> Workflow:
    @workflow(name="capped", **caps)
    async def capped(ctx: DurableContext, key: str = "all") -> str:
        await ctx.step("work", counter.run, key)
        return key

    return capped


@pytest.mark.parametrize("cap", ["max_active_runs", "max_running"])
async def test_a_cap_is_never_exceeded_and_always_filled(runtime: Runtime, cap: str) -> None:
    """Three of forty at a time, over two workers; all of them finish."""
    counter = Counter()
    capped = counted(counter, **{cap: 3})
    await runtime.work(capped)
    await runtime.work(capped)
    ids = await runtime.client.start_many(capped, [{}] * 40)
    for run_id in ids:
        await runtime.client.result(run_id, timeout=60)
    assert counter.most == {"all": 3}
    assert await runtime.sql("select 1 from durable.hold union all select 1 from durable.cap_queue") == []


async def test_a_cap_per_key_counts_each_key_by_itself(runtime: Runtime) -> None:
    """One run per customer at a time, customers side by side."""
    counter = Counter()
    capped = counted(counter, max_active_per_key=1)
    await runtime.work(capped)
    ids = []
    for number in range(20):
        key = f"customer-{number % 2}"
        ids.append(await runtime.client.start(capped, key, options=Start(cap_key=key)))
    for run_id in ids:
        await runtime.client.result(run_id, timeout=60)
    assert counter.most == {"customer-0": 1, "customer-1": 1}


async def test_a_parked_run_keeps_its_active_slot_and_lends_its_running_one(runtime: Runtime) -> None:
    """`max_active_runs` counts from start to end, `max_running` only while a run runs."""

    @workflow(max_active_runs=1)
    async def active(ctx: DurableContext) -> None:
        await ctx.wait_for_event("go")

    @workflow(max_running=1)
    async def running(ctx: DurableContext) -> None:
        await ctx.wait_for_event("go")

    await runtime.work(active, running)
    first, second = [await runtime.client.start(active) for _ in range(2)]
    ids = [await runtime.client.start(running) for _ in range(3)]
    for run_id in [first, *ids]:
        await runtime.state_is(run_id, "parked")
    assert await runtime.client.state(second) == "queued"
    await runtime.client.emit("go")
    for run_id in [first, second, *ids]:
        await runtime.client.result(run_id, timeout=30)


async def test_a_child_under_its_parents_cap_uses_the_parents_slot(runtime: Runtime) -> None:
    """A capped workflow that spawns itself does not wait for the slot it holds."""

    @workflow(max_active_runs=1)
    async def recursive(ctx: DurableContext, depth: int) -> int:
        return 1 if depth == 0 else 1 + int(await ctx.wait_for(await ctx.spawn(recursive, depth - 1)))

    await runtime.work(recursive)
    assert await runtime.run(recursive, 3) == 4


async def test_cancelling_a_queued_run_lets_the_next_one_in(runtime: Runtime) -> None:
    """A run that waits for a slot can be cancelled, and the line goes on without it."""

    @workflow(max_active_runs=1)
    async def waits(ctx: DurableContext, number: int) -> int:
        await ctx.wait_for_event(f"go-{number}")
        return number

    await runtime.work(waits)
    first, second, third = [await runtime.client.start(waits, n) for n in range(3)]
    await runtime.state_is(first, "parked")
    await runtime.client.cancel(second)
    await runtime.state_is(second, "cancelled")
    await runtime.client.emit("go-0")
    await runtime.client.emit("go-2")
    assert await runtime.client.result(third, timeout=30) == 2
