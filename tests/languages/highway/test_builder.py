"""The builder and its sub-builders, row by row."""

from __future__ import annotations

import warnings
from datetime import datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from highway_dsl import (
    ConditionOperator,
    ForEachOperator,
    HighwayWarning,
    ParallelOperator,
    RetryPolicy,
    SwitchOperator,
    TaskOperator,
    Workflow,
    WorkflowBuilder,
)


def dependencies(workflow: Workflow) -> dict[str, list[str]]:
    return {task_id: task.dependencies for task_id, task in workflow.tasks.items()}


def chain(*names: str) -> Any:
    def build(builder: WorkflowBuilder) -> WorkflowBuilder:
        for name in names:
            builder.task(name, "f")
        return builder

    return build


def test_a_task_follows_the_one_before_it() -> None:
    """Without dependencies of its own a task depends on the current one, which may be set by hand."""
    builder = WorkflowBuilder("w").task("a", "f").task("b", "f").task("c", "f")
    builder._current_task = "a"
    builder.task("d", "f")
    assert dependencies(builder.build()) == {"a": [], "b": ["a"], "c": ["b"], "d": ["a"]}


def test_an_empty_list_of_dependencies_means_none() -> None:
    """`dependencies=[]` starts anew, and the list that was passed stays as it is."""
    given: list[str] = []
    workflow = WorkflowBuilder("w").task("a", "f").task("b", "f", dependencies=given).build()
    assert (workflow.tasks["b"].dependencies, given) == ([], [])


def test_explicit_dependencies_are_sorted_and_without_duplicates() -> None:
    """What a list names counts, not its order; the list that was passed stays as it is."""
    given = ["b", "a", "b"]
    builder = WorkflowBuilder("w").task("a", "f").task("b", "f").task("c", "f", dependencies=given)
    assert (builder.build().tasks["c"].dependencies, given) == (["a", "b"], ["b", "a", "b"])


def test_depends_on_is_another_word_for_dependencies() -> None:
    """Either may be given, in builders and documents, but not both."""
    builder = WorkflowBuilder("w").task("a", "f").task("b", "f").task("c", "f", depends_on=["a"])
    assert builder.build().tasks["c"].dependencies == ["a"]
    assert TaskOperator.model_validate({"task_id": "b", "function": "f", "depends_on": ["a"]}).dependencies == ["a"]
    with pytest.raises(TypeError, match="same field"):
        builder.task("d", "f", depends_on=["a"], dependencies=["a"])


def test_an_existing_workflow_is_continued() -> None:
    """The builder wraps it, keeps its name, and its first task depends on nothing."""
    existing = WorkflowBuilder("old").task("a", "f").build()
    workflow = WorkflowBuilder("new", existing_workflow=existing).task("b", "f").build()
    assert (workflow.name, dependencies(workflow)) == ("old", {"a": [], "b": []})
    with pytest.raises(TypeError, match="version="):
        WorkflowBuilder("w", "2.0.0")  # type: ignore[arg-type]


def test_a_condition_takes_in_its_branches() -> None:
    """Branch tasks stand flat in the workflow, each with the condition appended; the next depends on it."""
    names: list[str] = []

    def false(builder: WorkflowBuilder) -> WorkflowBuilder:
        names.append(builder.workflow.name)
        assert builder.parent is outer
        return builder

    outer = WorkflowBuilder("w")
    workflow = outer.condition("c", "x", chain("t1", "t2", "t3"), false).task("after", "f").build()
    condition = workflow.tasks["c"]
    assert isinstance(condition, ConditionOperator)
    assert (condition.if_true, condition.if_false, names) == ("t1", None, ["c_false"])
    assert dependencies(workflow) == {
        "c": [],
        "t1": ["c"],
        "t2": ["t1", "c"],
        "t3": ["t2", "c"],
        "after": ["c"],
    }


@pytest.mark.parametrize("branch", [None, "a"])
def test_a_branch_is_a_function(branch: Any) -> None:
    """Anything else is a TypeError."""
    with pytest.raises(TypeError):
        WorkflowBuilder("w").condition("c", "x", branch, lambda b: b)


def test_a_branch_may_return_nothing() -> None:
    """A function that only adds to its builder is as good as one that returns it."""

    def branch(builder: WorkflowBuilder) -> None:
        builder.task("a", "f")

    assert WorkflowBuilder("w").condition("c", "x", branch, lambda b: b).build().tasks["a"].dependencies == ["c"]


def test_a_parallel_lists_everything_in_its_branches() -> None:
    """Nested operators, their branches and bodies are listed; internal tasks do not get the parallel's id."""
    workflow = (
        WorkflowBuilder("w")
        .task("z", "f")
        .parallel(
            "p",
            {
                "a": lambda b: b.task("a1", "f").parallel("q", {"x": chain("m1")}),
                "b": lambda b: b.foreach("l", "x", chain("l1", "l2")),
            },
        )
        .task("after", "f")
        .build()
    )
    parallel = workflow.tasks["p"]
    assert isinstance(parallel, ParallelOperator)
    assert parallel.branches == {"a": ["a1", "q", "m1"], "b": ["l", "l1", "l2"]}
    expected = {"z": [], "p": ["z"], "a1": ["p"], "q": ["a1", "p"], "m1": ["q", "p"]}
    expected |= {"l": ["p"], "l1": ["l"], "l2": ["l1"], "after": ["p"]}
    assert expected == dependencies(workflow)


