"""Runs seen again: the plan walked along the records comes to where the run is, and says what it waits for."""

from __future__ import annotations

from typing import Any

import pytest

from highway_dsl import RetryPolicy, WorkflowBuilder
from interpreter.highway import HighwayTemplates, compile_workflow, highway_workflow
from interpreter.hindsight import Hindsight, look_back
from interpreter.plan import Plan
from interpreter.simulate import FAIL, simulate

from .random_flows import Flow
from .stage import Fakes, Stage
from .test_laws_run import GLOBALS, _Values, functions


async def seen(stage: Stage, run_id: str, plan: Plan) -> Hindsight:
    client = stage.client
    records, branches = await client.history(run_id), await client.branches(run_id)
    return await look_back(plan, HighwayTemplates(plan), await client.run(run_id), list(records), list(branches))


@pytest.mark.parametrize("seed", range(12))
async def test_a_run_that_ended_is_seen_as_the_simulator_says(stage: Stage, seed: int) -> None:
    """Every node is in the state it ended in, also inside of loops, branches and spawned tasks."""
    flow = Flow(seed)
    plan = compile_workflow(flow.workflow)
    outcomes: dict[str, Any] = dict.fromkeys(flow.fails, FAIL)
    report = simulate(plan, _Values(outcomes), globals=GLOBALS, evaluator=HighwayTemplates(plan))
    made = highway_workflow(flow.workflow, functions(flow, seed))
    await stage.work(made)
    ended = await stage.end(await stage.start(made), Fakes())
    found = await seen(stage, str(ended.info.run_id), plan)
    assert {path: one.why.state for path, one in found.seen.items()} == {step.path: step.state for step in report.steps}
    assert not [one for one in found.seen.values() if one.waiting]


async def test_a_parked_run_says_what_each_task_waits_for(stage: Stage) -> None:
    """Events by their names, sleeps and retries by their times, and what follows by what it follows."""
    workflow = (
        WorkflowBuilder("waits")
        .task("first", "f")
        .wait_for_event("ear", event_name="go_{{first}}", timeout_seconds=3600)
        .task("after", "f")
        .wait("nap", wait_for="PT2H", dependencies=["first"])
        .task("flaky", "f", dependencies=["first"], retry_policy=RetryPolicy(max_retries=3, delay=600))
        .foreach("each", items="{{[1, 2]}}", loop_body=lambda b: b.wait_for_event("inner", event_name="in_{{item}}"))
        .build()
    )
    workflow.tasks["each"].dependencies = ["first"]
    plan, fakes = compile_workflow(workflow), Fakes({"first": 7, "flaky": ConnectionError("no answer")})
    flow = highway_workflow(workflow, fakes)
    await stage.work(flow)
    run_id = await stage.start(flow)
    await stage.parked(run_id)
    found = await seen(stage, run_id, plan)
    waits = {path: dict(one.waiting) for path, one in found.seen.items() if one.waiting}
    assert set(waits) == {"ear", "nap", "flaky", "each", "each[0]/inner"}
    assert (waits["ear"]["ear"].kind, waits["ear"]["ear"].name) == ("event", "go_7")
    assert waits["nap"]["nap"].until is not None
    assert (waits["flaky"]["flaky"].kind, waits["flaky"]["flaky"].attempt) == ("retry", 2)
    assert (waits["flaky"]["flaky"].error or {})["message"] == "no answer"
    assert waits["each"] == waits["each[0]/inner"]
    assert [name for name, _ in found.under_way("after")] == ["ear"]
    assert found.seen["after"].why.state == "waiting"


async def test_a_retried_run_is_seen_without_the_failure(stage: Stage) -> None:
    """What a person had retried counts no longer."""
    workflow = WorkflowBuilder("again").task("one", "f").task("two", "f").task("three", "f").build()
    plan = compile_workflow(workflow)
    fakes = Fakes({"two": ValueError("not yet")})
    flow = highway_workflow(workflow, fakes)
    await stage.work(flow)
    ended = await stage.end(await stage.start(flow), fakes)
    run_id = str(ended.info.run_id)
    assert [one.why.state for one in (await seen(stage, run_id, plan)).seen.values()] == [
        "succeeded",
        "failed",
        "upstream_failed",
    ]
    fakes.outcomes.clear()
    await stage.client.retry(run_id)
    await stage.end(run_id, fakes)
    assert {one.why.state for one in (await seen(stage, run_id, plan)).seen.values()} == {"succeeded"}


async def test_large_values_are_seen_too(stage: Stage) -> None:
    """A value that is kept out of the journal decides like any other."""
    workflow = (
        WorkflowBuilder("large")
        .task("big", "f")
        .condition(
            "long",
            condition="{{big|length}} > 9",
            if_true=lambda b: b.task("t", "f"),
            if_false=lambda b: b.task("f", "f"),
        )
        .build()
    )
    plan, fakes = compile_workflow(workflow), Fakes({"big": "x" * 200_000})
    flow = highway_workflow(workflow, fakes)
    await stage.work(flow)
    ended = await stage.end(await stage.start(flow), fakes)
    found = await seen(stage, str(ended.info.run_id), plan)
    assert (found.seen["t"].why.state, found.seen["f"].why.state) == ("succeeded", "skipped")
