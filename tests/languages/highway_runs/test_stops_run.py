"""How a run is ended before it is done: by itself, by its deadline, by a person; and what becomes of what runs then."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from durable import DurableContext
from durable.runs import RunInfo
from highway_dsl import (
    ParallelOperator,
    TaskOperator,
    TerminateOperator,
    TimeoutPolicy,
    WaitForEventOperator,
    Workflow,
    WorkflowBuilder,
)
from interpreter.driver import FunctionTable
from interpreter.highway import highway_workflow

from .stage import Fakes, Stage


def terminated(**options: Any) -> Workflow:
    """A run that ends itself beside a parallel whose branches, tasks of their own, wait."""
    workflow = (
        WorkflowBuilder("ends_itself")
        .parallel(
            "par",
            branches={name: lambda b, name=name: b.wait(f"nap_{name}", wait_for="P1D") for name in ("x", "y")},
            metadata={"spawn": True},
        )
        .task("go", "go", dependencies=[])
        .build()
    )
    return workflow.add_task(TerminateOperator(task_id="stop", dependencies=["go"], **options))


async def test_a_run_that_terminates_as_cancelled_is_cancelled(stage: Stage) -> None:
    """It ends as cancelled with its reason, the tasks below it are cancelled, and nothing else starts."""
    fakes, spawned = Fakes(), asyncio.Event()
    fakes.outcomes["go"] = lambda: spawned.wait()
    flow = highway_workflow(terminated(status="cancelled", reason="enough"), fakes)
    await stage.work(flow)
    run = await stage.start(flow)
    await stage.until(lambda: _count(stage, "parent_id is not null and state = 'parked'", 2))
    spawned.set()
    ended = await stage.end(run, fakes)
    assert (ended.state, ended.error) == ("cancelled", {"type": "Cancelled", "message": "enough"})
    await stage.until(lambda: _count(stage, "state = 'cancelled'", 3))


@pytest.mark.parametrize("kept", [256, 0], ids=["from memory", "by replay"])
async def test_a_run_that_cancels_itself_cleans_up(stage: Stage, kept: int) -> None:
    """The workflow's cleanup runs, may wait, and the run then ends as cancelled."""
    cleaned = []

    async def note() -> None:
        cleaned.append("cleaned")

    async def cleanup(ctx: DurableContext, **inputs: Any) -> None:
        await ctx.sleep(60)
        await ctx.step(note)

    fakes = Fakes()
    workflow = Workflow(name="tidy").add_task(TaskOperator(task_id="a", function="a"))
    workflow.add_task(TerminateOperator(task_id="stop", status="cancelled", dependencies=["a"]))
    flow = highway_workflow(workflow, fakes, cleanup=cleanup)
    await stage.work(flow, kept_continuations=kept)
    ended = await stage.end(await stage.start(flow), fakes)
    assert (ended.state, cleaned, fakes.tasks) == ("cancelled", ["cleaned"], ["a"])
    assert ended.error["message"] == "ended as cancelled by stop"


@pytest.mark.parametrize(
    ("action", "state", "error"), [("cancel", "cancelled", "Cancelled"), ("fail", "failed", "DeadlineExceeded")]
)
async def test_a_deadline_ends_the_run_as_its_action_says(stage: Stage, action: Any, state: str, error: str) -> None:
    """A run that is not done at its deadline fails, or is cancelled if the workflow says so; so is what it spawned."""
    workflow = (
        WorkflowBuilder(f"late_{action}")
        .parallel("par", branches={"a": lambda b: b.wait("w", timedelta(days=2))}, metadata={"spawn": True})
        .build()
    )
    workflow.deadline_seconds, workflow.deadline_action = 3600, action
    ended = await stage.run(workflow)
    assert (ended.state, ended.error["type"]) == (state, error)
    assert ended.error["message"] == "the run was not done at its deadline"
    await stage.until(lambda: _count(stage, "parent_id is not null and finished_at is not null", 1))


async def test_a_run_keeps_the_deadline_action_it_was_started_with(stage: Stage) -> None:
    """What the workflow says later concerns later runs."""
    workflow = WorkflowBuilder("pinned").wait("w", timedelta(days=2)).build()
    workflow.deadline_seconds, workflow.deadline_action = 3600, "cancel"
    fakes = Fakes()
    flow = highway_workflow(workflow, fakes)
    await stage.work(flow)
    run = await stage.start(flow)
    await stage.parked(run)
    workflow.deadline_action = "fail"
    await stage.client.register(highway_workflow(workflow, fakes))
    assert (await stage.end(run, fakes)).state == "cancelled"


class Blocks:
    """A function that never ends, async or in a process of its own, and what is known of it."""

    def __init__(self, kind: str, file: Path) -> None:
        self.kind = kind
        self._file = file
        self._began, self._stopped = asyncio.Event(), asyncio.Event()

    def resolve(self, name: str) -> Any:
        if name != "block":
            return self._pass
        return self._block if self.kind == "async" else eval

    def operator(self, **options: Any) -> TaskOperator:
        # Only builtins can be sent to a process from here; the timeout is what makes it run in one.
        path = f"__import__('pathlib').Path({str(self._file)!r})"
        code = f"{path}.write_text(str(__import__('os').getpid())), __import__('time').sleep(3600)"
        args = [code] if self.kind == "process" else []
        return TaskOperator(
            task_id="block",
            function="block",
            args=args,
            timeout_policy=TimeoutPolicy(timeout=timedelta(hours=1)),
            **options,
        )

    async def _pass(self) -> None:
        return None

    async def _block(self) -> None:
        self._began.set()
        try:
            await asyncio.sleep(3600)
        finally:
            self._stopped.set()

    async def began(self) -> bool:
        return self._began.is_set() or (self._file.exists() and bool(self._file.read_text()))

    async def stopped(self) -> bool:
        return self._stopped.is_set() if self.kind == "async" else not _lives(int(self._file.read_text()))


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def timed(blocks: Blocks, **options: Any) -> Workflow:
    """A parallel with a timeout around what blocks."""
    workflow = Workflow(name="timed")
    branches = {"a": ["block"], "b": ["quick"]}
    workflow.add_task(ParallelOperator(task_id="par", branches=branches, timeout=1, **options))
    workflow.add_task(TaskOperator(task_id="quick", function="quick", dependencies=["par"]))
    return workflow.add_task(blocks.operator(dependencies=["par"]))