def test_a_loop_has_its_body_inline_and_flat() -> None:
    """The same objects; only the first depends on the loop; dependencies on the outside are kept."""
    workflow = (
        WorkflowBuilder("w")
        .task("s", "f")
        .foreach("l", "x", lambda b: b.task("a", "f").task("b", "f", dependencies=["s"]).task("c", "f"))
        .build()
    )
    loop = workflow.tasks["l"]
    assert isinstance(loop, ForEachOperator)
    assert [id(workflow.tasks[name]) for name in "abc"] == [id(task) for task in loop.loop_body]
    assert dependencies(workflow) == {"s": [], "l": ["s"], "a": ["l"], "b": ["s"], "c": ["b"]}


def test_the_first_task_of_a_body_keeps_its_outside_dependencies() -> None:
    """Its list and the loop's id are both there."""
    built = WorkflowBuilder("w").task("s", "f").foreach("e", "x", lambda b: b.task("a", "f", dependencies=["s"]))
    assert built.build().tasks["a"].dependencies == ["s", "e"]


def test_nested_loops_are_flattened() -> None:
    """The outer body holds the inner loop and the inner loop's tasks."""
    workflow = (
        WorkflowBuilder("w")
        .while_loop("o", "x", lambda b: b.foreach("i", "y", chain("in1", "in2")).task("o2", "f"))
        .build()
    )
    assert [task.task_id for task in getattr(workflow.tasks["o"], "loop_body", [])] == [
        "i",
        "in1",
        "in2",
        "o2",
    ]
    assert dependencies(workflow) == {"o": [], "i": ["o"], "in1": ["i"], "in2": ["in1"], "o2": ["i"]}
    assert Workflow.from_yaml(workflow.to_yaml()) == workflow


def test_a_loop_in_a_condition_gets_the_condition_everywhere() -> None:
    """Every task of its body has the condition appended, inline too."""
    workflow = WorkflowBuilder("w").condition("c", "x", lambda b: b.foreach("l", "y", chain("a", "b")), chain()).build()
    assert dependencies(workflow) == {"c": [], "l": ["c"], "a": ["l", "c"], "b": ["a", "c"]}
    assert [t.dependencies for t in getattr(workflow.tasks["l"], "loop_body", [])] == [["l", "c"], ["a", "c"]]


def test_a_switch_wires_nothing() -> None:
    """Its cases are ids of tasks added on their own, which chain like any others."""
    workflow = (
        WorkflowBuilder("w")
        .switch("s", "{{x}}", {"1": "p", "2": "q"}, default="r")
        .task("p", "f")
        .task("q", "f")
        .task("r", "f")
        .build()
    )
    switch = workflow.tasks["s"]
    assert isinstance(switch, SwitchOperator)
    assert (switch.cases, switch.default) == ({"1": "p", "2": "q"}, "r")
    assert dependencies(workflow) == {"s": [], "p": ["s"], "q": ["p"], "r": ["q"]}


def test_retry_is_for_tasks_and_says_so() -> None:
    """On another operator it has no effect, and warns (section 9.6)."""
    with pytest.warns(HighwayWarning, match="retry\\(\\) has no effect on 'w'"):
        workflow = WorkflowBuilder("w").wait("w", timedelta(1)).retry().build()
    assert workflow.tasks["w"].retry_policy is None
    assert RetryPolicy() == WorkflowBuilder("w").task("a", "f").retry().build().tasks["a"].retry_policy


def test_timeout_is_for_any_operator() -> None:
    """A wait for an event can be limited like a task."""
    built = WorkflowBuilder("w").wait_for_event("e", "x").timeout(timedelta(hours=1), kill_on_timeout=False).build()
    policy = built.tasks["e"].timeout_policy
    assert policy is not None
    assert (timedelta(hours=1), False) == (policy.timeout, policy.kill_on_timeout)


@pytest.mark.parametrize(
    "call",
    [
        lambda b: b.retry(),
        lambda b: b.timeout(timedelta(1)),
        lambda b: b.on_success("a"),
        lambda b: b.on_failure("a"),
    ],
)
def test_a_policy_without_a_task_warns(call: Any) -> None:
    """Before any task there is nothing to set it on."""
    with pytest.warns(HighwayWarning, match="no task was added before it"):
        call(WorkflowBuilder("w"))


def test_callbacks_attach_to_the_current_operator() -> None:
    """Any operator may have them; called after the handler they make it its own, which is linted."""
    builder = WorkflowBuilder("w").wait("a", timedelta(1)).on_success("h").task("h", "f").on_failure("h")
    workflow = builder.build()
    assert (workflow.tasks["a"].on_success_task_id, workflow.tasks["h"].on_failure_task_id) == ("h", "h")
    assert [fault.kind for fault in workflow.lint()] == ["own_callback"]


