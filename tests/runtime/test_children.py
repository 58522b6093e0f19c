"""Children: spawned, waited for without a slot, failed into the parent, ended with it."""

from __future__ import annotations

from typing import Any

import pytest

from durable import ChildFailed, DurableContext, RunCancelled, RunFailed, Start, StepFailed, workflow

from .conftest import Runtime


async def echo(value: Any) -> Any:
    return value


@workflow
async def square(ctx: DurableContext, number: int) -> int:
    if number < 0:
        raise ValueError(f"{number} is negative")
    return int(await ctx.step(echo, number * number))


@workflow
async def sleeper(ctx: DurableContext, seconds: float = 86400.0) -> str:
    await ctx.sleep(seconds)
    return "slept"


@pytest.mark.parametrize("kept", [256, 0], ids=["from memory", "by replay"])
async def test_a_parent_waits_without_holding_the_slot(runtime: Runtime, kept: int) -> None:
    """Parent and children share one queue and one slot, and nobody waits for ever."""

    @workflow
    async def sums(ctx: DurableContext, count: int) -> int:
        return sum(await ctx.map(square, [{"number": n} for n in range(count)]))

    await runtime.work(sums, square, slots=1, kept_continuations=kept)
    assert await runtime.run(sums, 20) == sum(n * n for n in range(20))


async def test_gather_mixes_handles_and_branches(runtime: Runtime) -> None:
    """Handles of children, steps and sleeps are waited for together, in the order given."""

    @workflow
    async def mixed(ctx: DurableContext) -> list[Any]:
        first = await ctx.spawn(square, 3)
        second = await ctx.spawn(square, number=4)
        return [await ctx.gather(second, first), await ctx.gather(first, ctx.step(echo, "x"), ctx.sleep(0.01))]

    await runtime.work(mixed, square)
    assert await runtime.run(mixed) == [[16, 9], [9, "x", None]]


async def test_children_of_children(runtime: Runtime) -> None:
    """A child may spawn in its turn; one slot is enough for the whole tree."""

    @workflow
    async def tree(ctx: DurableContext, depth: int) -> int:
        if depth == 0:
            return 1
        return sum(await ctx.map(tree, [{"depth": depth - 1}] * 2))

    await runtime.work(tree, slots=1)
    assert await runtime.run(tree, 4) == 16


async def test_a_failed_child_is_raised_in_its_parent(runtime: Runtime) -> None:
    """The parent sees the child's own error, and may handle it."""

    @workflow
    async def handles(ctx: DurableContext) -> list[Any]:
        try:
            await ctx.map(square, [{"number": 2}, {"number": -1}])
        except ChildFailed as failed:
            return [failed.type, failed.message, await ctx.wait_for(await ctx.spawn(square, 5))]
        return []

    await runtime.work(handles, square, kept_continuations=0)
    assert await runtime.run(handles) == ["ValueError", "-1 is negative", 25]


async def test_an_unhandled_child_fails_the_run(runtime: Runtime) -> None:
    """What a parent does not catch is the error of the run."""

    @workflow
    async def passes_on(ctx: DurableContext) -> None:
        await ctx.wait_for(await ctx.spawn(square, -7))

    await runtime.work(passes_on, square)
    with pytest.raises(RunFailed, match="-7 is negative"):
        await runtime.run(passes_on)


async def test_the_first_failure_does_not_wait_for_the_others(runtime: Runtime) -> None:
    """`first_failure` raises at once; what still runs ends with its parent."""

    @workflow
    async def fails_fast(ctx: DurableContext) -> None:
        long = await ctx.spawn(sleeper)
        await ctx.wait_for([long, await ctx.spawn(square, -1)])

    await runtime.work(fails_fast, square, sleeper)
    with pytest.raises(RunFailed, match="negative"):
        await runtime.run(fails_fast)
    await runtime.until(lambda: _no_open_child(runtime))
    states = await runtime.sql("select state, error ->> 'message' from durable.branch where workflow = 'sleeper'")
    assert states == [("cancelled", "its parent ended")]


async def test_all_waits_for_every_child_first(runtime: Runtime) -> None:
    """`all` raises only after the last child ended."""

    @workflow
    async def waits_for_all(ctx: DurableContext) -> None:
        await ctx.wait_for([await ctx.spawn(square, -1), await ctx.spawn(sleeper, 60)], mode="all")

    await runtime.work(waits_for_all, square, sleeper)
    run_id = await runtime.client.start(waits_for_all)
    await runtime.until(lambda: _failed(runtime, "square"))
    await runtime.until(lambda: _parked(runtime, 2))
    await runtime.skip(61)
    with pytest.raises(RunFailed, match="negative"):
        await runtime.client.result(run_id, timeout=30)
    assert await runtime.sql("select state from durable.branch where workflow = 'sleeper'") == [("succeeded",)]


