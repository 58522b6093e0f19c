"""What steps in processes of their own say arrives in the store like what others say."""

from __future__ import annotations

from typing import Any

import pytest

from durable import DurableContext, RunFailed, workflow
from tests.runtime import spoken


@workflow
async def speaks(ctx: DurableContext, number: int) -> Any:
    return await ctx.step("say", spoken.told, number, lane="process")


@workflow
async def hangs(ctx: DurableContext) -> Any:
    return await ctx.step("hang", spoken.told_and_hung, timeout=2)


@workflow
async def speaks_much(ctx: DurableContext, size: int) -> Any:
    return await ctx.step("much", spoken.told_much, size, timeout=60)


@workflow
async def speaks_often(ctx: DurableContext, count: int) -> Any:
    return await ctx.step("often", spoken.told_often, count, timeout=60)


async def lines(runtime: Any, run: str) -> list[tuple[Any, ...]]:
    return [(line.level, line.step, line.message) for line in await runtime.client.logs(run)]


async def test_a_step_in_a_process_logs_to_the_store(runtime: Any) -> None:
    """Its lines and its progress are there when its run has ended, under its step, each run's with the run."""
    await runtime.work(speaks)
    runs = [await runtime.client.start(speaks, number) for number in range(3)]
    for number, run in enumerate(runs):
        assert await runtime.client.result(run, timeout=60) == number
        assert await lines(runtime, run) == [("info", "say", "working"), ("warning", "say", "done with it")]
        [progress] = await runtime.client.progress(run)
        assert (progress.done, progress.total, progress.note) == (number, 10, "on the way")
        assert (await runtime.client.logs(run))[0].fields == {"number": number}


async def test_the_last_words_of_a_killed_step_are_heard(runtime: Any) -> None:
    """Its time is over and its process is killed; what it had said before is in the log."""
    await runtime.work(hangs)
    run = await runtime.client.start(hangs)
    with pytest.raises(RunFailed, match="its process was killed"):
        await runtime.client.result(run, timeout=60)
    assert await lines(runtime, run) == [("info", "hang", "last words")]
    assert [(p.done, p.total) for p in await runtime.client.progress(run)] == [(3, 4)]


async def test_a_line_that_is_too_long_is_clipped_and_not_lost(runtime: Any) -> None:
    """Its beginning arrives, and so does the next one."""
    await runtime.work(speaks_much)
    run = await runtime.client.start(speaks_much, 5_000_000)
    assert await runtime.client.result(run, timeout=60) == "said"
    long, after = await lines(runtime, run)
    assert long[2].startswith("x" * 1000)
    assert len(long[2]) < 2000
    assert after[2] == "after it"


async def test_a_step_that_says_much_is_heard_to_the_end(runtime: Any) -> None:
    """More than the system keeps for a listener: it waits for the worker, and no line is lost or out of order."""
    await runtime.work(speaks_often)
    run = await runtime.client.start(speaks_often, 3000)
    assert await runtime.client.result(run, timeout=60) == 3000
    assert [line[2] for line in await lines(runtime, run)] == [f"line {number}" for number in range(3000)]
