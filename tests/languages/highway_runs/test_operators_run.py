"""Each operator on a real worker: what it does in time, when it fails, and with the fields of later versions."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from durable import current_step
from highway_dsl import (
    ChildWorkflowOperator,
    JoinMode,
    JoinOperator,
    ParallelOperator,
    RetryPolicy,
    TaskOperator,
    TerminateOperator,
    TimeoutPolicy,
    TriggerRule,
    WaitForEventOperator,
    Workflow,
    WorkflowBuilder,
)
from interpreter.driver import FunctionTable
from interpreter.highway import highway_workflow

from .stage import Fakes, Stage

BOOM = RuntimeError("boom")
SOON = timedelta(milliseconds=200)


async def forever(*_: Any) -> None:
    await asyncio.sleep(3600)


def limited(function: str, **retry: Any) -> Workflow:
    workflow = Workflow(name="limited")
    return workflow.add_task(
        TaskOperator(
            task_id="slow",
            function=function,
            args=[3600],
            timeout_policy=TimeoutPolicy(timeout=SOON),
            retry_policy=RetryPolicy(delay=timedelta(0), **retry) if retry else None,
            on_failure_task_id="alert",
        )
    ).add_task(TaskOperator(task_id="alert", function="alert", args=["{{failed_task_id}}"]))


async def test_every_attempt_has_its_own_timeout(stage: Stage) -> None:
    """An attempt that takes too long counts as a failure; after the last the callback runs."""
    ended = await stage.run(limited("slow", max_retries=2), {"slow": forever})
    assert [(call.step, call.attempt) for call in ended.fakes.calls] == [
        ("slow", 1),
        ("slow", 2),
        ("slow", 3),
        ("alert@slow", 1),
    ]
    assert (ended.state, ended.error["type"]) == ("failed", "StepTimeout")


async def test_a_plain_function_is_killed_at_its_timeout(stage: Stage) -> None:
    """A function that blocks runs in a process that is killed; the worker goes on."""
    called = []

    async def alert(task: str) -> None:
        called.append(task)

    flow = highway_workflow(limited("slow"), FunctionTable({"slow": time.sleep, "alert": alert}))
    await stage.work(flow)
    ended = await stage.end(await stage.start(flow), Fakes())
    assert (ended.error["type"], called) == ("StepTimeout", ["slow"])


async def test_a_parallel_past_its_timeout_fails_and_stops_its_branches(stage: Stage) -> None:
    """When the time is over what runs is cancelled, what waits never starts, and callbacks of the parallel run."""
    workflow = (
        WorkflowBuilder("hurried")
        .parallel(
            "par",
            branches={"a": lambda b: b.task("a1", "forever").task("a2", "f"), "b": lambda b: b.task("b1", "f")},
            timeout=1,
        )
        .on_failure("alert")
        .task("after", "f")
        .task("alert", "alert", args=["{{error_message}}"])
        .build()
    )
    ended = await stage.run(workflow, {"forever": forever})
    assert sorted(ended.fakes.tasks) == ["a1", "alert", "b1"]
    assert ended.noted("upstream_failed") == {"after"}
    assert (ended.state, ended.error["type"]) == ("failed", "Timeout")


async def test_a_spawned_parallel_past_its_timeout_stops_its_tasks(stage: Stage) -> None:
    """Branches that are tasks of their own are cancelled with the parallel."""
    workflow = (
        WorkflowBuilder("hurried_tasks")
        .parallel(
            "par",
            branches={"a": lambda b: b.wait("a1", wait_for="P1D"), "b": lambda b: b.task("b1", "f")},
            timeout=3600,
            metadata={"spawn": True},
        )
        .build()
    )
    ended = await stage.run(workflow)
    assert (ended.state, ended.error["type"]) == ("failed", "Timeout")

    async def all_ended() -> bool:
        rows = await stage.sql("select state::text from durable.task where parent_id is not null order by 1")
        return [row[0] for row in rows] == ["cancelled", "succeeded"]

    await stage.until(all_ended)


async def test_a_composite_with_retries_starts_over(stage: Stage) -> None:
    """A foreach with a policy of its own runs again from its first item, under names of the next attempt."""
    workflow = WorkflowBuilder("again").build()
    builder = WorkflowBuilder("again", existing_workflow=workflow)
    builder.foreach(
        "each",
        items="{{[1, 2]}}",
        loop_body=lambda b: b.task("work", "work", args=["{{item}}"]),
        retry_policy=RetryPolicy(max_retries=1, delay=timedelta(seconds=5)),
    )
    outcomes = [1, BOOM, 3, 4]
    ended = await stage.run(builder.build(), {"work": lambda item: outcomes.pop(0)})
    assert ended.fakes.steps == ["each~1[0]/work", "each~1[1]/work", "each~2[0]/work", "each~2[1]/work"]
    assert (ended.state, ended.result) == ("succeeded", [3, 4])


async def test_a_while_loop_has_a_limit(stage: Stage) -> None:
    """A loop whose condition always holds fails at its limit."""
    workflow = (
        WorkflowBuilder("endless").while_loop("loop", condition="true", loop_body=lambda b: b.task("t", "f")).build()
    )
    ended = await stage.run(workflow, iterations=7)
    assert (ended.state, ended.error["type"], len(ended.fakes.tasks)) == ("failed", "IterationLimit", 7)


@pytest.mark.parametrize(
    "wait",
    [timedelta(hours=3), "PT3H", "duration:10800", "time:04:00:00", datetime.now(UTC) + timedelta(hours=3), "P1D"],
)
async def test_a_wait_of_every_form_ends_when_the_clock_says_so(stage: Stage, wait: Any) -> None:
    """Durations, moments and times of day are waited for without a slot, and not a second less."""
    fakes = Fakes()
    flow = highway_workflow(WorkflowBuilder("waiting").wait("w", wait_for=wait).task("after", "f").build(), fakes)
    await stage.work(flow)
    run = await stage.start(flow)
    await stage.parked(run)
    ended = await stage.end(run, fakes)
    assert (ended.state, fakes.tasks) == ("succeeded", ["after"])
    (until, slept) = (
        await stage.sql(
            "select (a.body->>'until')::float, extract(epoch from b.at)::float"
            " from durable.journal a, durable.journal b where a.kind = 'sleep' and b.kind = 'slept'"
        )
    )[0]
    assert slept >= until - 0.01
    if wait == "time:04:00:00":
        assert datetime.fromtimestamp(until, UTC).strftime("%H:%M:%S") == "04:00:00"


async def test_an_event_that_never_comes_fails_its_wait_and_runs_the_callback(stage: Stage) -> None:
    """After its timeout the wait has failed; what depends on it does not run, its callback does."""
    workflow = Workflow(name="deaf")
    workflow.add_task(
        WaitForEventOperator(task_id="ear", event_name="never", timeout_seconds=60, on_failure_task_id="alert")
    )
    workflow.add_task(TaskOperator(task_id="after", function="f", dependencies=["ear"]))
    workflow.add_task(TaskOperator(task_id="alert", function="alert"))
    ended = await stage.run(workflow)
    assert (ended.state, ended.fakes.tasks, ended.error["type"]) == ("failed", ["alert"], "EventTimeout")


async def test_an_event_is_waited_for_again_as_the_policy_says(stage: Stage) -> None:
    """A wait that timed out is tried again; the event that came meanwhile is found."""
    workflow = WorkflowBuilder("patient").wait_for_event(
        "ear",
        event_name="late",
        timeout_seconds=60,
        retry_policy=RetryPolicy(max_retries=1, delay=timedelta(seconds=5)),
    )
    fakes = Fakes()
    flow = highway_workflow(workflow.build(), fakes)
    await stage.work(flow, kept_continuations=0)
    run = await stage.start(flow)
    await stage.parked(run)
    await stage.skip(61)

    async def timed_out() -> bool:
        return bool(await stage.sql("select 1 from durable.journal where kind = 'timeout'"))

    await stage.until(timed_out)
    await stage.client.emit("late", {"n": 1})
    ended = await stage.end(run, fakes)
    assert (ended.state, ended.result) == ("succeeded", {"n": 1})


@pytest.mark.parametrize(
    ("rule", "runs"),
    [
        (TriggerRule.ALL_SUCCESS, False),
        (TriggerRule.ALL_DONE, True),
        (TriggerRule.ONE_SUCCESS, True),
        (TriggerRule.ONE_DONE, True),
        (TriggerRule.NONE_FAILED, False),
    ],
)
async def test_a_trigger_rule_decides_what_a_failure_means(stage: Stage, rule: TriggerRule, runs: bool) -> None:
    """With one dependency that failed and one that succeeded, the rule says whether the task runs."""
    workflow = Workflow(name="rules")
    workflow.add_task(TaskOperator(task_id="bad", function="bad"))
    workflow.add_task(TaskOperator(task_id="good", function="good"))
    workflow.add_task(TaskOperator(task_id="t", function="f", dependencies=["bad", "good"], trigger_rule=rule))
    ended = await stage.run(workflow, {"bad": BOOM})
    assert ("t" in ended.fakes.tasks, ended.state) == (runs, "failed")


@pytest.mark.parametrize(
    ("mode", "runs"),
    [(JoinMode.ALL_OF, True), (JoinMode.ANY_OF, True), (JoinMode.ALL_SUCCESS, False), (JoinMode.ONE_SUCCESS, True)],
)
async def test_a_join_waits_by_its_mode(stage: Stage, mode: JoinMode, runs: bool) -> None:
    """What follows a join runs if the join was satisfied."""
    workflow = Workflow(name="joins")
    workflow.add_task(TaskOperator(task_id="bad", function="bad"))
    workflow.add_task(TaskOperator(task_id="good", function="good"))
    workflow.add_task(JoinOperator(task_id="join", join_tasks=["bad", "good"], join_mode=mode))
    workflow.add_task(TaskOperator(task_id="t", function="f", dependencies=["join"]))
    ended = await stage.run(workflow, {"bad": BOOM})
    assert ("t" in ended.fakes.tasks) == runs


@pytest.mark.parametrize(("status", "state"), [("completed", "succeeded"), ("failed", "failed")])
async def test_terminate_ends_the_run(stage: Stage, status: Any, state: str) -> None:
    """What runs is cancelled, what waits never starts, and the run ends as the operator says."""
    workflow = Workflow(name="stops")
    workflow.add_task(TaskOperator(task_id="a", function="a"))
    workflow.add_task(TaskOperator(task_id="long", function="forever"))
    workflow.add_task(
        TerminateOperator(task_id="stop", status=status, result={"n": "{{a}}"}, reason="enough", dependencies=["a"])
    )
    workflow.add_task(TaskOperator(task_id="after", function="f", dependencies=["long"]))
    ended = await stage.run(workflow, {"a": 5, "forever": forever})
    assert ended.state == state
    assert sorted(ended.fakes.tasks) == ["a", "long"]
    if state == "succeeded":
        assert ended.result == {"n": 5}
    else:
        assert (ended.error["type"], ended.error["message"]) == ("Terminated", "enough")


async def test_child_workflows_run_and_give_their_results(stage: Stage) -> None:
    """Children get their inputs rendered, run on their own, and their results come back by name."""
    child = WorkflowBuilder("child").task("double", "double", args=["{{inputs.n}}"]).build()
    parent = Workflow(name="parent").set_variables({"n": 4})
    parent.add_task(
        ChildWorkflowOperator(
            task_id="kids",
            children={
                "one": {"workflow_name": "child", "inputs": {"n": "{{n}}"}},
                "two": {"workflow_name": "child", "inputs": {"n": 5}},
            },
        )
    )
    parent.add_task(TaskOperator(task_id="sum", function="sum", args=["{{kids}}"], dependencies=["kids"]))
    fakes = Fakes({"double": lambda n: n * 2, "sum": lambda kids: kids["one"] + kids["two"]})
    flow = highway_workflow(parent, fakes)
    await stage.work(flow, highway_workflow(child, fakes), kept_continuations=0)
    ended = await stage.end(await stage.start(flow), fakes)
    assert (ended.state, ended.result) == ("succeeded", 18)


async def test_a_child_workflow_that_fails_fails_its_operator(stage: Stage) -> None:
    """The error of the child is the operator's."""
    child = WorkflowBuilder("child").task("bad", "bad").build()
    parent = Workflow(name="parent")
    parent.add_task(ChildWorkflowOperator(task_id="kids", children={"one": {"workflow_name": "child"}}))
    fakes = Fakes({"bad": BOOM})
    flow = highway_workflow(parent, fakes)
    await stage.work(flow, highway_workflow(child, fakes))
    ended = await stage.end(await stage.start(flow), fakes)
    assert (ended.state, ended.error["message"]) == ("failed", "boom")


