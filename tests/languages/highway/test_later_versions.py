"""What later versions of highway-dsl added: taken over, brought into form, or refused by name."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from highway_dsl import (
    ActivityOperator,
    ChildWorkflowOperator,
    Duration,
    JoinMode,
    JoinOperator,
    TerminateOperator,
    TriggerRule,
    Workflow,
    WorkflowBuilder,
)
from highway_dsl.graph import scopes

BRANCHED = """
name: w
version: 2.0.0
deadline_action: fail
tasks:
  a: &task
    args: []
    dependencies: []
    function: f
    is_internal_loop_task: false
    is_internal_parallel_task: false
    operator_type: task
    preconditions: []
    postconditions: []
    circuit_breaker_policy: null
    trigger_rule: all_success
    task_id: a
  p:
    operator_type: parallel
    task_id: p
    dependencies: [a]
    branches: {x: [x1, x2], y: [y1]}
    branch_workflows:
      x:
        name: p_x
        schedule: null
        tasks:
          x1: {<<: *task, task_id: x1}
          x2: {<<: *task, task_id: x2, dependencies: [x1]}
      y:
        name: p_y
        tasks:
          y1: {<<: *task, task_id: y1}
"""


def survives(workflow: Workflow) -> bool:
    return workflow == Workflow.from_yaml(workflow.to_yaml()) == Workflow.from_json(workflow.to_json())


def test_trigger_rule_idempotency_key_and_result_key_are_on_every_operator() -> None:
    """They are written where they are set, and nowhere else."""
    fields: dict[str, Any] = {"trigger_rule": "all_done", "idempotency_key": "k", "result_key": "r"}
    workflow = (
        WorkflowBuilder("w")
        .task("a", "f", **fields)
        .wait("b", Duration.minutes(5), **fields)
        .emit_event("c", "e", **fields)
        .parallel("p", {"x": lambda b: b.switch("s", "x", {"1": "z"}, **fields).task("z", "f")}, **fields)
        .build()
    )
    written = yaml.safe_load(workflow.to_yaml())["tasks"]
    assert all(written[name].items() >= fields.items() for name in "abcps")
    assert TriggerRule.ALL_DONE is workflow.tasks["b"].trigger_rule
    assert survives(workflow)


@pytest.mark.parametrize("rule", ["all_success", "all_done", "one_success", "one_done", "none_failed"])
def test_every_trigger_rule_is_known(rule: str) -> None:
    """The five rules of 1.5.0."""
    assert rule == WorkflowBuilder("w").task("a", "f", trigger_rule=rule).build().tasks["a"].trigger_rule


@pytest.mark.parametrize("mode", list(JoinMode))
def test_a_join_survives(mode: JoinMode) -> None:
    """A join keeps its tasks and its mode, in bodies too."""
    workflow = (
        WorkflowBuilder("w")
        .foreach("l", "x", lambda b: b.task("a", "f").task("b", "f").join("j", ["a", "b"], mode))
        .build()
    )
    join = workflow.tasks["j"]
    assert isinstance(join, JoinOperator)
    assert (["a", "b"], mode) == (join.join_tasks, join.join_mode)
    assert survives(workflow)


def test_a_foreach_may_be_parallel_with_a_cap() -> None:
    """`parallel` and `max_parallel` are kept; a cap alone says nothing and is refused."""
    body: Any = lambda b: b.task("a", "f")  # noqa: E731
    workflow = WorkflowBuilder("w").foreach("l", "x", body, parallel=True, max_parallel=4).build()
    assert {"parallel": True, "max_parallel": 4}.items() <= yaml.safe_load(workflow.to_yaml())["tasks"]["l"].items()
    assert survives(workflow)
    with pytest.raises(ValidationError, match="max_parallel says nothing"):
        WorkflowBuilder("w").foreach("l", "x", body, max_parallel=4).build()
    with pytest.raises(ValidationError, match="greater than or equal to 1"):
        WorkflowBuilder("w").foreach("l", "x", body, parallel=True, max_parallel=0)


def test_terminate_ends_with_a_status() -> None:
    """Completed, failed or cancelled, with a result and a reason."""
    workflow = WorkflowBuilder("w").terminate("t", status="failed", result={"x": 1}, reason="no").build()
    end = workflow.tasks["t"]
    assert isinstance(end, TerminateOperator)
    assert (end.status, end.result, end.reason) == ("failed", {"x": 1}, "no")
    assert survives(workflow)
    with pytest.raises(ValidationError, match="'completed', 'failed' or 'cancelled'"):
        WorkflowBuilder("w").terminate("t", status="bad")


def test_a_workflow_has_a_deadline() -> None:
    """Seconds from its start, and what to do then."""
    workflow = WorkflowBuilder("w", deadline_seconds=300, deadline_action="cancel").task("a", "f").build()
    assert (workflow.deadline_seconds, workflow.deadline_action) == (300, "cancel")
    assert survives(workflow)
    for fields in ({"deadline_seconds": 0}, {"deadline_action": "abort"}):
        with pytest.raises(ValidationError):
            Workflow.model_validate({"name": "w", **fields})


def test_child_workflows_are_named_with_their_inputs() -> None:
    """One child or many; each names a workflow."""
    workflow = (
        WorkflowBuilder("w")
        .child_workflow("one", "other", inputs={"x": 1}, result_key="r", depends_on=[])
        .child_workflows("many", {"a": {"workflow_name": "other"}}, timeout_seconds=9)
        .build()
    )
    one = workflow.tasks["one"]
    assert isinstance(one, ChildWorkflowOperator)
    assert (one.children, one.result_key) == ({"one": {"workflow_name": "other", "inputs": {"x": 1}}}, "r")
    assert survives(workflow)
    for children in ({}, {"a": {}}, {"a": {"workflow_name": "o", "inputs": []}}):
        with pytest.raises(ValidationError, match=r"child|starts no workflow"):
            WorkflowBuilder("w").child_workflows("c", children).build()


def test_an_activity_is_a_task() -> None:
    """It has a task's fields and keeps its own type."""
    workflow = WorkflowBuilder("w").activity("a", "f", args=[1]).retry(max_retries=1).build()
    assert isinstance(workflow.tasks["a"], ActivityOperator)
    assert workflow.tasks["a"].retry_policy is not None
    assert survives(workflow)


