"""Tasks that no run can come to: found before anything runs, and only where it is certain."""

from __future__ import annotations

import random
from typing import Any

import pytest

from highway_dsl import JoinMode, TriggerRule, Workflow, WorkflowBuilder
from interpreter.highway import HighwayTemplates, check_workflow, compile_workflow
from interpreter.highway.names import task_of
from interpreter.simulate import FAIL, simulate

from .random_flows import Flow
from .test_laws_run import GLOBALS, _Values


def idle(workflow: Workflow) -> dict[str, str]:
    """What is said of each task that cannot run, or whose inside cannot."""
    found = check_workflow(workflow)
    assert found.faults == ()
    return {str(fault.task_id): fault.message for fault in found.warnings if fault.kind == "never_runs"}


def test_a_literal_condition_makes_one_branch_impossible() -> None:
    """And what only follows that branch; what follows both runs."""
    workflow = (
        WorkflowBuilder("w")
        .condition("c", condition="1 > 2", if_true=lambda b: b.task("t", "f"), if_false=lambda b: b.task("f", "f"))
        .task("t2", "f", dependencies=["t"])
        .task("both", "f", dependencies=["t", "f"])
        .build()
    )
    assert idle(workflow) == {
        "t": "can never run: 'c' always chooses 'false'",
        "t2": "can never run: 't' can never run",
    }


def test_a_literal_switch_makes_other_cases_impossible() -> None:
    """Also the default; a router behind an impossible case chooses nothing."""
    workflow = (
        WorkflowBuilder("w")
        .switch("s", switch_on="a", cases={"a": "p", "b": "q"}, default="r")
        .task("p", "f", dependencies=["s"])
        .condition("q", condition="{{inputs.x}}", if_true=lambda b: b.task("deep", "f"), if_false=lambda b: b)
        .task("r", "f", dependencies=["s"])
        .build()
    )
    workflow.tasks["q"].dependencies = ["s"]
    assert set(idle(workflow)) == {"q", "deep", "r"}


def test_values_that_a_run_brings_are_not_literal() -> None:
    """A name of any kind leaves every way open, also a workflow's own variable."""
    for condition in ("{{inputs.x}}", "{{flag}}", "{{ds}} > '2025'"):
        builder = WorkflowBuilder("w").set_variables({"flag": False})
        ways: dict[str, Any] = {"if_true": lambda b: b.task("t", "f"), "if_false": lambda b: b.task("f", "f")}
        assert idle(builder.condition("c", condition=condition, **ways).build()) == {}


def test_a_handler_of_what_cannot_fail_is_idle() -> None:
    """A wait cannot fail; the same handler beside a task that can is not idle."""
    builder = WorkflowBuilder("w").wait("nap", wait_for="PT1S").on_failure("cure").task("cure", "f")
    alone = builder.build()
    assert idle(alone) == {"cure": "can never run: 'nap' cannot fail"}
    shared = WorkflowBuilder("w").wait("nap", wait_for="PT1S").on_failure("cure").task("t", "f").on_failure("cure")
    assert idle(shared.task("cure", "f").build()) == {}


def test_nothing_follows_the_end_of_a_run() -> None:
    """What depends on a terminate cannot run, nor can what depends on a loop that never ends."""
    workflow = (
        WorkflowBuilder("w")
        .while_loop("ever", condition="true", loop_body=lambda b: b.task("t", "f"))
        .task("past", "f")
        .task("tidy", "f", dependencies=["ever"], trigger_rule=TriggerRule.ALL_DONE)
        .terminate("stop", dependencies=[])
        .task("after", "f", dependencies=["stop"])
        .build()
    )
    assert idle(workflow) == {
        "past": "can never run: 'ever' can never succeed",
        "after": "can never run: 'stop' ends the run",
    }


def test_a_body_that_never_runs_is_told_of_its_loop() -> None:
    """A while that is false from the start, a foreach over nothing."""
    workflow = (
        WorkflowBuilder("w")
        .while_loop("no", condition="false", loop_body=lambda b: b.task("a", "f"))
        .foreach("none", items="{{[]}}", loop_body=lambda b: b.task("b", "f"))
        .task("after", "f")
        .build()
    )
    assert idle(workflow) == {
        "no": "what is inside it can never run: its condition is always false",
        "none": "what is inside it can never run: it has no items",
    }


