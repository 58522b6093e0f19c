"""Workflows that use every feature, and what each must come to. Their steps leave effects behind."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import psycopg

from durable import DurableContext, EventTimeout, NotRun, Ran, RetryPolicy, Start, current_step, workflow
from tests.faults.effects import world

QUICK = RetryPolicy(max_attempts=3, delay=0.02)
BOOK = "insert into booking (task_id, step, pid) values (%s, %s, %s)"


# -------------------------------------------------------------------- steps


async def act(value: int) -> int:
    await world().happen()
    return value + 1


async def stumble(value: int) -> int:
    """Fails twice, then succeeds."""
    await world().happen()
    attempt = current_step().attempt
    if attempt < 3:
        raise RuntimeError(f"attempt {attempt} fails")
    return value + attempt


async def linger(seconds: float) -> float:
    await world().happen()
    await asyncio.sleep(seconds)
    return seconds


async def die(value: int) -> int:
    """Takes the whole worker with it."""
    os.kill(os.getpid(), signal.SIGKILL)
    return value


async def book(connection: psycopg.AsyncConnection, value: int) -> int:
    info = current_step()
    await connection.execute(BOOK, (info.task_id, info.name, os.getpid()))
    return value + 1


def book_in_thread(connection: psycopg.Connection, value: int) -> int:
    info = current_step()
    connection.execute(BOOK, (info.task_id, info.name, os.getpid()))
    return value + 1


async def book_slowly(connection: psycopg.AsyncConnection, seconds: float) -> float:
    """Stays inside its transaction for a while."""
    info = current_step()
    await connection.execute(BOOK, (info.task_id, info.name, os.getpid()))
    await asyncio.sleep(seconds)
    return seconds


# -------------------------------------------------------------------- workflows


@workflow
async def chain(ctx: DurableContext, n: int, steps: int = 4) -> int:
    for _ in range(steps):
        n = await ctx.step("act", act, n)
    return n


@workflow
async def flaky(ctx: DurableContext, n: int) -> int:
    return int(await ctx.step("stumble", stumble, await ctx.step("act", act, n), retry=QUICK))


@workflow
async def sleeper(ctx: DurableContext, n: int, seconds: float = 0.05) -> int:
    n = await ctx.step("act", act, n)
    await ctx.sleep(seconds)
    n = await ctx.step("act", act, n)
    await ctx.sleep(seconds)
    return int(await ctx.step("act", act, n))


@workflow
async def ledger(ctx: DurableContext, n: int) -> int:
    n = await ctx.transaction("book", book, n)
    n = await ctx.step("act", act, n)
    n = await ctx.transaction("book", book_in_thread, n)
    return int(await ctx.transaction("book", book, n))


@workflow
async def slow_ledger(ctx: DurableContext, seconds: float) -> float:
    await ctx.step("act", act, 0)
    return float(await ctx.transaction("book", book_slowly, seconds))


@workflow
async def careful(ctx: DurableContext, n: int) -> int:
    async def confirm(value: int) -> Ran | NotRun:
        return Ran(value + 1) if await world().happened(ctx.task_id, "pay") else NotRun()

    n = await ctx.step("act", act, n)
    n = await ctx.at_most_once("pay", act, n, confirm=confirm)
    return int(await ctx.step("act", act, n))


@workflow
async def listens(ctx: DurableContext, event: str, n: int) -> list[int]:
    """Receives n events of one name by one wait, in any order."""
    heard = []
    for _ in range(n):
        heard.append(await ctx.wait_for_event(event))
        await ctx.step("act", act, n)
    return sorted(heard)


@workflow
async def speaks(ctx: DurableContext, event: str, n: int) -> int:
    for number in range(n):
        await ctx.step("act", act, number)
        await ctx.emit_event(event, number)
    return n


@workflow
async def council(ctx: DurableContext, name: str, me: int, size: int) -> int:
    """One of several who, turn by turn, speak and hear all the others at once."""

    async def speak(turn: int) -> int:
        await ctx.step("speak", act, turn)
        await ctx.emit_event(f"{name}.{turn}.{me}", me)
        return 0

    heard = 0
    for turn in range(3):
        others = [f"{name}.{turn}.{other}" for other in range(size) if other != me]
        heard += sum(await ctx.gather(speak(turn), *(ctx.wait_for_event(other, timeout=3600) for other in others)))
    return heard


@workflow
async def impatient(ctx: DurableContext, event: str) -> str:
    """A wait that times out: nobody ever emits this event."""
    await ctx.step("act", act, 0)
    try:
        await ctx.wait_for_event(event, timeout=0.1)
    except EventTimeout:
        return "timeout"
    return "event"


@workflow
async def family(ctx: DurableContext, n: int) -> int:
    """Children by map, by spawn and by hand, one of them with children of its own."""
    results = await ctx.map(chain, [{"n": i, "steps": 2} for i in range(n)])
    one = await ctx.spawn(sleeper, n)
    two = await ctx.spawn(chain, n, options=Start(priority=1))
    n = await ctx.step("act", act, n)
    return sum(results) + sum(await ctx.gather(one, two)) + n


@workflow
async def branches(ctx: DurableContext, n: int) -> list[int]:
    """Branches of one task that step, sleep and book at once."""

    async def slow(value: int) -> int:
        value = await ctx.step("slow", act, value)
        await ctx.sleep(0.05)
        return int(await ctx.step("slow", act, value))

    async def booked(value: int) -> int:
        return int(await ctx.transaction("book", book, await ctx.step("booked", act, value)))

    return await ctx.gather(slow(n), booked(n), ctx.step("direct", act, n))


@workflow(max_running=2)
async def narrow(ctx: DurableContext, n: int) -> int:
    n = await ctx.step("act", act, n)
    await ctx.sleep(0.03)
    return int(await ctx.step("act", act, n))


@workflow(max_active_runs=2)
async def exclusive(ctx: DurableContext, n: int) -> int:
    n = await ctx.step("act", act, n)
    await ctx.sleep(0.03)
    return int(await ctx.step("act", act, n))


@workflow(max_active_runs=2)
async def hoards(ctx: DurableContext, n: int) -> int:
    """Keeps its slot for an hour, if asked to."""
    await ctx.step("act", act, n)
    await ctx.sleep(3600 * n)
    return n


async def tidy(ctx: DurableContext, **_: Any) -> None:
    """A cleanup that takes steps, a sleep and a transaction."""
    await ctx.step("tidy", act, 0)
    await ctx.sleep(0.02)
    await ctx.transaction("book", book, 0)
    await ctx.step("tidy", act, 1)


@workflow(cleanup=tidy)
async def endless(ctx: DurableContext, n: int) -> int:
    """Goes on until it is cancelled, alone and with a child."""
    child = await ctx.spawn(restless, n)
    await ctx.step("act", act, n)
    return int(await ctx.wait_for(child))


@workflow
async def restless(ctx: DurableContext, n: int) -> int:
    while True:
        n = await ctx.step("act", act, n)
        await ctx.sleep(0.02)


@workflow(deadline=0.4, cleanup=tidy)
async def late(ctx: DurableContext, n: int) -> int:
    while True:
        n = await ctx.step("act", act, n)
        await ctx.sleep(0.05)


@workflow
async def orphaned(ctx: DurableContext, n: int) -> list[Any]:
    """A branch that never stops of its own will beside one that sleeps."""

    async def busy() -> None:
        while True:
            await ctx.step("busy", linger, 0.01)

    return await ctx.gather(busy(), ctx.sleep(3600))


@workflow
async def long_step(ctx: DurableContext, seconds: float) -> float:
    await ctx.step("act", act, 0)
    await ctx.step("linger", linger, seconds)
    return float(await ctx.step("linger", linger, 0.0))


@workflow
async def killer(ctx: DurableContext, n: int) -> int:
    await ctx.step("act", act, n)
    return int(await ctx.step("die", die, n))


ALL = [
    chain, flaky, sleeper, ledger, careful, listens, speaks, council, impatient, family, branches, narrow,
    exclusive, endless, restless, late, orphaned, long_step, killer, slow_ledger, hoards,
]  # fmt: skip
