"""Steps: run, recorded, retried, stopped in time, and the same on every replay."""

from __future__ import annotations

import asyncio
import datetime
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from durable import (
    DurableContext,
    NonRetryable,
    RetryAfter,
    RetryPolicy,
    RunFailed,
    StepFailed,
    StepTimeout,
    current_step,
    step,
    workflow,
)

from .conftest import Runtime

NOW = RetryPolicy(max_attempts=5, delay=0.0)


async def double(value: int) -> int:
    return value * 2


def thread_name() -> str:
    return threading.current_thread().name


def sleep_then_touch(path: str) -> None:
    Path(path + ".begun").touch()
    time.sleep(5)
    Path(path).touch()


def pid() -> int:
    return os.getpid()


async def test_a_workflow_returns_what_its_steps_made(runtime: Runtime) -> None:
    """Steps run in order and their results come back."""

    @workflow
    async def sums(ctx: DurableContext, first: int, second: int = 1) -> int:
        return await ctx.step(double, first) + await ctx.step(double, second)

    await runtime.work(sums)
    assert await runtime.run(sums, 3) == 8


async def test_repeated_names_are_numbered(runtime: Runtime) -> None:
    """A step is known by its function's name, or a given one; the second of a name is #2."""

    @workflow
    async def names(ctx: DurableContext) -> None:
        await ctx.step(double, 1)
        await ctx.step(double, 2)
        await ctx.step("thrice", double, 3)

    await runtime.work(names)
    run_id = await runtime.client.start(names)
    await runtime.client.result(run_id)
    assert await runtime.names(run_id) == ["double", "double#2", "thrice"]


async def test_the_first_run_sees_what_a_replay_would_see(runtime: Runtime) -> None:
    """The JSON round trip is applied at once: a tuple is a list on the first run too."""

    async def pair() -> Any:
        return {"pair": (1, 2)}

    @workflow
    async def shape(ctx: DurableContext) -> bool:
        return (await ctx.step(pair)) == {"pair": [1, 2]}

    await runtime.work(shape)
    assert await runtime.run(shape) is True


async def test_a_failed_step_is_retried_by_its_policy(runtime: Runtime) -> None:
    """A policy of three attempts runs a step until it succeeds, and each failure is recorded."""
    tries: list[int] = []

    async def flaky() -> str:
        tries.append(current_step().attempt)
        if len(tries) < 3:
            raise ConnectionError("not yet")
        return "done"

    @workflow
    async def retries(ctx: DurableContext) -> str:
        return str(await ctx.step(flaky, retry=RetryPolicy(max_attempts=3, delay=0.01)))

    await runtime.work(retries)
    run_id = await runtime.client.start(retries)
    assert await runtime.client.result(run_id, timeout=30) == "done"
    assert tries == [1, 2, 3]
    assert [record.kind for record in await runtime.client.steps(run_id)] == ["attempt", "attempt", "step"]


async def test_the_rest_between_attempts_frees_the_slot(runtime: Runtime) -> None:
    """A retry an hour away is a durable timer: meanwhile the only slot runs another task."""
    tries: list[int] = []

    async def flaky() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("not yet")
        return "done"

    @workflow
    async def patient(ctx: DurableContext) -> str:
        return str(await ctx.step(flaky, retry=RetryPolicy(max_attempts=2, delay=3600)))

    @workflow
    async def other(ctx: DurableContext) -> int:
        return int(await ctx.step(double, 1))

    await runtime.work(patient, other, slots=1)
    run_id = await runtime.client.start(patient)
    await runtime.state_is(run_id, "parked")
    assert await runtime.run(other) == 2
    await runtime.skip(3601)
    assert await runtime.client.result(run_id, timeout=30) == "done"


@pytest.mark.parametrize(
    ("error", "policy", "attempts"),
    [
        (NonRetryable("stop"), NOW, 1),
        (KeyError("x"), RetryPolicy(max_attempts=5, delay=0, on=ValueError), 1),
        (ValueError("x"), RetryPolicy(max_attempts=4, delay=0, on=(ValueError, OSError)), 4),
        (ValueError("x"), RetryPolicy(max_attempts=4, delay=0, never=ValueError), 1),
        (RetryAfter(0.0), RetryPolicy(max_attempts=3, delay=999), 3),
    ],
)
async def test_what_is_retried_is_what_the_policy_says(
    runtime: Runtime, error: Exception, policy: RetryPolicy, attempts: int
) -> None:
    """`on`, `never`, NonRetryable and RetryAfter decide about another attempt."""
    tries: list[int] = []

    async def fails() -> None:
        tries.append(1)
        raise error

    @workflow
    async def one_step(ctx: DurableContext) -> None:
        await ctx.step(fails, retry=policy)

    await runtime.work(one_step)
    with pytest.raises(RunFailed) as failed:
        await runtime.run(one_step)
    assert len(tries) == attempts
    assert failed.value.error["step"] == "fails"


