"""What the specification leaves open or contradicts itself in, as it is decided: each decision on a real worker."""

from __future__ import annotations

from datetime import UTC, timedelta
from typing import Any

import pytest

from highway_dsl import (
    ConditionOperator,
    ParallelOperator,
    RetryPolicy,
    TaskOperator,
    WaitForEventOperator,
    Workflow,
    WorkflowBuilder,
)
from interpreter.highway import check_workflow, highway_workflow

from .stage import Fakes, Stage

BOOM = RuntimeError("boom")
SOON = timedelta(milliseconds=10)


async def test_the_default_policy_is_for_leaves_only(stage: Stage) -> None:
    """A task in a loop is tried as often as the policy says, the loop once; a policy of none beats the default."""
    builder = WorkflowBuilder("defaults")
    builder.foreach("each", items="{{[1]}}", loop_body=lambda b: b.task("t", "t"))
    workflow = builder.build().set_default_retry_policy(RetryPolicy(max_retries=2, delay=SOON))
    none = RetryPolicy(max_retries=0, delay=SOON)
    workflow.add_task(TaskOperator(task_id="once", function="once", retry_policy=none))
    workflow.add_task(WaitForEventOperator(task_id="ear", event_name="never", timeout_seconds=60))
    ended = await stage.run(workflow, {"t": BOOM, "once": BOOM})
    attempts = sorted((call.step, call.attempt) for call in ended.fakes.calls)
    assert attempts == [("each[0]/t", 1), ("each[0]/t", 2), ("each[0]/t", 3), ("once", 1)]
    timeouts = await stage.sql("select name from durable.journal where kind = 'timeout' order by pos")
    assert [row[0] for row in timeouts] == ["ear", "ear~2", "ear~3"]


async def test_a_task_that_names_itself_as_its_callback_stays_in_the_flow(stage: Stage) -> None:
    """It runs once, in its place; the document is warned of."""
    workflow = WorkflowBuilder("own").task("a", "a").task("b", "b").build()
    workflow.tasks["b"].on_failure_task_id = workflow.tasks["b"].on_success_task_id = "b"
    assert any("names the task itself" in str(warning) for warning in check_workflow(workflow).warnings)
    ended = await stage.run(workflow)
    assert (ended.state, ended.fakes.tasks) == ("succeeded", ["a", "b"])


def routers(*conditions: str) -> Workflow:
    workflow = Workflow(name="routers").add_task(TaskOperator(task_id="a", function="a"))
    for number, condition in enumerate(conditions):
        router = ConditionOperator(task_id=f"c{number}", condition=condition, if_true="t", dependencies=["a"])
        workflow.add_task(router)
    return workflow.add_task(TaskOperator(task_id="t", function="t"))


@pytest.mark.parametrize(
    ("conditions", "ran", "state"),
    [
        (("{{a.missing}}", "false"), False, "upstream_failed"),
        (("{{a.missing}}", "true"), True, None),
        (("false", "false"), False, "skipped"),
    ],
    ids=["one failed and none chose it", "one failed and one chose it", "none chose it"],
)
async def test_a_target_is_told_apart_by_what_its_routers_came_to(
    stage: Stage, conditions: tuple[str, ...], ran: bool, state: str | None
) -> None:
    """Skipped when nobody chose it, upstream_failed when one who could have failed."""
    ended = await stage.run(routers(*conditions), {"a": {}})
    assert ("t" in ended.fakes.tasks) == ran
    assert ended.notes.get("t") == state


async def test_hand_written_members_wait_for_their_parallel(stage: Stage) -> None:
    """A task that a parallel lists starts after it, with or without a dependency on it."""
    workflow = Workflow(name="by_hand").add_task(TaskOperator(task_id="z", function="f"))
    workflow.add_task(ParallelOperator(task_id="par", branches={"one": ["a"], "two": ["b"]}, dependencies=["z"]))
    for name in ("a", "b"):
        workflow.add_task(TaskOperator(task_id=name, function="f"))
    workflow.add_task(TaskOperator(task_id="after", function="f", dependencies=["par"]))
    ended = await stage.run(workflow)
    assert (ended.fakes.tasks[0], sorted(ended.fakes.tasks[1:3]), ended.fakes.tasks[3]) == ("z", ["a", "b"], "after")


async def test_all_roots_start_whatever_the_start_task_is(stage: Stage) -> None:
    """The start task is only the first to be asked for."""
    workflow = Workflow(name="roots")
    for name in ("a", "b", "c"):
        workflow.add_task(TaskOperator(task_id=name, function="f"))
    workflow.start_task = "b"
    ended = await stage.run(workflow)
    assert (ended.fakes.tasks[0], sorted(ended.fakes.tasks)) == ("b", ["a", "b", "c"])


async def test_without_an_interval_the_logical_time_is_the_start(stage: Stage) -> None:
    """`ds` is the run's creation in UTC, to the second, and `ds_date` its day."""
    ended = await stage.run(WorkflowBuilder("when").task("t", "t", args=["{{ds}}", "{{ds_date}}"]).build())
    created = ended.info.created_at.astimezone(UTC)
    ds, day = ended.fakes.calls[0].args
    assert day == ds[:10]
    assert ds in {(created + timedelta(seconds=n)).strftime("%Y-%m-%dT%H:%M:%SZ") for n in (-1, 0)}


