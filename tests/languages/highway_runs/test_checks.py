"""What is found before anything runs: all faults at once, each with its task, and its line where there is one."""

from __future__ import annotations

import pytest

from highway_dsl import EmitEventOperator, TaskOperator, WaitForEventOperator, Workflow, WorkflowBuilder
from interpreter.highway import HighwayError, check_workflow, compile_workflow
from interpreter.highway.visibility import Visibility

DOCUMENT = """\
name: wrong
variables: {city: Oslo}
tasks:
  first:
    operator_type: task
    task_id: first
    function: f
    args: ["{{ctiy}}", "{{nothing_like_it}}"]
  second:
    operator_type: condition
    task_id: second
    condition: "{{first.output}} >"
    dependencies: [first]
  third:
    operator_type: emit_event
    task_id: third
    event_name: "say_{{secrets.key}}"
    dependencies: [second]
"""


def test_all_faults_of_a_document_are_told_at_once_with_their_places() -> None:
    """Undefined names with the nearest known one, broken templates and misplaced secrets, each on its line."""
    with pytest.raises(HighwayError) as caught:
        compile_workflow(Workflow.load_yaml(DOCUMENT, "wrong.yaml"))
    found = [(fault.task_id, fault.position and fault.position.line, fault.kind) for fault in caught.value.faults]
    assert found == [
        ("first", 4, "undefined"),
        ("first", 4, "undefined"),
        ("second", 9, "template"),
        ("third", 14, "secret"),
    ]
    assert "wrong.yaml:4" in str(caught.value)
    assert "did you mean 'city'" in str(caught.value)


def test_names_of_an_item_end_with_it() -> None:
    """What a foreach binds inside cannot be named outside; what a while binds can."""
    body = {"loop_body": lambda b: b.task("inner", "f", result_key="found")}
    each = WorkflowBuilder("each").foreach("loop", items="{{[1]}}", **body)
    assert [f.kind for f in check_workflow(each.task("t", "f", args=["{{found}}"]).build()).faults] == ["undefined"]
    loop = WorkflowBuilder("loop").while_loop("loop", condition="false", **body)
    assert check_workflow(loop.task("t", "f", args=["{{found}}"]).build()).faults == ()


def test_only_loops_have_items_and_only_handlers_have_causes() -> None:
    """`item` outside of a foreach, and `error_message` outside of a callback, can never be defined."""
    for name in ("item", "error_message", "failed_task_id"):
        workflow = WorkflowBuilder("w").task("t", "f", args=[f"{{{{{name}}}}}"]).build()
        assert [fault.kind for fault in check_workflow(workflow).faults] == ["undefined"]


def test_an_event_nobody_emits_is_a_warning() -> None:
    """A wait is checked against the emitters that are known; templates count as anything."""
    waits = Workflow(name="waits").add_task(WaitForEventOperator(task_id="w", event_name="a_{{ds}}_done"))
    emits = Workflow(name="emits").add_task(EmitEventOperator(task_id="e", event_name="a_{{inputs.day}}_done"))
    assert [fault.kind for fault in check_workflow(waits).warnings] == ["event"]
    assert check_workflow(waits, others=[emits]).warnings == ()


def test_a_join_that_hangs_on_one_case_is_a_warning() -> None:
    """A task that follows one way out of a router is pointed out."""
    workflow = (
        WorkflowBuilder("hangs")
        .switch("s", switch_on="x", cases={"x": "p", "y": "q"})
        .task("p", "f", dependencies=["s"])
        .task("q", "f", dependencies=["s"])
        .task("end", "f", dependencies=["q"])
        .build()
    )
    assert "one_case" in [fault.kind for fault in check_workflow(workflow).warnings]


def test_a_timeout_that_cannot_be_kept_is_a_fault() -> None:
    """A parallel whose inside others depend on cannot be stopped as a whole."""
    workflow = (
        WorkflowBuilder("leaks")
        .parallel("par", branches={"a": lambda b: b.task("inside", "f")}, timeout=60)
        .task("outside", "f", dependencies=["inside"])
        .build()
    )
    (fault,) = check_workflow(workflow).faults
    assert (fault.task_id, "depend on 'par' itself" in str(fault)) == ("par", True)


def test_secrets_are_references_in_a_plan() -> None:
    """A plan names the secrets that a call may use, and never holds a value."""
    workflow = Workflow(name="s").add_task(
        TaskOperator(task_id="t", function="f", kwargs={"key": "Bearer {{secrets.token}}"})
    )
    plan = compile_workflow(workflow)
    assert plan.meta["secrets"] == ["token"]
    assert plan.graphs["main"].nodes[0].config == {"secrets": ["token"]}  # type: ignore[union-attr]


def test_names_are_fixed_when_a_workflow_is_deployed() -> None:
    """Functions, workflows and result keys hold no templates, and an event has a name: each is told where it stands."""
    text = """\
name: fixed
tasks:
  a: {task_id: a, operator_type: task, function: "{{inputs.f}}", result_key: "{{inputs.k}}"}
  b: {task_id: b, operator_type: child_workflow, children: {c: {workflow_name: "w_{{ds}}"}}}
  c: {task_id: c, operator_type: emit_event, event_name: " "}
  d: {task_id: d, operator_type: wait_for_event, event_name: ""}
"""
    found = check_workflow(Workflow.survey_yaml(text, "f.yaml"))
    assert [(fault.task_id, fault.position and fault.position.line, fault.loc[2]) for fault in found.faults] == [
        ("a", 3, "function"),
        ("a", 3, "result_key"),
        ("b", 4, "children"),
        ("c", 5, "event_name"),
        ("d", 6, "event_name"),
    ]


def test_names_that_no_template_finds_are_doubted() -> None:
    """Those that the language has, and variables that look as if they were rendered."""
    builder = WorkflowBuilder("w").set_variables({"ds": 1, "where": "{{ds}}"}).task("a", "f", result_key="inputs")
    found = check_workflow(builder.build())
    assert (found.faults, [fault.kind for fault in found.warnings]) == ((), ["reserved", "reserved", "plain_variable"])


def test_a_workflow_without_tasks_is_doubted() -> None:
    """It is valid, and surely not meant."""
    assert [str(fault) for fault in check_workflow(Workflow(name="w")).warnings] == [
        "has no tasks: a run of it ends at once"
    ]


def test_tasks_of_one_scope_share_the_names_that_they_see() -> None:
    """A check of many tasks makes no set of names for each of them."""
    builder = WorkflowBuilder("w").task("a", "f").task("b", "f")
    builder.foreach("each", items="{{a}}", loop_body=lambda b: b.task("c", "f").task("d", "f"))
    seen = Visibility(builder.build())
    assert seen.names("a") is seen.names("b")
    assert seen.names("c") is seen.names("d")
    assert seen.names("c") - seen.names("a") == {"item", "c", "d"}
