"""A worker with one slot and brisk tasks holds the next one already; it never keeps it from others for long."""

from __future__ import annotations

import asyncio

import pytest

from durable import DurableContext, RunCancelled, Worker, claims, term, workflow

from .conftest import Runtime

LONG = 3600.0


class Stage:
    """A one-slot worker whose tasks count as brisk, however slow the machine; one of them goes on when it is let."""

    def __init__(self, runtime: Runtime):
        self.runtime = runtime
        self.gate, self.blocked = asyncio.Event(), asyncio.Event()
        self.ran: list[int] = []
        stage = self

        async def act(number: int) -> int:
            stage.ran.append(number)
            return number

        async def hang() -> None:
            stage.blocked.set()
            await stage.gate.wait()
            stage.ran.append(-2)

        @workflow
        async def quick(ctx: DurableContext, number: int) -> int:
            return int(await ctx.step(act, number))

        @workflow
        async def slow(ctx: DurableContext) -> str:
            # The record of its first step brings the next task along.
            await ctx.step(act, -1)
            await ctx.step(hang)
            return "let go"

        self.quick, self.slow = quick, slow

    async def worker(self) -> Worker:
        return await self.runtime.work(self.quick, self.slow, slots=1)

    async def start(self, numbers: range) -> list[str]:
        return await self.runtime.client.start_many(self.quick, [{"number": number} for number in numbers])

    async def results(self, ids: list[str]) -> list[int]:
        return [await self.runtime.client.result(run_id, timeout=30) for run_id in ids]

    async def one_at_hand(self) -> tuple[str, list[str]]:
        """Warm up, then block the only slot: the run that blocks it, and those behind it, of which one is held."""
        await self.results(await self.start(range(100, 120)))
        self.ran.clear()
        slow = await self.runtime.client.start(self.slow)
        behind = await self.start(range(5))
        await self.blocked.wait()
        await self.held(2)
        assert await self.runtime.client.state(behind[0]) == "running"
        return slow, behind

    async def held(self, number: int) -> None:
        async def holds() -> bool:
            [[found]] = await self.runtime.sql("select count(*) from durable.held")
            return bool(found == number)

        await self.runtime.until(holds)


@pytest.fixture
def stage(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setattr(claims, "_BRISK_SECONDS", LONG)
    monkeypatch.setattr(term, "AT_HAND_SECONDS", LONG)
    return Stage(runtime)


async def test_the_first_record_of_a_task_goes_with_the_end_of_the_one_before(stage: Stage) -> None:
    """A task of one step then costs one commit, not two; and one at a time they still run, in their order."""
    worker = await stage.worker()
    await stage.results(await stage.start(range(20)))
    assert worker.term is not None
    before = sum(writer.flushes for writer in worker.term._writers)
    assert await stage.results(await stage.start(range(20, 120))) == list(range(20, 120))
    assert sum(writer.flushes for writer in worker.term._writers) - before < 150
    assert stage.ran == list(range(120))


async def test_tasks_that_are_not_brisk_leave_the_next_one_to_others(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is held that has no slot."""
    monkeypatch.setattr(claims, "_BRISK_SECONDS", 0.0)
    worker = await stage.worker()
    await stage.results(await stage.start(range(20)))
    assert worker.term is not None
    before = sum(writer.flushes for writer in worker.term._writers)
    await stage.results(await stage.start(range(20, 120)))
    assert sum(writer.flushes for writer in worker.term._writers) - before >= 200


async def test_a_task_is_not_at_hand_for_long(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a task that takes its time it goes back to its place in the line, for whoever has a slot."""
    monkeypatch.setattr(term, "AT_HAND_SECONDS", 1.0)
    await stage.worker()
    slow, behind = await stage.one_at_hand()
    await stage.held(1)
    await stage.worker()
    assert await stage.results(behind) == list(range(5))
    assert stage.ran == [-1, *range(5)]
    assert [row[0] for row in await stage.runtime.sql("select max(lost) from durable.task")] == [0]
    stage.gate.set()
    assert await stage.runtime.client.result(slow, timeout=30) == "let go"


async def test_a_cancelled_task_at_hand_never_runs(stage: Stage) -> None:
    """What happens to it meanwhile is known when it begins."""
    await stage.worker()
    _, [first, *others] = await stage.one_at_hand()
    await stage.runtime.client.cancel(first, "not needed")

    async def stopped() -> bool:
        return bool(await stage.runtime.sql("select 1 from durable.held where stop and not news"))

    await stage.runtime.until(stopped)
    stage.gate.set()
    with pytest.raises(RunCancelled, match="not needed"):
        await stage.runtime.client.result(first, timeout=30)
    await stage.results(others)
    assert stage.ran == [-1, -2, 1, 2, 3, 4]


async def test_a_draining_worker_gives_back_at_once_what_is_at_hand(stage: Stage) -> None:
    """Before the step that it is in has ended."""
    draining = await stage.worker()
    slow, behind = await stage.one_at_hand()
    draining.stop()
    await stage.worker()
    assert await stage.results(behind) == list(range(5))
    stage.gate.set()
    assert await stage.runtime.client.result(slow, timeout=30) == "let go"


async def test_an_answer_that_was_lost_leaves_it_at_hand(stage: Stage) -> None:
    """The store knows what the worker holds: it is neither begun beside the other, nor forgotten."""
    worker = await stage.worker()
    slow, behind = await stage.one_at_hand()
    assert worker.term is not None
    await worker.term.reconcile()
    await stage.runtime.sql("select pg_sleep(0.1)")
    stage.gate.set()
    assert await stage.results(behind) == list(range(5))
    assert await stage.runtime.client.result(slow, timeout=30) == "let go"
    assert stage.ran == [-1, -2, *range(5)]
