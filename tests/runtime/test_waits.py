"""Sleeps, events and branches: waiting frees the slot, and an outcome is decided once."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from durable import DurableContext, EventTimeout, RunFailed, workflow
from durable.passes import ALL_SHARDS

from .conftest import Runtime


async def echo(value: Any) -> Any:
    return value


@workflow
async def listens(ctx: DurableContext, event: str, timeout: float | None = None) -> Any:
    try:
        return await ctx.wait_for_event(event, timeout=timeout)
    except EventTimeout:
        return "timed out"


@pytest.mark.parametrize("kept", [256, 0], ids=["from memory", "by replay"])
async def test_sleeping_frees_the_slot(runtime: Runtime, kept: int) -> None:
    """Fifty sleeping runs need no slot: one slot brings them all to their end."""

    @workflow
    async def sleeps(ctx: DurableContext, number: int) -> int:
        await ctx.sleep(3600)
        return int(await ctx.step(echo, number))

    await runtime.work(sleeps, slots=1, kept_continuations=kept)
    ids = await runtime.client.start_many(sleeps, [{"number": n} for n in range(50)])
    for run_id in ids:
        await runtime.state_is(run_id, "parked")
    await runtime.skip(3601)
    assert [await runtime.client.result(run_id, timeout=30) for run_id in ids] == list(range(50))


async def test_sleep_until_needs_a_zone(runtime: Runtime) -> None:
    """A naive time is refused with what to add."""

    @workflow
    async def naive(ctx: DurableContext) -> None:
        await ctx.sleep_until(datetime(2030, 1, 1))

    await runtime.work(naive)
    with pytest.raises(RunFailed, match="without a zone; add tzinfo=UTC"):
        await runtime.run(naive)


async def test_sleep_until_ends_at_its_time(runtime: Runtime) -> None:
    """A run that sleeps until next month wakes when that time has come, and not before."""

    @workflow
    async def month(ctx: DurableContext) -> str:
        start = await ctx.now()
        await ctx.sleep_until(start.astimezone(UTC) + timedelta(days=30))
        return "a month later"

    await runtime.work(month)
    run_id = await runtime.client.start(month)
    await runtime.state_is(run_id, "parked")
    await runtime.skip(29 * 86400)
    await runtime.state_is(run_id, "parked")
    await runtime.skip(2 * 86400)
    assert await runtime.client.result(run_id, timeout=30) == "a month later"


async def test_an_event_reaches_whoever_waits_before_or_after(runtime: Runtime) -> None:
    """Every waiter receives an event, whether it began to wait before or after the emit."""
    await runtime.work(listens)
    before = await runtime.client.start(listens, "go")
    await runtime.state_is(before, "parked")
    await runtime.client.emit("go", {"n": 1})
    after = await runtime.client.start(listens, "go")
    assert await runtime.client.result(before, timeout=30) == {"n": 1}
    assert await runtime.client.result(after, timeout=30) == {"n": 1}


async def test_an_emit_inside_a_rolled_back_transaction_never_happened(runtime: Runtime) -> None:
    """Emitting is part of the caller's transaction."""
    import psycopg

    await runtime.work(listens)
    run_id = await runtime.client.start(listens, "go", timeout=3600)
    await runtime.state_is(run_id, "parked")
    async with await psycopg.AsyncConnection.connect(runtime.dsn) as connection:
        await runtime.client.emit("go", connection=connection)
        await connection.rollback()
    await runtime.skip(3601)
    assert await runtime.client.result(run_id, timeout=30) == "timed out"


async def test_the_same_key_emits_once(runtime: Runtime) -> None:
    """An emit with a key that was used before returns the first event and adds none."""
    first = await runtime.client.emit("paid", 1, key="order-42")
    assert await runtime.client.emit("paid", 2, key="order-42") == first
    assert await runtime.sql("select payload from durable.event") == [(1,)]


async def test_a_timed_out_wait_stays_timed_out(runtime: Runtime) -> None:
    """The outcome is recorded: an event that comes later never flips the branch, on replay either."""

    @workflow
    async def decides(ctx: DurableContext) -> list[Any]:
        try:
            outcome = await ctx.wait_for_event("late", timeout=60)
        except EventTimeout:
            outcome = "timed out"
        await ctx.wait_for_event("resume")
        return [outcome]

    await runtime.work(decides, kept_continuations=0)
    run_id = await runtime.client.start(decides)
    await runtime.state_is(run_id, "parked")
    await runtime.skip(61)
    await runtime.until(lambda: _has(runtime, run_id, "timeout"))
    await runtime.client.emit("late", "too late")
    await runtime.client.emit("resume")
    assert await runtime.client.result(run_id, timeout=30) == ["timed out"]