async def test_a_deadline_ends_the_run(stage: Stage) -> None:
    """A run that is not done at its deadline fails."""
    workflow = WorkflowBuilder("late").wait("w", wait_for=timedelta(days=2)).build()
    workflow.deadline_seconds = 3600
    ended = await stage.run(workflow)
    assert (ended.state, ended.error["type"]) == ("failed", "DeadlineExceeded")


async def test_a_foreach_keeps_its_names_and_gives_a_list(stage: Stage) -> None:
    """Items cannot see each other's results; the loop's own is the list of theirs, in order."""
    workflow = (
        WorkflowBuilder("list")
        .foreach("each", items="{{[3, 1, 2]}}", loop_body=lambda b: b.task("t", "t", args=["{{item}}"], result_key="r"))
        .task("after", "after", args=["{{each}}", "{{each_results}}", "{{each.output}}"])
        .build()
    )
    ended = await stage.run(workflow, {"t": lambda n: n * 10})
    assert ended.fakes.calls[-1].args == ([30, 10, 20],) * 3


async def test_a_cap_is_never_exceeded(stage: Stage) -> None:
    """A parallel foreach runs at most so many items at once."""
    now, most = 0, 0

    async def work(*_: Any) -> None:
        nonlocal now, most
        now, most = now + 1, max(most, now + 1)
        await asyncio.sleep(0.02)
        now -= 1

    workflow = (
        WorkflowBuilder("capped")
        .foreach("each", items="{{range(9)}}", loop_body=lambda b: b.task("t", "t"), parallel=True, max_parallel=3)
        .build()
    )
    ended = await stage.run(workflow, {"t": work})
    assert (ended.state, most, len(ended.fakes.calls)) == ("succeeded", 3, 9)


