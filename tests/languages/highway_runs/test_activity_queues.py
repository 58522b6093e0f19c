"""Activities with a queue of their own: only workers that serve it make their calls, and nothing else is different."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from durable import current_step
from highway_dsl import ActivityOperator, RetryPolicy, TerminateOperator, TimeoutPolicy, Workflow, WorkflowBuilder
from interpreter.driver import FunctionTable, plan_workflow
from interpreter.expressions import Templates
from interpreter.highway import HighwayTemplates, compile_workflow, highway_workflow
from interpreter.plan import Call, Each, Graph, Plan
from interpreter.simulate import read_outcomes, simulate

from .stage import Ended, Fakes, Stage

GPU = "gpu"
Make = Callable[[str | None], Workflow]


def trained(queue: str | None = GPU, **options: Any) -> Workflow:
    """A call on a queue between two calls that are on none."""
    return (
        WorkflowBuilder("trained")
        .task("load", "load", result_key="rows")
        .activity("train", "train", args=["{{rows}}"], result_key="model", queue=queue, **options)
        .task("report", "report", args=["{{model}}", "{{train}}"])
        .build()
    )


def fakes_for_training(**more: Any) -> Fakes:
    return Fakes({"load": [1, 2], "train": lambda rows: {"n": len(rows)}, "report": lambda *args: list(args), **more})


async def children(stage: Stage, *states: str) -> list[tuple[str, str]]:
    """Queue and state of every task below a run's own that is in one of these states, or in any."""
    found = await stage.sql("select queue, state from durable.branch where parent_id is not null order by task_id")
    return [(queue, state) for queue, state in found if not states or state in states]


async def stands_in(stage: Stage, queue: str, *, count: int = 1) -> None:
    """Wait until so many tasks are ready on a queue."""

    async def are_ready() -> bool:
        return await children(stage, "ready") == [(queue, "ready")] * count

    await stage.until(are_ready)


async def performed(stage: Stage, workflow: Workflow, fakes: Fakes, **options: Any) -> Ended:
    """Run to the end with a worker for each of both queues."""
    flow = highway_workflow(workflow, fakes, **options)
    await stage.work(flow, queues=("default",))
    await stage.work(flow, queues=(GPU,))
    return await stage.end(await stage.start(flow), fakes)


async def test_only_a_worker_of_the_queue_makes_the_call(stage: Stage) -> None:
    """With none, the run parks and its task stands on the queue; the result comes when one starts, and it makes no
    other call."""
    here, there = fakes_for_training(), fakes_for_training()
    await stage.work(highway_workflow(trained(), here), queues=("default",))
    run = await stage.start(highway_workflow(trained(), here))
    await stands_in(stage, GPU)
    await stage.parked(run)
    assert here.tasks == ["load"]
    await stage.work(highway_workflow(trained(), there), queues=(GPU,))
    ended = await stage.end(run, here)
    assert (ended.state, ended.result) == ("succeeded", [{"n": 2}, {"n": 2}])
    assert (here.tasks, there.tasks) == (["load", "report"], ["train"])
    assert await children(stage) == [(GPU, "succeeded")]


async def test_without_a_queue_the_call_is_made_in_place(stage: Stage) -> None:
    """No task of its own, and the plan of a plain task."""
    fakes = fakes_for_training()
    ended = await performed(stage, trained(None), fakes)
    assert (ended.result, await children(stage)) == ([{"n": 2}, {"n": 2}], [])
    document = trained(None).to_yaml()
    assert "queue" not in document
    plain = Workflow.from_yaml(document.replace("operator_type: activity", "operator_type: task"))
    assert compile_workflow(plain).hash == compile_workflow(trained(None)).hash


def failing(queue: str | None) -> Workflow:
    workflow = trained(queue)
    workflow.tasks["train"].on_failure_task_id = "alert"
    return workflow.add_task(
        ActivityOperator(
            task_id="alert",
            function="alert",
            args=["{{failed_task_id}}", "{{error_message}}"],
            queue=queue,
        )
    )


@pytest.mark.parametrize("queue", [None, GPU])
async def test_a_failure_calls_back_with_its_cause(stage: Stage, queue: str | None) -> None:
    """Also where the callback itself is on a queue: it knows who failed and how, and the run fails with that error."""
    fakes = fakes_for_training(train=ValueError("no memory"))
    ended = await performed(stage, failing(queue), fakes)
    assert (ended.state, ended.error["type"], ended.error["message"]) == ("failed", "ValueError", "no memory")
    assert [(call.function, call.args) for call in fakes.calls[1:]] == [
        ("train", ([1, 2],)),
        ("alert", ("train", "no memory")),
    ]
    assert ended.noted("upstream_failed") == {"report"}