async def test_the_same_wait_in_a_loop_gets_the_next_event(runtime: Runtime) -> None:
    """A wait step receives each event of its name once, oldest first; another step is independent."""

    @workflow
    async def collects(ctx: DurableContext) -> list[Any]:
        numbers = [await ctx.wait_for_event("number") for _ in range(3)]
        return [*numbers, await ctx.wait_for_event("number", name="independent")]

    await runtime.work(collects, kept_continuations=0)
    for number in range(3):
        await runtime.client.emit("number", number)
    assert await runtime.run(collects) == [0, 1, 2, 0]


async def test_since_leaves_older_events_out(runtime: Runtime) -> None:
    """A wait with `since` receives only what was emitted from then on."""

    @workflow
    async def fresh(ctx: DurableContext) -> Any:
        return await ctx.wait_for_event("news", since=await ctx.now())

    await runtime.client.emit("news", "old")
    await runtime.work(fresh)
    run_id = await runtime.client.start(fresh)
    await runtime.state_is(run_id, "parked")
    await runtime.client.emit("news", "new")
    assert await runtime.client.result(run_id, timeout=30) == "new"


async def test_workflows_talk_by_events(runtime: Runtime) -> None:
    """An event emitted by one run resumes another, once per emit."""

    @workflow
    async def says(ctx: DurableContext, word: str) -> None:
        await ctx.emit_event("word", word)
        await ctx.sleep(0.01)

    await runtime.work(listens, says, kept_continuations=0)
    run_id = await runtime.client.start(listens, "word")
    await runtime.run(says, "hello")
    assert await runtime.client.result(run_id, timeout=30) == "hello"
    assert await runtime.sql("select count(*) from durable.event") == [(1,)]


@pytest.mark.parametrize("kept", [256, 0], ids=["from memory", "by replay"])
async def test_a_task_parks_only_when_all_branches_wait(runtime: Runtime, kept: int) -> None:
    """Steps, sleeps and waits run side by side; the slot is freed when the last of them waits."""
    gate = asyncio.Event()

    async def held() -> str:
        await gate.wait()
        return "stepped"

    @workflow
    async def branches(ctx: DurableContext) -> list[Any]:
        return await ctx.gather(ctx.step(held), ctx.sleep(60), ctx.wait_for_event("go"))

    await runtime.work(branches, kept_continuations=kept)
    run_id = await runtime.client.start(branches)
    await runtime.until(lambda: _waits(runtime, run_id))
    assert await runtime.client.state(run_id) == "running"
    gate.set()
    await runtime.state_is(run_id, "parked")
    await runtime.client.emit("go", "went")
    await runtime.skip(61)
    assert await runtime.client.result(run_id, timeout=30) == ["stepped", None, "went"]


async def test_a_branch_goes_on_while_another_still_runs(runtime: Runtime) -> None:
    """An event for one branch is taken while a step of another holds the task."""
    gate, heard = asyncio.Event(), asyncio.Event()

    async def held() -> str:
        await gate.wait()
        return "stepped"

    @workflow
    async def branches(ctx: DurableContext) -> list[Any]:
        async def listening() -> Any:
            word = await ctx.wait_for_event("go")
            heard.set()
            return await ctx.step(echo, word)

        return await ctx.gather(ctx.step(held), listening())

    await runtime.work(branches)
    run_id = await runtime.client.start(branches)
    await runtime.until(lambda: _waits(runtime, run_id))
    await runtime.client.emit("go", "went")
    async with asyncio.timeout(30):
        await heard.wait()
    assert await runtime.client.state(run_id) == "running"
    gate.set()
    assert await runtime.client.result(run_id, timeout=30) == ["stepped", "went"]


async def test_concurrent_branches_replay_in_their_recorded_order(runtime: Runtime) -> None:
    """What branches saw of each other the first time, they see again on every replay."""
    orders: list[list[str]] = []

    @workflow
    async def racing(ctx: DurableContext) -> list[str]:
        order: list[str] = []

        async def branch(name: str, pauses: list[float]) -> None:
            for pause in pauses:
                await ctx.sleep(pause, name=f"rest-{name}")
                await ctx.step(f"work-{name}", echo, name)
                order.append(name)

        await ctx.gather(branch("a", [0.02, 0.001]), branch("b", [0.001, 0.03]), branch("c", [0.01, 0.01]))
        orders.append(list(order))
        await ctx.sleep(60)
        return order

    await runtime.work(racing, kept_continuations=0)
    run_id = await runtime.client.start(racing)

    async def rests() -> bool:
        return bool(orders) and await runtime.client.state(run_id) == "parked"

    # Only then is what follows a replay: a task that still runs would see the time go by itself.
    await runtime.until(rests)
    await runtime.skip(61)
    result = await runtime.client.result(run_id, timeout=30)
    assert all(order == result for order in orders)
    assert len(orders) >= 2