async def test_a_failure_is_the_same_on_first_run_and_replay(runtime: Runtime) -> None:
    """A workflow that catches a failed step sees the same type, message and class again after a replay."""
    seen: list[tuple[str, str, bool]] = []

    async def fails() -> None:
        raise FileNotFoundError("no such order")

    @workflow
    async def catches(ctx: DurableContext) -> str:
        try:
            await ctx.step(fails)
        except StepFailed as failed:
            seen.append((failed.type, failed.message, failed.is_a(OSError)))
        await ctx.sleep(60)
        return "went on"

    await runtime.work(catches, kept_continuations=0)
    assert await runtime.run_skipping(catches) == "went on"
    assert seen == [("FileNotFoundError", "no such order", True)] * 2


async def test_a_step_with_a_committed_record_does_not_run_again(runtime: Runtime) -> None:
    """A task that is replayed after every wait runs each step once."""
    ran: list[int] = []

    async def effect(number: int) -> int:
        ran.append(number)
        return number

    @workflow
    async def replayed(ctx: DurableContext) -> list[int]:
        made = []
        for number in range(5):
            made.append(await ctx.step(effect, number))
            await ctx.sleep(60)
        return made

    await runtime.work(replayed, kept_continuations=0)
    assert await runtime.run_skipping(replayed) == [0, 1, 2, 3, 4]
    assert ran == [0, 1, 2, 3, 4]


async def test_a_timeout_stops_an_async_step(runtime: Runtime) -> None:
    """An async step is cancelled at its timeout and fails as StepTimeout."""
    cancelled = asyncio.Event()

    async def slow() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    @workflow
    async def timed(ctx: DurableContext) -> str:
        try:
            await ctx.step(slow, timeout=0.05)
        except StepTimeout as failed:
            return failed.type
        return "no timeout"

    await runtime.work(timed)
    assert await runtime.run(timed) == "StepTimeout"
    assert cancelled.is_set()


async def test_a_timeout_kills_a_plain_step(runtime: Runtime, tmp_path: Path) -> None:
    """A plain function with a timeout runs in a process that is really killed: it does not finish later."""
    target = tmp_path / "finished"

    @workflow
    async def timed(ctx: DurableContext, path: str) -> str:
        try:
            await ctx.step(sleep_then_touch, path, timeout=2)
        except StepTimeout as failed:
            return failed.message
        return "no timeout"

    await runtime.work(timed)
    assert "killed" in await runtime.run(timed, str(target))
    assert (tmp_path / "finished.begun").exists()
    await asyncio.sleep(3.5)
    assert not target.exists()


async def test_plain_functions_run_in_a_thread_or_process(runtime: Runtime) -> None:
    """A plain function does not block the loop; lane='process' runs it outside of this process."""

    @workflow
    async def lanes(ctx: DurableContext) -> list[Any]:
        return [await ctx.step(thread_name), await ctx.step(pid, lane="process")]

    await runtime.work(lanes)
    name, other = await runtime.run(lanes)
    assert name.startswith("durable-step")
    assert other != os.getpid()


async def test_a_step_knows_its_key_and_attempt(runtime: Runtime) -> None:
    """The idempotency key is the same for every attempt and belongs to this step of this run alone."""
    seen: list[tuple[str, int]] = []

    @step(retry=RetryPolicy(max_attempts=2, delay=0), name="charge")
    async def charge() -> None:
        seen.append((current_step().idempotency_key, current_step().attempt))
        if len(seen) == 1:
            raise OSError

    @workflow
    async def charges(ctx: DurableContext) -> None:
        await ctx.step(charge)
        await ctx.step(charge)

    await runtime.work(charges)
    run_id = await runtime.client.start(charges)
    await runtime.client.result(run_id, timeout=30)
    assert seen == [(f"{run_id}:charge", 1), (f"{run_id}:charge", 2), (f"{run_id}:charge#2", 1)]


