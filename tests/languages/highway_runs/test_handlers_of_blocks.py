"""Handlers of operators with a time limit or retries of their own: called back by the whole, not also inside it."""

from datetime import timedelta

import pytest

from highway_dsl import RetryPolicy, TimeoutPolicy, Workflow, WorkflowBuilder

from .stage import Stage

LIMIT = TimeoutPolicy(timeout=timedelta(hours=1))


def timed_wait() -> Workflow:
    builder = WorkflowBuilder("timed_wait").task("good", "f").task("bad", "f")
    builder.wait("rest", wait_for=timedelta(minutes=1), timeout_policy=LIMIT, dependencies=[])
    return builder.on_success("good").on_failure("bad").build()


def retried_condition() -> Workflow:
    builder = WorkflowBuilder("retried").task("good", "f").task("bad", "f")
    builder.condition(
        "choice",
        condition="true",
        if_true=lambda b: b.task("inner", "g"),
        if_false=lambda b: b,
        retry_policy=RetryPolicy(max_retries=1, delay=timedelta(seconds=1)),
        dependencies=[],
    )
    return builder.on_success("good").on_failure("bad").build()


async def test_a_handler_of_a_wait_with_a_time_limit_runs_once(stage: Stage) -> None:
    """The wait is over in time: its success handler runs, and only once."""
    ended = await stage.run(timed_wait())
    assert (ended.state, ended.fakes.tasks) == ("succeeded", ["good"])


@pytest.mark.parametrize(
    ("outcomes", "tasks"),
    [({}, ["inner", "good"]), ({"g": ValueError("no")}, ["inner", "inner", "bad"])],
)
async def test_a_handler_of_a_composite_with_retries_runs_once(
    stage: Stage, outcomes: dict[str, object], tasks: list[str]
) -> None:
    """After the last attempt, whatever the attempts came to."""
    ended = await stage.run(retried_condition(), outcomes)
    assert ended.fakes.tasks == tasks