async def test_a_continuation_in_memory_and_a_replay_give_the_same(runtime: Runtime) -> None:
    """A run that is resumed from memory records what a replayed one records."""

    @workflow
    async def mixed(ctx: DurableContext) -> list[Any]:
        first = await ctx.gather(ctx.step(echo, 1), ctx.sleep(0.02))
        await ctx.sleep(0.01)
        return [*first, await ctx.step(echo, 2)]

    await runtime.work(mixed)
    memory = await runtime.client.start(mixed)
    await runtime.client.result(memory, timeout=30)
    await runtime.stop()
    await runtime.work(mixed, kept_continuations=0)
    replayed = await runtime.client.start(mixed)
    await runtime.client.result(replayed, timeout=30)
    assert await runtime.names(memory) == await runtime.names(replayed)


async def _waits(runtime: Runtime, run_id: str) -> bool:
    return bool(await runtime.client.waits(run_id))


async def _has(runtime: Runtime, run_id: str, kind: str) -> bool:
    return any(step.kind == kind for step in await runtime.client.steps(run_id))


async def test_a_task_that_parked_under_running_code_goes_on(runtime: Runtime) -> None:
    """Code that is between two operations while every branch waits wakes its task, and gets its turn."""
    between = asyncio.Event()

    @workflow
    async def distracted(ctx: DurableContext) -> int:
        nap = asyncio.create_task(ctx.sleep(600))
        await between.wait()
        value = await ctx.step("later", one)
        nap.cancel()
        return int(value)

    async def one() -> int:
        return 1

    await runtime.work(distracted)
    run_id = await runtime.client.start(distracted)
    await runtime.state_is(run_id, "parked")
    between.set()
    assert await runtime.client.result(run_id, timeout=30) == 1


async def test_news_that_another_worker_found_reach_the_one_that_runs_the_task(runtime: Runtime) -> None:
    """A branch waits while another is in the middle of a step; the pass that gives it its event is somebody else's, and
    its own worker would not look for an hour."""
    heard = asyncio.Event()

    @workflow
    async def both(ctx: DurableContext) -> Any:
        async def hears() -> Any:
            value = await ctx.wait_for_event("go")
            heard.set()
            return value

        return (await ctx.gather(hears(), ctx.step("long", heard.wait)))[0]

    @workflow
    async def nothing(ctx: DurableContext) -> None:
        pass

    async def waits_quietly() -> bool:
        found = await runtime.sql("select (select count(*) from durable.wait), (select count(*) from durable.signal)")
        return found == [(1, 0)]

    await runtime.work(both, poll_seconds=3600, idle_poll_seconds=3600)
    run_id = await runtime.client.start(both)
    await runtime.until(waits_quietly)
    other = await runtime.work(nothing, poll_seconds=3600, idle_poll_seconds=3600)
    await runtime.sql("select durable.emit('go', '7', _notify => false)")
    assert other.term is not None
    other.term._passer.hint(ALL_SHARDS)
    assert await runtime.client.result(run_id, timeout=30) == 7


async def test_no_event_is_lost_on_a_task_that_is_parking(runtime: Runtime) -> None:
    """Events that come while their listeners register, park, are refused and park again are all heard."""

    async def a_moment() -> None:
        await asyncio.sleep(random.random() * 0.01)

    @workflow
    async def hears(ctx: DurableContext, number: int) -> list[Any]:
        names = [f"{side} {number}" for side in ("left", "right")]
        return await ctx.gather(*(ctx.wait_for_event(name, timeout=3600) for name in names))

    @workflow
    async def says(ctx: DurableContext, name: str) -> None:
        await ctx.step(a_moment)
        await ctx.emit_event(name, name)

    for _ in range(2):
        await runtime.work(hears, says)
    for first in range(0, 600, 200):
        starts = {
            number: [
                runtime.client.start(hears, number),
                *(runtime.client.start(says, f"{side} {number}") for side in ("left", "right")),
            ]
            for number in range(first, first + 200)
        }
        started = await asyncio.gather(*(asyncio.gather(*some) for some in starts.values()))
        heard = await asyncio.gather(*(runtime.client.result(run_id, timeout=30) for run_id, *_ in started))
        assert heard == [[f"left {number}", f"right {number}"] for number in starts]