@pytest.mark.parametrize("mode", list(JoinMode))
def test_a_join_of_all_ways_out_is_no_warning(mode: JoinMode) -> None:
    """Ways that were not taken count as satisfied; a join of only one way hangs on it."""
    builder = WorkflowBuilder("w").switch("s", switch_on="{{inputs.x}}", cases={"x": "p", "y": "q"})
    builder.task("p", "f", dependencies=["s"]).task("q", "f", dependencies=["s"])
    whole = builder.join("j", join_tasks=["p", "q"], join_mode=mode).build()
    assert check_workflow(whole).warnings == ()
    whole.tasks["j"].join_tasks = ["q"]  # type: ignore[union-attr]
    assert [(fault.kind, fault.task_id) for fault in check_workflow(whole).warnings] == [("one_case", "j")]


@pytest.mark.parametrize("seed", range(120))
def test_what_is_said_to_be_idle_never_runs(seed: int) -> None:
    """Random workflows on random outcomes: no run comes to a task that the check calls idle."""
    flow = Flow(seed)
    plan = compile_workflow(flow.workflow)
    said = {task for task, message in idle(flow.workflow).items() if message.startswith("can never run")}
    chance = random.Random(seed)
    calls = [node.id for graph in plan.graphs.values() for node in graph.nodes if node.kind == "call"]
    for share in (0.0, 0.1, 0.5, 1.0):
        fails: dict[str, Any] = {task_of(call): FAIL for call in calls if chance.random() < share}
        report = simulate(plan, _Values(fails), globals=GLOBALS, evaluator=HighwayTemplates(plan))
        ran = {task_of(path.rpartition("/")[2]) for path in report.ran if not path.endswith(".end")}
        assert said.isdisjoint(ran)


def test_literal_flows_have_every_idle_task_found() -> None:
    """Where every router is literal and nothing fails, what a run skips outside of loops is what the check says."""
    flows = [flow.workflow for flow in map(Flow, range(120)) if "run.status" not in flow.workflow.to_yaml()]
    assert len(flows) > 20
    for workflow in flows:
        plan = compile_workflow(workflow)
        report = simulate(plan, _Values({}), globals=GLOBALS, evaluator=HighwayTemplates(plan))
        skipped = {task_of(path) for path in report.paths("skipped") if "/" not in path and "@" not in path}
        assert skipped <= set(idle(workflow))


EARLIER = [
    ("args: later", "{{later}}", True),
    ("its own output", "{{reader.output}}", True),
    ("an earlier task", "{{first}}", False),
    ("a task beside it", "{{beside}}", False),
    ("a name that is asked for", "{{later | default(1)}}", False),
]


@pytest.mark.parametrize(("what", "text", "missing"), EARLIER, ids=[case[0] for case in EARLIER])
def test_a_name_that_only_later_tasks_bind_is_a_fault(what: str, text: str, missing: bool) -> None:
    """It cannot be there when the task begins, unless the text asks whether it is."""
    workflow = (
        WorkflowBuilder("w")
        .task("first", "f")
        .task("reader", "f", args=[text])
        .task("later", "f")
        .task("beside", "f", dependencies=["first"])
        .build()
    )
    found = check_workflow(workflow).faults
    assert [(fault.task_id, fault.kind) for fault in found] == ([("reader", "undefined")] if missing else [])


def test_a_while_reads_what_its_body_bound_before() -> None:
    """Inside a while, a later task of the body has run in the iteration before; inside a foreach it has not."""

    def body(b: WorkflowBuilder) -> WorkflowBuilder:
        return b.task("reader", "f", args=["{{later}}"]).task("later", "f")

    looping = WorkflowBuilder("w").while_loop("loop", condition="{{inputs.go}}", loop_body=body).build()
    assert check_workflow(looping).faults == ()
    each = WorkflowBuilder("w").foreach("loop", items="{{inputs.all}}", loop_body=body).build()
    assert [fault.task_id for fault in check_workflow(each).faults] == ["reader"]


def test_what_runs_at_the_first_of_several_may_be_earlier() -> None:
    """A task that waits for one of two may have run before the other; so may the target of two routers."""
    workflow = (
        WorkflowBuilder("w")
        .task("slow", "f", args=["{{early}}"])
        .task("fast", "f", dependencies=[])
        .task("early", "f", dependencies=["slow", "fast"], trigger_rule=TriggerRule.ONE_SUCCESS)
        .build()
    )
    assert check_workflow(workflow).faults == ()