def test_durations_by_their_unit() -> None:
    """Each unit is a timedelta."""
    assert timedelta(weeks=1, days=1, hours=1, minutes=1, seconds=1) == (
        Duration.weeks(1) + Duration.days(1) + Duration.hours(1) + Duration.minutes(1) + Duration.seconds(1)
    )


def test_version_and_description_are_set_by_the_builder() -> None:
    """As keyword of the builder or by setter."""
    workflow = WorkflowBuilder("w", version="3.0.0").set_description("d").task("a", "f").build()
    assert (workflow.version, workflow.description) == ("3.0.0", "d")
    assert WorkflowBuilder("w").set_version("4").build().version == "4"


def test_the_fields_of_a_schedule_survive() -> None:
    """Time zone, end, catchup window, overlap, jitter and deadline are kept, and absent unless set."""
    fields = {
        "timezone": "Europe/Berlin",
        "end_date": "2026-01-01T00:00:00Z",
        "catchup": "latest",
        "catchup_window": "P1D",
        "overlap": "cancel_old",
        "jitter": "PT5M",
        "deadline": "PT2H",
    }
    workflow = Workflow.model_validate({"name": "w", **fields})
    assert survives(workflow)
    assert fields.items() <= yaml.safe_load(workflow.to_yaml()).items()
    assert not fields.keys() & yaml.safe_load(Workflow(name="w").to_yaml()).keys() - {"catchup"}


def test_branches_kept_apart_are_put_back_among_the_tasks() -> None:
    """A document of 2.0.2 or later loads as the 1.1.0 form, and each of its tasks has a place."""
    document = Workflow.load_yaml(BRANCHED)
    tasks = document.workflow.tasks
    assert [tasks[name].dependencies for name in ("x1", "x2", "y1")] == [["p"], ["x1", "p"], ["p"]]
    assert scopes(tasks)[0].members == {"p": ["x1", "x2", "y1"]}
    position = document.position("x2")
    assert position is not None
    assert BRANCHED.splitlines()[position.line - 1].lstrip().startswith("x2:")
    assert document.lint() == []
    assert survives(document.workflow)


def test_a_fault_in_a_branch_kept_apart_has_its_place() -> None:
    """Moving the task does not lose where it was written."""
    text = BRANCHED.replace("dependencies: [x1]", "dependencies: [nobody]")
    line = next(n for n, each in enumerate(text.splitlines(), 1) if "x2: {" in each)
    with pytest.raises(ValidationError, match=f"line {line}, column 11: task 'x2': dependencies: there is no task"):
        Workflow.from_yaml(text)


@pytest.mark.parametrize(
    "construct",
    [
        "circuit_breaker_policy: {}",
        "preconditions: [{variable: x, check: exists}]",
        "postconditions: [{variable: x, check: exists}]",
    ],
)
def test_a_construct_that_nothing_carries_out_is_refused_by_name(construct: str) -> None:
    """Set, it is refused at its place; in its empty form it is let through."""
    name = construct.split(":")[0]
    text = f"name: w\ntasks:\n  a: {{operator_type: task, task_id: a, function: f,\n    {construct}}}"
    with pytest.raises(ValidationError, match=f"line 4, column 5: task 'a': {name}: a construct of highway-dsl 2.x"):
        Workflow.from_yaml(text)
    assert name not in WorkflowBuilder("w").task("a", "f", **{name: None}).build().to_yaml()


def test_dynamic_loops_are_refused_by_name() -> None:
    """`dynamic: false` is what 2.1.4 writes into every loop; `true` would be lost."""
    with pytest.raises(ValidationError, match=r"construct of highway-dsl 2\.x"):
        WorkflowBuilder("w").foreach("l", "x", lambda b: b, dynamic=True)
    assert WorkflowBuilder("w").foreach("l", "x", lambda b: b, dynamic=False).build().faults() == []


@pytest.mark.parametrize("kind", ["reflexive", "multi_choice"])
def test_an_operator_of_2_x_is_refused_by_name(kind: str) -> None:
    """In documents and as a method of the builder."""
    with pytest.raises(ValidationError, match=f"Unknown operator type: {kind} \\(of highway-dsl 2.x"):
        Workflow.from_yaml(f"name: w\ntasks: {{a: {{operator_type: {kind}, task_id: a}}}}")
    with pytest.raises(AttributeError, match=f"{kind}\\(\\) of highway-dsl 2.x is not supported"):
        getattr(WorkflowBuilder("w"), kind)


@pytest.mark.parametrize("method", ["parallel_with_join", "precondition", "postcondition", "banana"])
def test_a_method_the_builder_lacks_is_an_attribute_error(method: str) -> None:
    """With advice for those of 2.x."""
    assert not hasattr(WorkflowBuilder("w"), method)
