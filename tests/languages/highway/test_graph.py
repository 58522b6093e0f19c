"""Circles in the expanded graph, membership, and what is doubtful."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from highway_dsl import ConditionOperator, JoinMode, TaskOperator, Workflow, WorkflowBuilder, faults_of
from highway_dsl.graph import Scope, scopes

from .test_builder import chain


def refused(build: Any) -> list[str]:
    with pytest.raises(ValidationError) as error:
        build()
    return [f"{fault.kind}: {fault.message}" for fault in faults_of(error.value)]


def circle(*ids: str) -> list[str]:
    return [f"circle: waits for itself: {' -> '.join(ids)}"]


def tasks(**dependencies: list[str]) -> Workflow:
    workflow = Workflow(name="w")
    for name, names in dependencies.items():
        workflow.add_task(TaskOperator(task_id=name, function="f", dependencies=names))
    return workflow


def scope(workflow: Workflow, loop: str | None = None) -> Scope:
    return next(each for each in scopes(workflow.tasks) if each.loop == loop)


def test_a_task_does_not_wait_for_itself() -> None:
    """The shortest circle is a task among its own dependencies."""
    assert circle("a", "a") == refused(tasks(a=["a"]).check)


def test_each_circle_is_found() -> None:
    """Circles apart from each other are all reported; what only follows one is not."""
    workflow = tasks(a=["b"], b=["a"], c=["b"], x=["z"], y=["x"], z=["y"], free=[])
    found = [fault.message for fault in workflow.faults()]
    assert sorted(found) == ["waits for itself: a -> b -> a", "waits for itself: x -> y -> z -> x"]


def test_a_router_does_not_wait_for_what_it_chooses() -> None:
    """A case declared before its switch would never start; the message says what to do."""
    builder = WorkflowBuilder("w").task("p", "f").switch("s", "x", {"1": "p"})
    assert circle("p", "s", "p") == refused(builder.build)
    with pytest.raises(ValidationError, match="declare 'p' after it, or give 's' dependencies of its own"):
        builder.build()
    builder = WorkflowBuilder("w").task("a", "f").switch("s", "x", {"1": "p"}).task("p", "f")
    assert builder.build().faults() == []


def test_a_member_does_not_wait_for_what_follows_its_operator() -> None:
    """A branch task that depends on a task after the parallel waits for itself."""
    builder = WorkflowBuilder("w").parallel("p", {"x": chain("a")}).task("after", "f")
    builder.workflow.tasks["a"].dependencies.append("after")
    assert circle("p", "after", "a", "p") == refused(builder.build)


def test_members_may_depend_on_their_operator_and_each_other() -> None:
    """Branch tasks start when their operator has, not when it has ended."""
    workflow = (
        WorkflowBuilder("w")
        .task("z", "f")
        .condition("c", "x", chain("t1", "t2"), lambda b: b.parallel("p", {"x": chain("q1", "q2")}))
        .task("after", "f")
        .build()
    )
    assert scope(workflow).members == {"c": ["t1", "t2", "p", "q1", "q2"], "p": ["q1", "q2"]}


def test_a_part_of_a_router_inside_something_after_it_is_refused_with_advice() -> None:
    """Listing a router and one of its ways makes a task part of it, wherever it stands."""
    builder = WorkflowBuilder("w").switch("s", "x", {"1": "p"}).task("p", "f", dependencies=["s"])
    builder.parallel("par", {"x": lambda b: b.task("a", "f", dependencies=["s", "p"])}, dependencies=["s"])
    with pytest.raises(ValidationError, match="'a' lists 's' and a task that 's' leads to"):
        builder.build()


def test_a_body_is_a_scope_of_its_own() -> None:
    """Inside a loop only siblings count; the loop's id and outside tasks make no circle."""
    workflow = (
        WorkflowBuilder("w")
        .task("s", "f")
        .foreach("o", "x", lambda b: b.foreach("i", "y", chain("in1", "in2")).task("o2", "f"))
        .task("after", "f")
        .build()
    )
    assert [each.loop for each in scopes(workflow.tasks)] == [None, "o", "i"]
    assert list(scope(workflow).tasks) == ["s", "o", "after"]
    assert list(scope(workflow, "o").tasks) == ["i", "o2"]
    assert list(scope(workflow, "i").tasks) == ["in1", "in2"]
    workflow.tasks["in1"].dependencies.append("in2")
    assert circle("in1", "in2", "in1") == refused(workflow.check)


def test_a_handler_has_no_place_in_the_order() -> None:
    """What follows a handler sees what the handler follows; a handler before its owner is no circle."""
    builder = WorkflowBuilder("w").task("h", "f").task("next", "f").task("owner", "f").on_failure("h")
    workflow = builder.build()
    assert (workflow.tasks["next"].dependencies, scope(workflow).dependencies("next")) == (["h"], [])
    chained = WorkflowBuilder("w").task("risky", "f").task("ok", "f").task("bad", "f").task("end", "f")
    chained.workflow.tasks["risky"].on_success_task_id = "ok"
    chained.workflow.tasks["risky"].on_failure_task_id = "bad"
    assert scope(chained.build()).dependencies("end") == ["risky"]


