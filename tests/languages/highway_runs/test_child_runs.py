"""Child workflows are runs of their own: listed, capped, cancelled and retried with whoever started them."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from highway_dsl import ChildWorkflowOperator, RetryPolicy, TaskOperator, Workflow, WorkflowBuilder
from interpreter.highway import highway_workflow

from .stage import Fakes, Stage

BOOM = RuntimeError("boom")


def parent_of(*names: str, child: str = "child", **options: Any) -> Workflow:
    workflow = Workflow(name="parent")
    kids = {name: {"workflow_name": child, "inputs": {"name": name}} for name in names}
    return workflow.add_task(ChildWorkflowOperator(task_id="kids", children=kids, **options))


def child() -> Workflow:
    return WorkflowBuilder("child").task("work", "work", args=["{{inputs.name}}"]).build()


def sleeper() -> Workflow:
    return WorkflowBuilder("child").wait("nap", wait_for="P1D").task("woke", "f").build().set_max_active_runs(9)


async def test_children_are_runs_that_say_who_started_them(stage: Stage) -> None:
    """Each stands in the list of runs with the run that started it, and comes back by name."""
    fakes = Fakes({"work": lambda name: name.upper()})
    flow = highway_workflow(parent_of("x", "y"), fakes)
    await stage.work(flow, highway_workflow(child(), fakes), kept_continuations=0)
    run = await stage.start(flow)
    ended = await stage.end(run, fakes)
    assert ended.result == {"x": "X", "y": "Y"}
    listed = {info.run_id: info for info in await stage.client.runs()}
    assert len(listed) == 3
    started = await stage.client.runs(parent=run)
    assert [(info.workflow, str(info.parent_run), info.state) for info in started] == [("child", run, "succeeded")] * 2
    assert {branch.run_id for branch in await stage.client.branches(run)} == {info.run_id for info in started}
    assert (await stage.client.run(run)).parent_run is None


async def test_a_cap_of_the_child_workflow_counts_children(stage: Stage) -> None:
    """With room for one active run, children run one after the other; a run of another starter waits too."""
    now, most = 0, 0

    async def work(name: str) -> str:
        nonlocal now, most
        now, most = now + 1, max(most, now + 1)
        for _ in range(20):
            await asyncio.sleep(0)
        now -= 1
        return name

    fakes = Fakes({"work": work})
    flow, kid = highway_workflow(parent_of("x", "y", "z"), fakes), highway_workflow(child(), fakes, max_active_runs=1)
    await stage.work(flow, kid)
    other = await stage.start(kid, {"name": "other"})
    ended = await stage.end(await stage.start(flow), fakes)
    assert (ended.result, most) == ({"x": "x", "y": "y", "z": "z"}, 1)
    assert (await stage.end(other, fakes)).state == "succeeded"


async def test_a_workflow_with_room_for_one_may_call_itself(stage: Stage) -> None:
    """A run below another of the same workflow uses its slot: otherwise it would wait for its own starter."""
    workflow = Workflow(name="down")
    workflow.add_task(TaskOperator(task_id="look", function="look", args=["{{inputs.depth}}"]))
    builder = WorkflowBuilder("down", existing_workflow=workflow)
    deeper = {"next": {"workflow_name": "down", "inputs": {"depth": "{{inputs.depth - 1}}"}}}
    builder.condition(
        "more", condition="{{look}}", if_true=lambda b: b.child_workflows("call", deeper), if_false=lambda b: b,
        dependencies=["look"],
    )  # fmt: skip
    fakes = Fakes({"look": lambda depth: depth > 0})
    flow = highway_workflow(builder.build(), fakes, max_active_runs=1)
    await stage.work(flow)
    assert (await stage.end(await stage.start(flow, {"depth": 3}), fakes)).state == "succeeded"
    assert len(await stage.client.runs(workflow="down", state="succeeded")) == 4


@pytest.mark.parametrize("kept", [256, 0], ids=["from memory", "by replay"])
async def test_children_are_cancelled_with_their_starter(stage: Stage, kept: int) -> None:
    """Cancelling the parent ends the runs it started, with its reason."""
    fakes = Fakes()
    flow = highway_workflow(parent_of("x", "y"), fakes)
    await stage.work(flow, highway_workflow(sleeper(), fakes), kept_continuations=kept)
    run = await stage.start(flow)
    await stage.until(lambda: _are(stage, run, ["parked", "parked"]))
    await stage.client.cancel(run, "not today")
    assert (await stage.end(run, fakes)).state == "cancelled"
    await stage.until(lambda: _are(stage, run, ["cancelled", "cancelled"]))
    assert {info.error["message"] for info in await stage.client.runs(parent=run) if info.error} == {"not today"}


async def test_a_deadline_of_the_starter_cancels_its_children(stage: Stage) -> None:
    """The starter fails; the deadline was not theirs, so they are cancelled."""
    workflow, fakes = parent_of("x"), Fakes()
    workflow.deadline_seconds = 3600
    flow = highway_workflow(workflow, fakes)
    await stage.work(flow, highway_workflow(sleeper(), fakes))
    run = await stage.start(flow)
    await stage.until(lambda: _are(stage, run, ["parked"]))
    assert (await stage.end(run, fakes)).state == "failed"
    await stage.until(lambda: _are(stage, run, ["cancelled"]))


async def test_a_parallel_past_its_timeout_stops_the_runs_it_started(stage: Stage) -> None:
    """They are cancelled, and the parallel has failed when they have ended; its callback runs then."""
    kids = {"x": {"workflow_name": "child"}}
    workflow = (
        WorkflowBuilder("hurried")
        .parallel("par", branches={"a": lambda b: b.child_workflows("call", kids)}, timeout=60)
        .on_failure("alert")
        .task("alert", "alert")
        .build()
    )
    fakes = Fakes()
    flow = highway_workflow(workflow, fakes)
    await stage.work(flow, highway_workflow(sleeper(), fakes))
    run = await stage.start(flow)
    ended = await stage.end(run, fakes)
    assert (ended.state, ended.error["type"], fakes.tasks) == ("failed", "Timeout", ["alert"])
    assert await _are(stage, run, ["cancelled"])


async def test_a_failed_child_is_tried_again_as_a_new_run(stage: Stage) -> None:
    """The policy of the operator gives it another run; the failure of all attempts fails the operator."""
    outcomes = [BOOM, "fine"]
    fakes = Fakes({"work": lambda name: outcomes.pop(0)})
    policy = RetryPolicy(max_retries=1, delay=timedelta(minutes=5))
    flow = highway_workflow(parent_of("x", retry_policy=policy), fakes)
    await stage.work(flow, highway_workflow(child(), fakes), kept_continuations=0)
    run = await stage.start(flow)
    ended = await stage.end(run, fakes)
    assert (ended.state, ended.result) == ("succeeded", {"x": "fine"})
    assert sorted(info.state for info in await stage.client.runs(parent=run)) == ["failed", "succeeded"]


async def test_a_retry_of_the_parent_retries_the_children_that_failed(stage: Stage) -> None:
    """All that failed go on, those that succeeded stay as they are, and nothing is started twice."""
    failing = {"x", "z"}
    fakes = Fakes({"work": lambda name: BOOM if name in failing else name})
    flow = highway_workflow(parent_of("x", "y", "z"), fakes)
    await stage.work(flow, highway_workflow(child(), fakes), kept_continuations=0)
    run = await stage.start(flow)
    ended = await stage.end(run, fakes)
    assert (ended.state, ended.error["message"]) == ("failed", "boom")
    failing.clear()
    await stage.client.retry(run)
    ended = await stage.end(run, fakes)
    assert (ended.state, ended.result) == ("succeeded", {"x": "x", "y": "y", "z": "z"})
    assert sorted(call.args[0] for call in fakes.calls) == ["x", "x", "y", "z", "z"]
    assert len(await stage.client.runs(parent=run)) == 3


async def test_what_a_child_came_to_does_not_change_for_its_starter(stage: Stage) -> None:
    """A child that is retried alone, after its starter went on, changes nothing for the starter."""
    outcomes = [BOOM, "late"]
    workflow = parent_of("x")
    workflow.tasks["kids"].on_failure_task_id = "alert"
    workflow.add_task(TaskOperator(task_id="alert", function="alert", args=["{{error_message}}"]))
    builder = WorkflowBuilder("parent", existing_workflow=workflow)
    builder.wait_for_event("gate", event_name="go", dependencies=["alert"]).task("last", "last")
    fakes = Fakes({"work": lambda name: outcomes.pop(0)})
    flow = highway_workflow(builder.build(), fakes)
    await stage.work(flow, highway_workflow(child(), fakes), kept_continuations=0)
    run = await stage.start(flow)
    await stage.parked(run)
    await stage.until(lambda: _waits(stage, run))
    [kid] = await stage.client.runs(parent=run)
    await stage.client.retry(str(kid.run_id))
    assert await stage.client.result(str(kid.run_id), timeout=30) == "late"
    await stage.client.emit("go")
    ended = await stage.end(run, fakes)
    assert (ended.state, ended.error["message"], fakes.tasks) == ("failed", "boom", ["work", "alert", "work", "last"])


async def test_an_unknown_workflow_fails_its_operator(stage: Stage) -> None:
    """The failure is recorded, callbacks run, and a retry of the run finds a workflow deployed meanwhile."""
    workflow, fakes = parent_of("x", child="later", on_failure_task_id="alert"), Fakes()
    workflow.add_task(TaskOperator(task_id="alert", function="alert"))
    flow = highway_workflow(workflow, fakes)
    await stage.work(flow, kept_continuations=0)
    run = await stage.start(flow)
    ended = await stage.end(run, fakes)
    assert (ended.state, ended.error["type"], fakes.tasks) == ("failed", "UnknownWorkflow", ["alert"])
    await stage.work(highway_workflow(WorkflowBuilder("later").task("t", "t").build(), fakes))
    await stage.client.retry(run)
    assert (await stage.end(run, fakes)).state == "succeeded"


async def test_a_run_that_its_starter_may_ask_for_is_not_pruned(stage: Stage) -> None:
    """A child goes with the age of its own end, but never before its starter has ended."""
    fakes = Fakes({"work": lambda name: BOOM if name == "y" else name})
    workflow = Workflow(name="parent")
    kids = {"x": {"workflow_name": "child", "inputs": {"name": "x"}}, "s": {"workflow_name": "sleep"}}
    workflow.add_task(ChildWorkflowOperator(task_id="kids", children=kids))
    flow, nap = highway_workflow(workflow, fakes), WorkflowBuilder("sleep").wait("n", wait_for="P9D").build()
    await stage.work(flow, highway_workflow(child(), fakes), highway_workflow(nap, fakes))
    run = await stage.start(flow)
    await stage.until(lambda: _are(stage, run, ["parked", "succeeded"]))
    assert (await stage.sql("select runs from durable.prune(durable.now() + interval '1 day')"))[0][0] == 0
    ended = await stage.end(run, fakes)
    assert ended.result == {"x": "x", "s": None}
    assert (await stage.sql("select runs from durable.prune(durable.now() + interval '1 day')"))[0][0] == 3


async def _are(stage: Stage, run: str, states: list[str]) -> bool:
    return sorted(info.state for info in await stage.client.runs(parent=run)) == states


async def _waits(stage: Stage, run: str) -> bool:
    return any(wait.name == "go" for wait in await stage.client.waits(run))


@pytest.mark.parametrize(("own", "given"), [(60, 3600), (3600, 60), (None, 60)])
async def test_a_child_has_the_sooner_of_two_deadlines(stage: Stage, own: int | None, given: int) -> None:
    """The operator may give a child less time than its workflow does, never more."""
    kid, fakes = sleeper(), Fakes()
    kid.deadline_seconds = own
    flow = highway_workflow(parent_of("x", timeout_seconds=given), fakes)
    await stage.work(flow, highway_workflow(kid, fakes))
    run = await stage.start(flow)
    await stage.until(lambda: _are(stage, run, ["parked"]))
    [info] = await stage.client.runs(parent=run)
    assert info.deadline_at is not None
    assert info.deadline_at - info.created_at == timedelta(seconds=60)
    ended = await stage.end(run, fakes)
    assert (ended.state, ended.error["type"]) == ("failed", "DeadlineExceeded")