def test_waiting_by_ds_for_a_workflow_of_another_schedule_is_a_warning() -> None:
    """Their data intervals begin at different times."""
    emits = WorkflowBuilder("up").emit_event("say", event_name="up_{{ds}}").build().set_schedule("0 2 * * *")
    waits = WorkflowBuilder("down").wait_for_event("hear", event_name="up_{{ds}}").build()
    told = {}
    for cron in ("0 3 * * *", "0 2 * * *"):
        found = check_workflow(waits.set_schedule(cron), others=[emits])
        told[cron] = [str(warning) for warning in found.warnings]
    assert "'up' emits it on another schedule" in told["0 3 * * *"][0]
    assert told["0 2 * * *"] == []


async def test_an_event_is_received_by_every_wait_and_never_used_up(stage: Stage) -> None:
    """Waits of one run and of another get the earliest event of the name, emitted before or after."""
    workflow = Workflow(name="ears").set_max_active_runs(2)
    for name in ("a", "b"):
        workflow.add_task(WaitForEventOperator(task_id=name, event_name="news"))
    workflow.add_task(TaskOperator(task_id="t", function="t", args=["{{a}}", "{{b}}"], dependencies=["a", "b"]))
    fakes = Fakes()
    flow = highway_workflow(workflow, fakes)
    await stage.work(flow)
    first = await stage.start(flow)
    await stage.parked(first)
    await stage.client.emit("news", 1)
    await stage.client.emit("news", 2)
    for run in (first, await stage.start(flow)):
        assert (await stage.end(run, fakes)).state == "succeeded"
    assert [call.args for call in fakes.calls] == [(1, 1), (1, 1)]


async def test_an_emit_in_a_loop_is_one_event_for_each_iteration(stage: Stage) -> None:
    """Once per run, task and iteration, however often the run is replayed."""
    builder = WorkflowBuilder("speaks")
    builder.foreach(
        "each",
        items="{{range(3)}}",
        loop_body=lambda b: b.emit_event("say", event_name="said", payload={"n": "{{item}}"}).wait(
            "w", wait_for="PT1H"
        ),
    )
    assert (await stage.run(builder.build(), settings={"kept_continuations": 0})).state == "succeeded"
    rows = await stage.sql("select payload from durable.event where name = 'said' order by event_id")
    assert [row[0] for row in rows] == [{"n": 0}, {"n": 1}, {"n": 2}]


async def test_names_are_found_in_one_order(stage: Stage) -> None:
    """Loop variables before result keys, those before task ids, those before variables; prefixes name the rest."""
    builder = WorkflowBuilder("names")
    builder.task("item", "f", args=["task"]).task("key", "f", args=["task"]).task(
        "other", "f", args=["key"], result_key="key"
    )
    builder.task("look", "look", args=["{{item}}", "{{key}}", "{{other.output}}", "{{only}}", "{{variables.key}}"])
    builder.task("prefixed", "look", args=["{{results.other}}", "{{memory.key}}"])
    builder.foreach("each", items="{{['loop']}}", loop_body=lambda b: b.task("inner", "look", args=["{{item}}"]))
    workflow = builder.build().set_variables({"item": "variable", "key": "variable", "only": "variable"})
    ended = await stage.run(workflow, {"f": lambda said: said})
    looked = [call.args for call in ended.fakes.calls if call.function == "look"]
    assert ended.error == {}
    assert looked == [("task", "key", "key", "variable", "variable"), ("key", "key"), ("loop",)]


FAILS = {"a": BOOM}


def handled(**more: Any) -> Workflow:
    workflow = Workflow(name="handled")
    workflow.add_task(TaskOperator(task_id="a", function="a", **more))
    workflow.add_task(TaskOperator(task_id="alert", function="alert"))
    return workflow


async def test_a_handled_failure_may_be_accepted(stage: Stage) -> None:
    """By default the run fails; a program may say that a failure with a handler is none."""
    ended = await stage.run(handled(on_failure_task_id="alert"), FAILS)
    assert (ended.state, ended.error["handled"]) == ("failed", ["a"])
    await stage.stop()
    ended = await stage.run(handled(on_failure_task_id="alert"), FAILS, accept_handled=True, name="accepted")
    assert (ended.state, ended.fakes.tasks) == ("succeeded", ["a", "alert"])


async def test_a_run_may_stop_at_its_first_failure(stage: Stage) -> None:
    """Independent work goes on unless the program asks for fail_fast; then what waits never starts."""
    workflow = Workflow(name="hasty")
    workflow.add_task(TaskOperator(task_id="bad", function="bad"))
    workflow.add_task(WaitForEventOperator(task_id="ear", event_name="never"))
    workflow.add_task(TaskOperator(task_id="after", function="f", dependencies=["ear"]))
    ended = await stage.run(workflow, {"bad": BOOM}, fail_fast=True)
    assert (ended.state, ended.fakes.tasks) == ("failed", ["bad"])
    assert ended.noted("cancelled") == {"ear", "after"}
