"""How a run is ended before it is done: by itself, by its deadline, by a person; and what becomes of what runs then."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from durable import DurableContext
from highway_dsl import TaskOperator, TerminateOperator, Workflow, WorkflowBuilder
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
    workflow.deadline, workflow.deadline_action = timedelta(hours=1), action
    ended = await stage.run(workflow)
    assert (ended.state, ended.error["type"]) == (state, error)
    assert ended.error["message"] == "the run was not done at its deadline"
    await stage.until(lambda: _count(stage, "parent_id is not null and finished_at is not null", 1))


async def test_a_run_keeps_the_deadline_action_it_was_started_with(stage: Stage) -> None:
    """What the workflow says later concerns later runs."""
    workflow = WorkflowBuilder("pinned").wait("w", timedelta(days=2)).build()
    workflow.deadline, workflow.deadline_action = timedelta(hours=1), "cancel"
    fakes = Fakes()
    flow = highway_workflow(workflow, fakes)
    await stage.work(flow)
    run = await stage.start(flow)
    await stage.parked(run)
    workflow.deadline_action = "fail"
    await stage.client.register(highway_workflow(workflow, fakes))
    assert (await stage.end(run, fakes)).state == "cancelled"


async def _count(stage: Stage, which: str, number: int) -> bool:
    return (await stage.sql(f"select count(*) from durable.task where {which}"))[0][0] == number