async def test_a_result_that_is_not_json_fails_with_its_path(runtime: Runtime) -> None:
    """A refused value says where it is, and nothing of it is stored."""

    async def bad() -> Any:
        return {"items": [1, {"when": datetime.datetime.now()}]}

    @workflow
    async def refuses(ctx: DurableContext) -> None:
        await ctx.step(bad)

    await runtime.work(refuses)
    with pytest.raises(RunFailed, match=r"\$\.items\[1\]\.when: datetime is not JSON"):
        await runtime.run(refuses)


async def test_a_result_over_the_limit_is_refused(runtime: Runtime) -> None:
    """A value over `max_value_bytes` fails the step and says what to do."""

    async def huge() -> str:
        return "x" * 5000

    @workflow
    async def too_large(ctx: DurableContext) -> None:
        await ctx.step(huge)

    await runtime.work(too_large, max_value_bytes=2048)
    with pytest.raises(RunFailed, match="over the limit of 2,048"):
        await runtime.run(too_large)


async def test_a_large_value_is_stored_once_and_replayed_whole(runtime: Runtime) -> None:
    """Values over 64 KiB stand outside of the journal, and a replay gets them back."""

    async def large() -> str:
        return "y" * 100_000

    @workflow
    async def keeps(ctx: DurableContext) -> int:
        first, second = await ctx.step(large), await ctx.step(large)
        await ctx.sleep(60)
        return len(first) + len(second)

    await runtime.work(keeps, kept_continuations=0)
    assert await runtime.run_skipping(keeps) == 200_000
    assert await runtime.sql("select count(*), max(length(body::text)) from durable.value") == [(1, 100_002)]
    assert (await runtime.sql("select max(length(body::text)) from durable.journal"))[0][0] < 1000


async def test_recorded_time_and_chance_are_the_same_on_replay(runtime: Runtime) -> None:
    """now, random and uuid4 are recorded: a replay sees the same."""
    seen: list[tuple[Any, ...]] = []

    @workflow
    async def surroundings(ctx: DurableContext) -> None:
        seen.append((await ctx.now(), await ctx.random(), await ctx.uuid4()))
        await ctx.sleep(60)

    await runtime.work(surroundings, kept_continuations=0)
    await runtime.run_skipping(surroundings)
    assert len(seen) == 2
    assert seen[0] == seen[1]


async def test_log_and_progress_are_kept_once(runtime: Runtime) -> None:
    """Log lines are not repeated by a replay, and the newest progress stands."""

    @workflow
    async def talks(ctx: DurableContext) -> None:
        ctx.log.info("begun", order=42)
        ctx.progress(1, 3)
        ctx.progress(2, 3, "half-way")
        await ctx.step(double, 1)
        await ctx.sleep(60)
        ctx.log.warning("nearly done")
        await ctx.step(double, 1)

    await runtime.work(talks, kept_continuations=0)
    await runtime.run_skipping(talks)
    run_id = str((await runtime.client.runs())[0].run_id)
    assert [line.message for line in await runtime.client.logs(run_id)] == ["begun", "nearly done"]
    assert await runtime.sql("select done, total, note from durable.progress") == [(2.0, 3.0, "half-way")]


async def test_a_step_logs_and_reports_progress_from_any_lane(runtime: Runtime) -> None:
    """What a step says on the loop or in a thread is stored under its name, and only once."""

    async def on_loop() -> None:
        current_step().log.info("from the loop", n=1)

    def in_thread() -> None:
        current_step().log.warning("from a thread")
        current_step().progress(1, 2, "half")

    @workflow
    async def talkative(ctx: DurableContext) -> None:
        await ctx.step("one", on_loop)
        await ctx.step("two", in_thread)

    await runtime.work(talkative)
    run_id = await runtime.client.start(talkative)
    await runtime.client.result(run_id, timeout=30)

    async def said() -> bool:
        return len(await runtime.client.logs(run_id)) == 2 and bool(await runtime.client.progress(run_id))

    await runtime.until(said)
    lines = await runtime.client.logs(run_id)
    assert [(line.step, line.level, line.message) for line in lines] == [
        ("one", "info", "from the loop"),
        ("two", "warning", "from a thread"),
    ]