def test_a_task_already_named_as_a_handler_is_not_chained() -> None:
    """It is triggered, not reached; the task after it is chained to it all the same."""
    workflow = WorkflowBuilder("w").task("a", "f").on_failure("h").task("h", "f").task("b", "f").build()
    assert dependencies(workflow) == {"a": [], "h": [], "b": ["h"]}
    inner = WorkflowBuilder("w").foreach("l", "x", lambda b: b.task("a", "f").on_failure("h")).task("h", "f").build()
    assert inner.tasks["h"].dependencies == []


def test_settings_made_in_a_branch_reach_the_workflow() -> None:
    """They are not lost with the sub-builder."""

    def branch(builder: WorkflowBuilder) -> WorkflowBuilder:
        return builder.set_schedule("0 2 * * *").add_tags("x").set_max_active_runs(2).task("a", "f")

    workflow = WorkflowBuilder("w").foreach("l", "x", branch).build()
    assert (workflow.schedule, workflow.tags, workflow.max_active_runs) == ("0 2 * * *", ["x"], 2)


def test_every_setting_is_on_the_workflow_and_on_the_builder() -> None:
    """Both return themselves, tags append without looking, variables merge."""
    policy = RetryPolicy(max_retries=1)
    both: list[Any] = [Workflow(name="w"), WorkflowBuilder("w")]
    for target in both:
        done = (
            target.set_schedule("@daily")
            .set_start_date(datetime(2025, 1, 1))
            .set_catchup(True)
            .set_paused(True)
            .add_tags("x")
            .add_tags("x", "y")
            .set_max_active_runs(3)
            .set_default_retry_policy(policy)
            .set_variables({"a": 1})
            .set_variables({"b": 2})
        )
        assert done is target
    built = both[1].build()
    assert both[0] == built
    assert (
        built.schedule,
        built.is_paused,
        built.tags,
        built.variables,
    ) == ("@daily", True, ["x", "x", "y"], {"a": 1, "b": 2})


def test_build_names_the_first_task() -> None:
    """`start_task` is the first task added unless one was set; a workflow without tasks builds too."""
    assert WorkflowBuilder("w").task("b", "f").task("a", "f").build().start_task == "b"
    builder = WorkflowBuilder("w").task("b", "f").task("a", "f")
    builder.workflow.set_start_task("a")
    assert builder.build().start_task == "a"
    assert (WorkflowBuilder("w").build().start_task, WorkflowBuilder("w").build().tasks) == (None, {})


def test_build_raises_all_faults_at_once() -> None:
    """Name, ids, references, circles, cron and policies are found together."""
    builder = WorkflowBuilder("no name").set_schedule("banana").set_max_active_runs(0)
    builder.task("a", "f", dependencies=["b"]).task("b", "f", dependencies=["a"]).task("b", "f")
    builder.task("c d", "").on_failure("nobody")
    with pytest.raises(ValidationError) as refused:
        builder.build()
    found = {error["type"] for error in refused.value.errors()}
    assert {
        "name",
        "cron",
        "greater_than_equal",
        "circle",
        "duplicate_id",
        "task_id",
        "field",
        "unknown_task",
    } == found


def test_a_branch_task_that_reads_as_an_outsider_is_warned_of() -> None:
    """Dependencies are all a document has to say what belongs to a branch."""

    def branch(builder: WorkflowBuilder) -> WorkflowBuilder:
        return builder.task("a", "f").task("b", "f", dependencies=["s"])

    with pytest.warns(HighwayWarning, match="'b' depends on no other task of its branch"):
        WorkflowBuilder("w").task("s", "f").condition("c", "x", branch, chain()).build()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        WorkflowBuilder("w").condition("c", "x", chain("a", "b"), chain("d")).build()


def test_where_a_task_was_made_is_no_part_of_the_definition() -> None:
    """Two workflows made in different lines are equal, and nothing that is written out tells the line."""
    one = WorkflowBuilder("w").task("a", "f").build()
    other = WorkflowBuilder("w").task("a", "f").build()
    assert one.origin.tasks["a"] != other.origin.tasks["a"]
    assert one == other == Workflow.from_yaml(one.to_yaml())
    assert (one.model_dump(), one.to_json(), repr(one)) == (other.model_dump(), other.to_json(), repr(other))
    assert one.content_hash() == other.content_hash()


def test_a_task_of_a_branch_has_its_own_line() -> None:
    """Not that of the operator which its branch or body belongs to; a fault of `build` names it."""
    builder = WorkflowBuilder("w")
    builder.condition(
        "c",
        condition="true",
        if_true=lambda b: b.task("t", "f").foreach("e", items="{{[1]}}", loop_body=lambda b: b.task("i", "f")),
        if_false=lambda b: b,
    )
    made = builder.workflow.origin.tasks
    assert (made["t"].line, made["i"].line, made["e"].line) == (made["c"].line + 3,) * 3
    assert made["t"].file == __file__
    builder.task("last", "f", dependencies=["nobody"])
    with pytest.raises(ValidationError, match=rf"test_builder\.py:{made['last'].line}: task 'last': dependencies"):
        builder.build()