async def test_many_items_are_spread_over_tasks(stage: Stage) -> None:
    """Over the limit, items of a parallel foreach become tasks of their own, several items each."""
    workflow = (
        WorkflowBuilder("many")
        .foreach("each", items="{{range(100)}}", loop_body=lambda b: b.task("t", "t", args=["{{item}}"]), parallel=True)
        .build()
    )
    ended = await stage.run(workflow, {"t": lambda n: n})
    assert ended.result == list(range(100))
    assert (await stage.sql("select count(*) from durable.task where parent_id is not null"))[0][0] == 25


@pytest.mark.parametrize("spawn", [False, True])
async def test_a_callback_knows_its_cause_in_tasks_of_its_own_too(stage: Stage, spawn: bool) -> None:
    """What is inside of a failure handler knows who failed and how, wherever it runs."""
    args = ["{{item}}", "{{failed_task_id}}", "{{error_message}}"]
    workflow = Workflow(name="told")
    workflow.add_task(TaskOperator(task_id="bad", function="bad", on_failure_task_id="each"))
    loop = WorkflowBuilder("loop").foreach(
        "each",
        items="{{[1, 2]}}",
        loop_body=lambda b: b.task("alert", "alert", args=args),
        parallel=True,
        metadata={"spawn": spawn},
    )
    workflow.add_task(loop.build().tasks["each"])
    ended = await stage.run(workflow, {"bad": BOOM})
    told = sorted(call.args for call in ended.fakes.calls if call.function == "alert")
    assert told == [(1, "bad", "boom"), (2, "bad", "boom")]