def terminating(blocks: Blocks) -> Workflow:
    workflow = Workflow(name="terminating").add_task(blocks.operator())
    workflow.add_task(WaitForEventOperator(task_id="ear", event_name="enough"))
    return workflow.add_task(TerminateOperator(task_id="stop", dependencies=["ear"]))


def alone(blocks: Blocks, beside: bool = False) -> Workflow:
    workflow = Workflow(name="alone").add_task(blocks.operator())
    return workflow.add_task(WaitForEventOperator(task_id="ear", event_name="never")) if beside else workflow


def late(blocks: Blocks) -> Workflow:
    workflow = alone(blocks)
    workflow.deadline_seconds = 3600
    return workflow


STOPS: dict[str, Any] = {
    "timeout": (timed, "failed"),
    "timeout of spawned branches": (lambda blocks: timed(blocks, metadata={"spawn": True}), "failed"),
    "terminate": (terminating, "succeeded"),
    "cancel": (alone, "cancelled"),
    "cancel of several": (lambda blocks: alone(blocks, beside=True), "cancelled"),
    "deadline": (late, "failed"),
}


@pytest.mark.parametrize("kind", ["async", "process"])
@pytest.mark.parametrize("how", STOPS)
async def test_a_stop_interrupts_the_step_that_runs(stage: Stage, tmp_path: Path, how: str, kind: str) -> None:
    """An async step is cancelled and a step in a process killed, whatever stops them; nobody waits for their end."""
    make, state = STOPS[how]
    blocks = Blocks(kind, tmp_path / "pid")
    flow = highway_workflow(make(blocks), blocks)
    await stage.work(flow, poll_seconds=0.1)
    run = await stage.start(flow)
    await stage.until(blocks.began)
    if how == "terminate":
        await stage.client.emit("enough")
    elif how.startswith("cancel"):
        await stage.client.cancel(run)
    elif how == "deadline":
        await stage.skip(3700)
    info = await _final(stage, run)
    assert info.state == state
    await stage.until(blocks.stopped)


async def test_a_plain_transaction_step_that_was_stopped_writes_nothing(stage: Stage) -> None:
    """Its thread cannot be stopped, but what it writes is rolled back, and others use another session meanwhile."""
    await stage.sql("create table ledger (note text)")
    go_on, over = threading.Event(), threading.Event()

    def slow(connection: Any) -> None:
        connection.execute("insert into ledger values ('slow')")
        try:
            go_on.wait(30)
            connection.execute("insert into ledger values ('slow again')")
        finally:
            over.set()

    def quick(connection: Any) -> None:
        connection.execute("insert into ledger values ('quick')")

    for function in (slow, quick):
        function.__durable_transaction__ = True  # type: ignore[attr-defined]
    workflow = (
        WorkflowBuilder("given_up")
        .parallel("par", branches={"a": lambda b: b.task("slow", "slow")}, timeout=1)
        .on_failure("quick")
        .task("quick", "quick")
        .build()
    )
    flow = highway_workflow(workflow, FunctionTable({"slow": slow, "quick": quick}))
    await stage.work(flow, transaction_slots=1)
    assert (await _final(stage, await stage.start(flow))).state == "failed"
    go_on.set()
    await asyncio.to_thread(over.wait, 30)
    await stage.stop()
    assert await stage.sql("select note from ledger") == [("quick",)]


async def test_what_the_same_record_begins_and_ends_never_starts(stage: Stage) -> None:
    """A run that terminates at its very first record runs nothing of what would start beside it."""
    workflow = Workflow(name="stillborn").add_task(TaskOperator(task_id="a", function="a"))
    workflow.add_task(TerminateOperator(task_id="stop", result={"n": 1}))
    workflow.add_task(TaskOperator(task_id="z", function="z"))
    ended = await stage.run(workflow)
    assert (ended.state, ended.result, ended.fakes.tasks) == ("succeeded", {"n": 1}, [])


async def test_a_parallel_has_failed_when_its_spawned_branches_have_ended(stage: Stage) -> None:
    """The callback of a parallel that was stopped runs after the last of its tasks has ended."""
    workflow = (
        WorkflowBuilder("orderly")
        .parallel(
            "par",
            branches={name: lambda b, name=name: b.wait(f"nap_{name}", wait_for="P1D") for name in ("x", "y")},
            timeout=60,
            metadata={"spawn": True},
        )
        .on_failure("alert")
        .task("alert", "alert")
        .build()
    )
    seen = []

    async def alert() -> None:
        seen.extend(await stage.sql("select state::text from durable.task where parent_id is not null"))

    ended = await stage.run(workflow, {"alert": alert})
    assert (ended.error["type"], seen) == ("Timeout", [("cancelled",), ("cancelled",)])


async def _final(stage: Stage, run: str) -> RunInfo:
    async def is_final() -> bool:
        return (await stage.client.run(run)).final

    await stage.until(is_final)
    return await stage.client.run(run)


async def _count(stage: Stage, which: str, number: int) -> bool:
    return (await stage.sql(f"select count(*) from durable.task where {which}"))[0][0] == number