@pytest.mark.parametrize("queue", [None, GPU])
async def test_a_success_calls_back(stage: Stage, queue: str | None) -> None:
    """The callback sees what the activity gave."""
    workflow = trained(queue)
    workflow.tasks["train"].on_success_task_id = "praise"
    workflow.add_task(ActivityOperator(task_id="praise", function="praise", args=["{{model.n}}"], queue=queue))
    fakes = fakes_for_training()
    ended = await performed(stage, workflow, fakes)
    assert ended.state == "succeeded"
    assert [call.args for call in fakes.calls if call.function == "praise"] == [(2,)]


@pytest.mark.parametrize("queue", [None, GPU])
async def test_retries_are_made_where_the_call_is(stage: Stage, queue: str | None) -> None:
    """One task for all attempts, each with the same key; the wait between them goes by on no worker."""
    keys: list[str] = []

    async def stumble(rows: Any) -> str:
        info = current_step()
        keys.append(f"{info.attempt} {info.idempotency_key}")
        if info.attempt < 3:
            raise RuntimeError("again")
        return "done"

    fakes = fakes_for_training(train=stumble)
    options = {"retry_policy": RetryPolicy(max_retries=2, delay=timedelta(hours=1)), "idempotency_key": "k-{{rows[1]}}"}
    ended = await performed(stage, trained(queue, **options), fakes)
    assert (ended.result, keys) == (["done", "done"], ["1 k-2", "2 k-2", "3 k-2"])
    assert len(await children(stage)) == (0 if queue is None else 1)