async def test_a_parallel_with_a_dependency_between_its_branches_waits_for_it(stage: Stage) -> None:
    """Branches that are tied to each other run in one frame, in the order their dependencies say."""
    workflow = Workflow(name="tied")
    workflow.add_task(ParallelOperator(task_id="par", branches={"a": ["a"], "b": ["b"]}))
    workflow.add_task(TaskOperator(task_id="a", function="a", dependencies=["par"]))
    workflow.add_task(TaskOperator(task_id="b", function="b", args=["{{a}}"], dependencies=["par", "a"]))
    workflow.add_task(TaskOperator(task_id="after", function="f", dependencies=["par"]))
    ended = await stage.run(workflow, {"a": 5})
    assert (ended.fakes.tasks, ended.fakes.calls[1].args) == (["a", "b", "after"], (5,))


async def test_a_cancelled_run_starts_nothing_more(stage: Stage) -> None:
    """Cancelling ends a run that waits, whatever else it would have done."""
    fakes = Fakes()
    flow = highway_workflow(WorkflowBuilder("c").wait("w", wait_for="P1D").task("t", "f").build(), fakes)
    await stage.work(flow)
    run = await stage.start(flow)
    await stage.parked(run)
    await stage.client.cancel(run)
    ended = await stage.end(run, fakes)
    assert (ended.state, fakes.tasks) == ("cancelled", [])


