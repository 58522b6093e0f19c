"""A retry of a run takes back every failure that led to its end, wherever it happened, and nothing else."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from highway_dsl import RetryPolicy, TaskOperator, WaitForEventOperator, Workflow, WorkflowBuilder
from interpreter.highway import highway_workflow

from .stage import Ended, Fakes, Stage

BOOM = RuntimeError("boom")


class Trouble(Fakes):
    """Every function fails for the steps in `fails`, until they are cleared."""

    def __init__(self, *fails: str) -> None:
        super().__init__()
        self.fails = set(fails)

    async def _outcome(self, name: str, step: str, args: Any, kwargs: Any) -> Any:
        if step in self.fails or name in self.fails:
            raise BOOM
        return list(args)

    @property
    def counts(self) -> dict[str, int]:
        return dict(Counter(self.steps))


async def fails_and_is_retried(stage: Stage, workflow: Workflow, trouble: Trouble, kept: int = 0) -> Ended:
    flow = highway_workflow(workflow, trouble)
    await stage.work(flow, kept_continuations=kept)
    run = await stage.start(flow)
    first = await stage.end(run, trouble)
    assert first.state == "failed", first.error
    trouble.fails.clear()
    await stage.client.retry(run)
    return await stage.end(run, trouble)


def several() -> Workflow:
    workflow = (
        WorkflowBuilder("several")
        .parallel("par", branches={"a": lambda b: b.task("a1", "f"), "b": lambda b: b.task("b1", "f").task("b2", "f")})
        .task("lone", "f", dependencies=[])
        .task("after", "f", dependencies=["par", "lone"])
        .build()
    )
    workflow.tasks["lone"].on_failure_task_id = "alert"
    return workflow.add_task(TaskOperator(task_id="alert", function="f"))


async def test_all_failed_tasks_are_tried_again_at_once(stage: Stage) -> None:
    """In the run, in branches, with and without a handler: one retry is enough, and what succeeded stays."""
    trouble = Trouble("par#0/a1", "par#1/b2", "lone")
    ended = await fails_and_is_retried(stage, several(), trouble)
    assert (ended.state, ended.error) == ("succeeded", {})
    twice = {"par#0/a1": 2, "par#1/b2": 2, "lone": 2}
    assert trouble.counts == {**twice, "par#1/b1": 1, "alert@lone": 1, "after": 1}


@pytest.mark.parametrize("cap", [None, 2])
async def test_failures_in_tasks_of_their_own_are_taken_back_there(stage: Stage, cap: int | None) -> None:
    """Items that were spawned and failed run again in their tasks; items that succeeded do not."""
    builder = WorkflowBuilder("spread")
    builder.foreach(
        "each",
        items="{{range(6)}}",
        loop_body=lambda b: b.task("t", "f", args=["{{item}}"]).task("u", "f", args=["{{t[0]}}"]),
        parallel=True,
        max_parallel=cap,
        metadata={"spawn": True},
    )
    trouble = Trouble("each[1]/u", "each[4]/t")
    ended = await fails_and_is_retried(stage, builder.build(), trouble)
    assert (ended.state, ended.result) == ("succeeded", [[n] for n in range(6)])
    assert {step for step, count in trouble.counts.items() if count > 1} == {"each[1]/u", "each[4]/t"}
    assert len(await stage.sql("select 1 from durable.task where parent_id is not null")) == 6


async def test_failures_in_tasks_below_tasks_are_taken_back(stage: Stage) -> None:
    """A spawned branch that spawns in its turn goes on all the way down."""
    deep = {"metadata": {"spawn": True}}
    builder = WorkflowBuilder("deep")
    builder.parallel(
        "out", branches={"a": lambda b: b.parallel("in", branches={"x": lambda c: c.task("t", "f")}, **deep)}, **deep
    )
    trouble = Trouble("out#0/in#0/t")
    ended = await fails_and_is_retried(stage, builder.task("after", "f").build(), trouble)
    assert (ended.state, trouble.counts) == ("succeeded", {"out#0/in#0/t": 2, "after": 1})


async def test_only_the_last_attempt_of_a_composite_is_taken_back(stage: Stage) -> None:
    """Failures that a policy has dealt with stay: the names of attempts say which one goes on."""
    builder = WorkflowBuilder("again")
    builder.foreach(
        "each",
        items="{{[1, 2]}}",
        loop_body=lambda b: b.task("t", "f"),
        parallel=True,
        retry_policy=RetryPolicy(max_retries=1, delay=timedelta(seconds=5)),
    )
    trouble = Trouble("each~1[0]/t", "each~2[0]/t", "each~2[1]/t")
    ended = await fails_and_is_retried(stage, builder.build(), trouble)
    assert ended.state == "succeeded"
    assert trouble.counts == {"each~1[0]/t": 1, "each~1[1]/t": 1, "each~2[0]/t": 2, "each~2[1]/t": 2}


@pytest.mark.parametrize("spawn", [False, True])
async def test_a_parallel_that_timed_out_gets_its_time_again(stage: Stage, spawn: bool) -> None:
    """Its timer is set anew and its branches go on from where they were stopped."""
    builder = WorkflowBuilder("hurried")
    builder.parallel(
        "par",
        branches={"a": lambda b: b.task("a1", "f").wait_for_event("ear", event_name="go").task("a2", "f")},
        timeout=3600,
        metadata={"spawn": spawn},
    )
    trouble = Trouble()
    flow = highway_workflow(builder.build(), trouble)
    await stage.work(flow, kept_continuations=0)
    run = await stage.start(flow)
    first = await stage.end(run, trouble)
    assert (first.state, first.error["type"]) == ("failed", "Timeout")
    await stage.client.retry(run)
    await stage.client.emit("go")
    ended = await stage.end(run, trouble)
    assert (ended.state, trouble.counts) == ("succeeded", {"par#0/a1": 1, "par#0/a2": 1})


async def test_a_wait_that_timed_out_waits_again(stage: Stage) -> None:
    """The outcome of the wait is taken back, and the event that came since is received."""
    workflow, trouble = Workflow(name="deaf"), Trouble()
    workflow.add_task(WaitForEventOperator(task_id="ear", event_name="late", timeout_seconds=60))
    flow = highway_workflow(workflow, trouble)
    await stage.work(flow, kept_continuations=0)
    run = await stage.start(flow)
    assert (await stage.end(run, trouble)).error["type"] == "EventTimeout"
    await stage.client.emit("late", {"n": 1})
    await stage.client.retry(run)
    ended = await stage.end(run, trouble)
    assert (ended.state, ended.result) == ("succeeded", {"n": 1})


@pytest.mark.parametrize("spawn", ["never", "always"])
async def test_a_handler_that_failed_in_a_loop_runs_again(stage: Stage, spawn: str) -> None:
    """What failed the run without failing an operator is taken back too."""
    builder = WorkflowBuilder("told")
    builder.foreach(
        "each",
        items="{{[1, 2]}}",
        loop_body=lambda b: b.task("work", "f"),
        parallel=True,
        metadata={"spawn": spawn},
    )
    workflow = builder.build().add_task(TaskOperator(task_id="tell", function="tell"))
    workflow.tasks["work"].on_success_task_id = "tell"
    trouble = Trouble("each[0]/tell@work", "each[1]/tell@work")
    ended = await fails_and_is_retried(stage, workflow, trouble)
    assert ended.state == "succeeded"
    told = {f"each[{n}]/tell@work": 2 for n in (0, 1)}
    assert trouble.counts == {**told, "each[0]/work": 1, "each[1]/work": 1}


async def test_a_run_that_fails_elsewhere_after_a_retry_may_be_retried_again(stage: Stage) -> None:
    """Each retry takes back what failed since."""
    workflow = WorkflowBuilder("slowly").task("a", "f").task("b", "f").task("c", "f", dependencies=[]).build()
    trouble = Trouble("a", "b", "c")
    flow = highway_workflow(workflow, trouble)
    await stage.work(flow, kept_continuations=0)
    run = await stage.start(flow)
    for still in ({"b", "c"}, {"c"}, set[str]()):
        assert (await stage.end(run, trouble)).state == "failed"
        trouble.fails = still
        await stage.client.retry(run)
    ended = await stage.end(run, trouble)
    assert (ended.state, trouble.counts) == ("succeeded", {"a": 2, "b": 2, "c": 4})


@pytest.mark.parametrize("how", ["cancel", "deadline"])
async def test_a_stopped_run_goes_on_with_what_was_stopped_along(stage: Stage, how: str) -> None:
    """Branches that are tasks and runs that it started go on too, from where they were."""
    child = WorkflowBuilder("child").task("c1", "f").wait_for_event("ear", event_name="go").build()
    builder = WorkflowBuilder("stopped")
    builder.parallel(
        "par",
        branches={
            "a": lambda b: b.task("a1", "f").wait_for_event("a2", event_name="go"),
            "b": lambda b: b.child_workflow("call", "child"),
        },
        metadata={"spawn": True},
    )
    workflow, trouble = builder.build(), Trouble()
    workflow.deadline_seconds = 3600
    flow = highway_workflow(workflow, trouble)
    await stage.work(flow, highway_workflow(child, trouble), kept_continuations=0)
    run = await stage.start(flow)

    async def are(state: str) -> bool:
        rows = await stage.sql("select state::text from durable.task")
        return [row[0] for row in rows] == [state] * 4

    await stage.until(lambda: are("parked"))
    if how == "cancel":
        await stage.client.cancel(run)
    first = await stage.end(run, trouble)
    assert first.state == ("cancelled" if how == "cancel" else "failed")
    await stage.until(lambda: _all_final(stage))
    await stage.client.retry(run)
    await stage.until(lambda: are("parked"))
    await stage.client.emit("go")
    ended = await stage.end(run, trouble)
    assert (ended.state, ended.error) == ("succeeded", {})
    assert trouble.counts == {"par#0/a1": 1, "c1": 1}


async def _all_final(stage: Stage) -> bool:
    return not await stage.sql("select 1 from durable.task where finished_at is null")