def test_tasks_that_only_call_each_other_back_never_start() -> None:
    """A circle of callbacks is a circle."""
    workflow = tasks(a=[], b=[])
    workflow.tasks["a"].on_failure_task_id = "b"
    workflow.tasks["b"].on_failure_task_id = "a"
    assert circle("a", "b", "a") == refused(workflow.check)


def test_a_handler_inside_the_operator_that_calls_it_is_refused() -> None:
    """The operator would end after its handler, and the handler start after its end."""
    builder = WorkflowBuilder("w").parallel("p", {"x": chain("a")}).on_failure("a")
    assert circle("p", "a", "p") == refused(builder.build)


def test_a_join_waits_for_the_tasks_it_names() -> None:
    """Its tasks are edges like dependencies, and it does not follow the task before it."""
    builder = WorkflowBuilder("w").task("a", "f").task("b", "f", dependencies=[]).join("j", ["a", "b"], JoinMode.ANY_OF)
    workflow = builder.task("after", "f").build()
    assert (workflow.tasks["j"].dependencies, scope(workflow).dependencies("j")) == ([], ["a", "b"])
    workflow.tasks["a"].dependencies.append("after")
    assert circle("a", "j", "after", "a") == refused(workflow.check)


def test_a_long_chain_needs_no_recursion() -> None:
    """Five thousand tasks in a row, and the circle that closes them, are found."""
    names = [f"t{number:04}" for number in range(5000)]
    workflow = tasks(**{name: [names[index - 1]] if index else [] for index, name in enumerate(names)})
    assert workflow.faults() == []
    workflow.tasks[names[0]].dependencies.append(names[-1])
    assert len(workflow.faults()) == 1


@pytest.mark.parametrize(
    ("kind", "task_id", "build"),
    [
        ("after_handler", "n", lambda b: b.task("r", "f").on_failure("h").task("h", "f").task("n", "f")),
        ("into_loop", "n", lambda b: b.foreach("l", "x", chain("a")).task("n", "f", dependencies=["a"])),
        (
            "one_case",
            "end",
            lambda b: (
                b.switch("s", "x", {"1": "p", "2": "q"})
                .task("q", "f")
                .task("p", "f", dependencies=["s"])
                .task("end", "f")
            ),
        ),
        (
            "chained_cases",
            "q",
            lambda b: b.switch("s", "x", {"1": "p", "2": "q"}).task("p", "f").task("q", "f"),
        ),
        ("no_wait", "w", lambda b: b.wait("w", "-PT5S")),
    ],
)
def test_what_is_doubtful_is_linted(kind: str, task_id: str, build: Any) -> None:
    """Valid, and probably not meant: told by kind and task."""
    workflow = build(WorkflowBuilder("w")).build()
    assert (kind, task_id) in [(fault.kind, fault.task_id) for fault in workflow.lint()]


def test_a_start_task_that_is_not_first_is_linted() -> None:
    """`start_task` orders nothing."""
    workflow = tasks(a=[], b=["a"]).set_start_task("b")
    assert [fault.kind for fault in workflow.lint()] == ["start_not_first"]


def test_a_join_on_every_case_is_not_doubtful() -> None:
    """Depending on all ways out of a switch is the way to follow it, and so is depending on it."""
    builder = WorkflowBuilder("w").switch("s", "x", {"1": "p", "2": "q"})
    for name in ("p", "q"):
        builder.task(name, "f", dependencies=["s"])
    workflow = builder.task("join", "f", dependencies=["p", "q"]).task("last", "f", dependencies=["s"]).build()
    assert workflow.lint() == []


def test_a_lint_of_a_document_has_its_place() -> None:
    """Doubts have lines and columns like faults."""
    text = "name: w\ntasks:\n  a: {operator_type: wait, task_id: a, wait_for: -PT1S}\n"
    (fault,) = Workflow.load_yaml(text, "x.yaml").lint()
    assert str(fault) == "x.yaml:3:40: task 'a': waits for a time that is over"


def test_two_routers_in_a_row_may_choose_the_same_task() -> None:
    """A task that either of two conditions leads to, the second on a way out of the first, is no circle."""
    workflow = tasks(rework=["first"], again=["rework"], done=["first", "second"], hold=["second"])
    workflow.add_task(ConditionOperator(task_id="first", condition="x", if_true="done", if_false="rework"))
    second = ConditionOperator(task_id="second", condition="x", if_true="done", if_false="hold")
    second.dependencies = ["again"]
    workflow.add_task(second)
    assert workflow.faults() == []
    assert scope(workflow).members == {"first": ["rework", "done"], "second": ["done", "hold"]}


def test_what_follows_members_and_not_their_operator_is_no_circle() -> None:
    """Tasks may be joined by name: the ways out of a condition, the last tasks of branches, every case."""
    workflow = (
        WorkflowBuilder("w")
        .condition("c", "x", chain("high"), chain("low"))
        .parallel("p", {"a": chain("a1", "a2"), "b": chain("b1")}, dependencies=["high", "low"])
        .task("sum", "f", dependencies=["a2", "b1"])
        .switch("s", "x", {"1": "k1", "2": "k2"}, default="k3")
        .task("k1", "f", dependencies=["s"])
        .task("k2", "f", dependencies=["s"])
        .task("k3", "f", dependencies=["s"])
        .emit_event("done", "e", dependencies=["k1", "k2", "k3"])
        .build()
    )
    assert workflow.lint() == []
