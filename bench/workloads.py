"""The workflows that are measured. Their steps do nothing: what is left is the cost of the runtime."""

from __future__ import annotations

import time
from typing import Any

from durable import DurableContext, workflow


async def add_one(number: int) -> int:
    return number + 1


async def wall_clock() -> float:
    return time.time()


@workflow
async def ten_steps(ctx: DurableContext, number: int) -> int:
    for _ in range(10):
        number = await ctx.step(add_one, number)
    return number


@workflow
async def one_step(ctx: DurableContext, number: int) -> int:
    return int(await ctx.step(add_one, number))


@workflow
async def trivial(ctx: DurableContext, number: int) -> int:
    return number


@workflow
async def foreign(ctx: DurableContext, number: int) -> int:
    """Started, and served by no worker of the benchmarks."""
    return number


@workflow
async def waiting(ctx: DurableContext, event: str) -> float:
    """When it went on after its event, by this machine's clock."""
    await ctx.wait_for_event(event)
    return time.time()


@workflow
async def many_steps(ctx: DurableContext, steps: int) -> float:
    """Steps of different names, then a wait; the time of the first step after it."""
    for number in range(steps):
        await ctx.step(f"step {number}", add_one, number)
    await ctx.wait_for_event(f"go on/{ctx.run_id}")
    return float(await ctx.step(wall_clock))


@workflow
async def looping(ctx: DurableContext, rounds: int) -> float:
    """A loop around one step, then a wait; the time of the first step after it."""
    total = 0
    while total < rounds:
        total = await ctx.step(add_one, total)
    await ctx.wait_for_event(f"go on/{ctx.run_id}")
    return float(await ctx.step(wall_clock))


@workflow
async def fan_out(ctx: DurableContext, children: int) -> int:
    results = await ctx.map(trivial, [{"number": number} for number in range(children)])
    return sum(results)


@workflow
async def ticked(ctx: DurableContext) -> float:
    """When it began, by this machine's clock."""
    return time.time()


@workflow(max_active_runs=1)
async def in_line(ctx: DurableContext) -> None:
    """One at a time."""


SERVED: list[Any] = [ten_steps, one_step, trivial, waiting, many_steps, looping, fan_out, ticked, in_line]