async def test_any_takes_the_first_that_ends(runtime: Runtime) -> None:
    """`any` returns the result of the first child that ends, and the rest ends with the parent."""

    @workflow
    async def first(ctx: DurableContext) -> Any:
        return await ctx.wait_for([await ctx.spawn(sleeper), await ctx.spawn(square, 6)], mode="any")

    await runtime.work(first, square, sleeper)
    assert await runtime.run(first) == 36
    await runtime.until(lambda: _no_open_child(runtime))


async def test_a_child_may_run_on_another_queue(runtime: Runtime) -> None:
    """The options of a spawn choose queue and priority."""

    @workflow
    async def sends_away(ctx: DurableContext) -> Any:
        return await ctx.wait_for(await ctx.spawn(square, 3, options=Start(queue="heavy", priority=1)))

    await runtime.work(sends_away)
    await runtime.client.register(square)
    run_id = await runtime.client.start(sends_away)
    await runtime.state_is(run_id, "parked")
    await runtime.work(square, queues=("heavy",))
    assert await runtime.client.result(run_id, timeout=30) == 9


async def test_cancel_reaches_every_child(runtime: Runtime) -> None:
    """Cancelling a run ends all tasks below it."""

    @workflow
    async def parent(ctx: DurableContext) -> None:
        await ctx.wait_for(await ctx.spawn(middle))

    @workflow
    async def middle(ctx: DurableContext) -> None:
        await ctx.map(sleeper, [{}, {}])

    await runtime.work(parent, middle, sleeper)
    run_id = await runtime.client.start(parent)
    await runtime.until(lambda: _parked(runtime, 4))
    await runtime.client.cancel(run_id)
    await runtime.state_is(run_id, "cancelled")
    await runtime.until(lambda: _no_open_child(runtime))
    assert await runtime.sql("select distinct state from durable.branch") == [("cancelled",)]


async def test_five_hundred_children_are_one_record(runtime: Runtime) -> None:
    """A fan-out costs its parent two records, however wide it is."""

    @workflow
    async def wide(ctx: DurableContext) -> int:
        return len(await ctx.map(square, [{"number": n} for n in range(500)]))

    await runtime.work(wide, square)
    run_id = await runtime.client.start(wide)
    assert await runtime.client.result(run_id, timeout=60) == 500
    own = await runtime.sql("select kind from durable.journal where task_id = %s order by pos", run_id)
    assert own == [("spawn",), ("child",)]


@pytest.mark.parametrize("kept", [256, 0], ids=["from memory", "by replay"])
async def test_a_run_may_start_runs(runtime: Runtime, kept: int) -> None:
    """They have rows of their own that name their starter, and their results come back in the order given."""

    @workflow
    async def starts(ctx: DurableContext) -> list[Any]:
        first = await ctx.start(square, 3)
        others = await ctx.start_many([(square, {"number": 4}), ("square", {"number": 5})])
        await ctx.sleep(0.01)
        return await ctx.gather(*others, first)

    await runtime.work(starts, square, kept_continuations=kept)
    run_id = await runtime.client.start(starts)
    assert await runtime.client.result(run_id, timeout=30) == [16, 25, 9]
    started = await runtime.client.runs(parent=run_id)
    assert [info.workflow for info in started] == ["square"] * 3
    assert await runtime.sql("select 1 from durable.open_child union all select 1 from durable.wait") == []


async def test_a_start_that_is_refused_is_a_recorded_failure(runtime: Runtime) -> None:
    """The workflow sees it as a failed step, now and on every replay."""

    @workflow
    async def tries(ctx: DurableContext) -> str:
        try:
            await ctx.start("nobody")
        except StepFailed as failed:
            await ctx.sleep(0.01)
            return failed.type
        return "started"

    await runtime.work(tries, kept_continuations=0)
    assert await runtime.run(tries) == "UnknownWorkflow"


async def test_a_task_may_end_itself_as_cancelled(runtime: Runtime) -> None:
    """Its cleanup runs, runs and tasks below it are cancelled, and `except Exception` cannot stop it."""
    cleaned = []

    async def clean(ctx: DurableContext) -> None:
        await ctx.step(echo, 1)
        cleaned.append(True)

    @workflow(cleanup=clean)
    async def gives_up(ctx: DurableContext) -> None:
        await ctx.spawn(sleeper)
        await ctx.start(sleeper)
        try:
            ctx.cancel("no use")
        except Exception:
            cleaned.append(False)

    await runtime.work(gives_up, sleeper)
    run_id = await runtime.client.start(gives_up)
    with pytest.raises(RunCancelled, match="no use"):
        await runtime.client.result(run_id, timeout=30)
    await runtime.until(lambda: _no_open_child(runtime))
    assert cleaned == [True]
    assert await runtime.sql("select distinct state from durable.branch") == [("cancelled",)]


async def _no_open_child(runtime: Runtime) -> bool:
    return not await runtime.sql("select 1 from durable.open_child")


async def _failed(runtime: Runtime, workflow: str) -> bool:
    return bool(await runtime.sql("select 1 from durable.branch where workflow = %s and state = 'failed'", workflow))


async def _parked(runtime: Runtime, count: int) -> bool:
    return (await runtime.sql("select count(*) from durable.task where state = 'parked'")) == [(count,)]