async def test_a_failed_run_goes_on_from_the_task_that_failed(stage: Stage) -> None:
    """Retrying a run repeats the failed task only, and then what it held up."""
    outcomes = [BOOM, "fine"]
    workflow = WorkflowBuilder("again").task("a", "a").task("b", "b").task("c", "c").build()
    fakes = Fakes({"b": lambda: outcomes.pop(0)})
    flow = highway_workflow(workflow, fakes)
    await stage.work(flow)
    run = await stage.start(flow)
    assert (await stage.end(run, fakes)).state == "failed"
    await stage.client.retry(run)
    ended = await stage.end(run, fakes)
    assert (ended.state, fakes.tasks) == ("succeeded", ["a", "b", "b", "c"])


async def test_a_task_may_choose_its_idempotency_key(stage: Stage) -> None:
    """The key is rendered, and the step that asks for its key is given it; others have one of their own."""
    seen = []

    async def look() -> None:
        seen.append(current_step().idempotency_key)

    workflow = Workflow(name="keys")
    workflow.add_task(TaskOperator(task_id="a", function="look", idempotency_key="order-{{inputs.n}}"))
    workflow.add_task(TaskOperator(task_id="b", function="look", dependencies=["a"]))
    flow = highway_workflow(workflow, FunctionTable({"look": look}))
    await stage.work(flow)
    run = await stage.start(flow, {"n": 7})
    await stage.client.result(run, timeout=30)
    assert seen == ["order-7", f"{run}:b"]


async def test_a_retry_after_a_snapshot_begins_before_it(stage: Stage) -> None:
    """A failure that a snapshot has taken in is still taken back by a retry of the run."""
    workflow = (
        WorkflowBuilder("early")
        .task("bad", "bad")
        .foreach("each", items="{{range(400)}}", loop_body=lambda b: b.task("tick", "tick"), dependencies=[])
        .build()
    )
    outcomes = [BOOM, "fine"]
    fakes = Fakes({"bad": lambda: outcomes.pop(0)})
    flow = highway_workflow(workflow, fakes)
    await stage.work(flow)
    run = await stage.start(flow)
    assert (await stage.end(run, fakes)).state == "failed"
    assert (await stage.sql("select count(*) from durable.journal where kind = 'snapshot'"))[0][0] >= 1
    await stage.client.retry(run)
    ended = await stage.end(run, fakes)
    assert (ended.state, fakes.tasks.count("bad"), fakes.tasks.count("tick")) == ("succeeded", 2, 400)