@pytest.mark.parametrize("queue", [None, GPU])
async def test_a_call_that_takes_too_long_is_stopped(stage: Stage, queue: str | None) -> None:
    """Its time counts from its start on a worker: waiting for one is free."""
    stopped = asyncio.Event()

    async def endless(rows: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    functions = FunctionTable({"load": _rows, "train": endless, "report": _rows})
    limit = TimeoutPolicy(timeout=timedelta(milliseconds=50))
    flow = highway_workflow(trained(queue, timeout_policy=limit), functions)
    await stage.work(flow, queues=("default",))
    run = await stage.start(flow)
    if queue is not None:
        await stands_in(stage, queue)
        await stage.skip(3600)
        await stage.work(flow, queues=(queue,))
    ended = await stage.end(run, Fakes())
    assert (ended.state, ended.error["type"]) == ("failed", "StepTimeout")
    assert stopped.is_set()


async def _rows(*args: Any) -> list[int]:
    return [1, 2]


async def test_a_run_is_cancelled_while_its_activity_waits_for_a_worker(stage: Stage) -> None:
    """The task that stands on the queue ends with it: a worker that comes later finds nothing to do."""
    fakes = fakes_for_training()
    flow = highway_workflow(trained(), fakes)
    await stage.work(flow, queues=("default",))
    run = await stage.start(flow)
    await stands_in(stage, GPU)
    await stage.client.cancel(run)
    assert (await stage.end(run, fakes)).state == "cancelled"
    await _ends(stage, (GPU, "cancelled"))
    await stage.work(flow, queues=(GPU,))
    assert fakes.tasks == ["load"]


async def test_a_run_is_cancelled_while_its_activity_runs(stage: Stage) -> None:
    """The call is stopped on the worker that makes it."""
    began, stopped = asyncio.Event(), asyncio.Event()

    async def endless(rows: Any) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    fakes = fakes_for_training(train=endless)
    flow = highway_workflow(trained(), fakes)
    await stage.work(flow, queues=("default",))
    await stage.work(flow, queues=(GPU,))
    run = await stage.start(flow)
    await began.wait()
    await stage.client.cancel(run)
    assert (await stage.end(run, fakes)).state == "cancelled"
    await stopped.wait()
    await _ends(stage, (GPU, "cancelled"))


async def test_a_run_that_ends_itself_takes_its_activity_off_the_queue(stage: Stage) -> None:
    """A terminate waits for no worker of another queue."""
    workflow = trained()
    workflow.add_task(TerminateOperator(task_id="stop", dependencies=["hear"], result={"n": 1}))
    workflow.add_task(_ear("hear"))
    fakes = fakes_for_training()
    flow = highway_workflow(workflow, fakes)
    await stage.work(flow, queues=("default",))
    run = await stage.start(flow)
    await stands_in(stage, GPU)
    await stage.client.emit("enough")
    ended = await stage.end(run, fakes)
    assert (ended.state, ended.result) == ("succeeded", {"n": 1})
    await _ends(stage, (GPU, "cancelled"))


def _ear(task_id: str) -> Any:
    return WorkflowBuilder("ear").wait_for_event(task_id, event_name="enough").build().tasks[task_id]


async def _ends(stage: Stage, *expected: tuple[str, str]) -> None:
    async def holds() -> bool:
        return await children(stage) == list(expected)

    await stage.until(holds)


def in_foreach(queue: str | None) -> Workflow:
    return (
        WorkflowBuilder("in_foreach")
        .foreach(
            "each",
            items="{{[1, 2, 3]}}",
            loop_body=lambda b: b.activity("a", "add", args=["{{item}}"], queue=queue).task("b", "add", args=["{{a}}"]),
        )
        .task("last", "echo", args=["{{each}}"])
        .build()
    )


def in_parallel_foreach(queue: str | None, **metadata: Any) -> Workflow:
    return (
        WorkflowBuilder("in_parallel_foreach")
        .foreach(
            "each",
            items="{{[1, 2, 3]}}",
            loop_body=lambda b: b.activity("a", "add", args=["{{item}}"], queue=queue).task("b", "add", args=["{{a}}"]),
            parallel=True,
            max_parallel=2,
            metadata=metadata,
        )
        .task("last", "echo", args=["{{each}}"])
        .build()
    )


def in_parallel(queue: str | None) -> Workflow:
    return (
        WorkflowBuilder("in_parallel")
        .parallel(
            "par",
            branches={
                "x": lambda b: b.activity("x1", "add", args=[1], queue=queue, result_key="x"),
                "y": lambda b: b.task("y1", "add", args=[5]).activity("y2", "add", args=["{{y1}}"], queue=queue),
            },
        )
        .task("last", "echo", args=["{{x}}", "{{y2}}"])
        .build()
    )


def in_condition(queue: str | None) -> Workflow:
    return (
        WorkflowBuilder("in_condition")
        .activity("first", "add", args=[1], queue=queue)
        .condition(
            "big",
            condition="{{first}} > 1",
            if_true=lambda b: b.activity("yes", "add", args=["{{first}}"], queue=queue),
            if_false=lambda b: b.activity("no", "add", args=[0], queue=queue),
        )
        .task("last", "echo", args=["{{yes}}"])
        .build()
    )


def in_while(queue: str | None) -> Workflow:
    return (
        WorkflowBuilder("in_while")
        .task("zero", "add", args=[-1], result_key="n")
        .while_loop(
            "again",
            condition="{{n}} < 3",
            loop_body=lambda b: b.activity("a", "add", args=["{{n}}"], result_key="n", queue=queue),
        )
        .build()
    )


def fails_midway(queue: str | None) -> Workflow:
    return (
        WorkflowBuilder("fails_midway")
        .activity("a", "bad", queue=queue)
        .activity("b", "add", dependencies=[], args=[1], queue=queue)
        .activity("c", "add", args=["{{a}}"], dependencies=["a"], queue=queue)
        .activity("d", "echo", args=["{{b}}"], dependencies=["a", "b"], trigger_rule="all_done", queue=queue)
        .build()
    )


def mistaken(queue: str | None) -> Workflow:
    return WorkflowBuilder("mistaken").activity("a", "add", args=["{{inputs.nothing.here}}"], queue=queue).build()


def failing_handler(queue: str | None) -> Workflow:
    workflow = in_foreach(queue)
    workflow.tasks["a"].on_success_task_id = "h"
    return workflow.add_task(ActivityOperator(task_id="h", function="bad", queue=queue))


def handled(queue: str | None) -> Workflow:
    workflow = fails_midway(queue)
    workflow.accept_handled = True
    workflow.tasks["a"].on_failure_task_id = "cure"
    return workflow.add_task(
        ActivityOperator(task_id="cure", function="echo", args=["{{failed_task_id}}"], queue=queue)
    )


def hasty(queue: str | None) -> Workflow:
    workflow = fails_midway(queue)
    del workflow.tasks["b"], workflow.tasks["d"]
    workflow.fail_fast = True
    return workflow


PLACES: dict[str, Make] = {
    "foreach": in_foreach,
    "parallel foreach": in_parallel_foreach,
    "spawned foreach": lambda queue: in_parallel_foreach(queue, spawn=True),
    "parallel": in_parallel,
    "condition": in_condition,
    "while": in_while,
    "failure": fails_midway,
    "template": mistaken,
    "failing handler": failing_handler,
    "handled": handled,
    "fail fast": hasty,
}


@pytest.mark.parametrize("place", PLACES)
async def test_a_queue_changes_where_but_not_what(stage: Stage, place: str) -> None:
    """With and without a queue a workflow makes the same calls and comes to the same end."""
    ends = []
    for queue in (None, GPU):
        fakes = Fakes({"add": lambda n: n + 1, "echo": lambda *args: list(args), "bad": RuntimeError("bad")})
        ended = await performed(stage, PLACES[place](queue), fakes, name=f"flow_{queue}")
        calls = sorted(zip(fakes.tasks, (str(call.args) for call in fakes.calls), strict=True))
        skipped = {path for path in ended.noted("skipped", "upstream_failed") if not path.endswith(".end")}
        ends.append((ended.state, ended.result, ended.error.get("message"), calls, skipped))
    assert ends[0] == ends[1]
    on_queue = [state for queue, state in await children(stage) if queue == GPU]
    assert on_queue
    assert set(on_queue) == {"succeeded"}


async def test_the_parent_goes_on_from_its_records(stage: Stage) -> None:
    """A run that is kept nowhere while its activity waits is replayed to the same point, again and again."""
    fakes = Fakes({"add": lambda n: n + 1, "echo": lambda *args: list(args)})
    flow = highway_workflow(in_parallel(GPU), fakes)
    await stage.work(flow, queues=("default", GPU), kept_continuations=0)
    ended = await stage.end(await stage.start(flow), fakes)
    assert (ended.state, ended.result) == ("succeeded", [2, 7])
    assert sorted(fakes.tasks) == ["last", "x1", "y1", "y2"]


async def test_a_snapshot_keeps_an_activity_that_waits_for_a_worker(stage: Stage) -> None:
    """What was spawned before a snapshot is joined after it, and what is spawned after it goes to its queue too."""
    builder = WorkflowBuilder("saved").parallel(
        "par",
        branches={
            "far": lambda b: b.activity("far1", "add", args=[1], queue=GPU).activity(
                "far2", "add", args=["{{far1}}"], queue=GPU
            ),
            "busy": lambda b: b.foreach(
                "each", items="{{range(400)}}", loop_body=lambda c: c.task("tick", "add", args=["{{item}}"])
            ),
        },
    )
    workflow = builder.task("last", "echo", args=["{{far2}}"]).build()
    fakes = Fakes({"add": lambda n: n + 1, "echo": lambda *args: list(args)})
    flow = highway_workflow(workflow, fakes)
    await stage.work(flow, queues=("default",), kept_continuations=0)
    run = await stage.start(flow)
    await stage.parked(run)
    assert (await stage.sql("select count(*) from durable.journal where kind = 'snapshot'"))[0][0] >= 1
    await stage.work(flow, queues=(GPU,))
    ended = await stage.end(run, fakes)
    assert (ended.state, ended.result) == ("succeeded", [3])
    assert await children(stage) == [(GPU, "succeeded")] * 2


async def test_all_that_a_loop_spawns_stands_on_the_queue_of_the_plan(stage: Stage) -> None:
    """The first items, and those that a cap held back."""
    body = Graph(nodes=(Call(id="a", target="add", args={"args": ["{{item}}"]}, bind=("a",)),), result=("a",))
    each = Each(id="l", items=[1, 2, 3], body="b", mode="parallel", cap=1, spawn="always", queue=GPU, bind=("all",))
    plan = Plan(name="planned", graphs={"main": Graph(nodes=(each,), result=("all",)), "b": body})
    fakes = Fakes({"add": lambda n: n + 1})
    flow = plan_workflow(plan, fakes, Templates())
    await stage.work(flow, queues=("default",), kept_continuations=0)
    run = await stage.start(flow)
    await stands_in(stage, GPU)
    await stage.work(flow, queues=(GPU,))
    assert (await stage.end(run, fakes)).result == [2, 3, 4]
    assert await children(stage) == [(GPU, "succeeded")] * 3


def test_a_simulation_makes_the_call_of_an_activity() -> None:
    """By its id, as that of any task; a failure reaches what follows."""
    plan = compile_workflow(trained())
    evaluator = HighwayTemplates(plan)
    done = simulate(plan, read_outcomes(["load=[1]", 'train={"n": 1}', "report=ok"]), evaluator=evaluator)
    assert (done.settled.outcome, done.settled.value) == ("succeeded", "ok")
    assert done.ran == ["load", "train#0/train", "train", "report"]
    failed = simulate(plan, read_outcomes(["load=[1]", "train=fail"]), evaluator=evaluator)
    assert (failed.settled.outcome, failed.skipped) == ("failed", ["report"])
