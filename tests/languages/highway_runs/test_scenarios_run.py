"""Which tasks run and which do not, on a real worker: routers, joins, handlers, parallels and nested loops."""

from __future__ import annotations

from typing import Any

import pytest

from highway_dsl import ConditionOperator, SwitchOperator, TaskOperator, Workflow, WorkflowBuilder

from .stage import Stage

BOOM = RuntimeError("boom")


def branched() -> Workflow:
    return (
        WorkflowBuilder("branched")
        .task("z", "f")
        .condition(
            "cond",
            condition="{{inputs.flag}}",
            if_true=lambda b: b.task("t1", "f").task("t2", "f").task("t3", "f"),
            if_false=lambda b: b.task("f1", "f").task("f2", "f"),
        )
        .task("after", "f")
        .build()
    )


@pytest.mark.parametrize(
    ("flag", "ran", "skipped"),
    [
        (False, ["z", "f1", "f2", "after"], {"t1", "t2", "t3"}),
        (True, ["z", "t1", "t2", "t3", "after"], {"f1", "f2"}),
    ],
)
async def test_a_condition_runs_one_branch_and_then_what_follows(stage: Stage, flag: bool, ran: Any, skipped: Any):
    """The chosen branch runs to its end before what depends on the condition."""
    ended = await stage.run(branched(), inputs={"flag": flag})
    assert (ended.state, ended.fakes.tasks, ended.noted("skipped")) == ("succeeded", ran, skipped)


async def test_an_empty_branch_lets_the_rest_go_on(stage: Stage) -> None:
    """A condition whose chosen branch is empty is complete at once."""
    workflow = (
        WorkflowBuilder("empty")
        .condition("cond", condition="false", if_true=lambda b: b.task("t1", "f"), if_false=lambda b: b)
        .task("after", "f")
        .build()
    )
    ended = await stage.run(workflow)
    assert (ended.fakes.tasks, ended.noted("skipped")) == (["after"], {"t1"})


async def test_nested_conditions_choose_on_their_own(stage: Stage) -> None:
    """The inner condition routes inside the chosen outer branch."""
    workflow = (
        WorkflowBuilder("nested")
        .condition(
            "c1",
            condition="true",
            if_true=lambda b: b.condition(
                "c2", condition="1 > 2", if_true=lambda c: c.task("a", "f"), if_false=lambda c: c.task("b", "f")
            ).task("c", "f"),
            if_false=lambda b: b.task("d", "f"),
        )
        .task("after", "f")
        .build()
    )
    ended = await stage.run(workflow)
    assert (ended.fakes.tasks, ended.noted("skipped")) == (["b", "c", "after"], {"a", "d"})


@pytest.mark.parametrize(("outcome", "ran"), [(1, ["risky", "next"]), (BOOM, ["risky", "alert", "next"])])
async def test_what_follows_a_handler_runs_either_way(stage: Stage, outcome: Any, ran: list[str]) -> None:
    """An untriggered handler is transparent, a triggered one a real dependency; the failure still fails the run."""
    builder = WorkflowBuilder("follows").task("risky", "risky").on_failure("alert").task("alert", "f")
    workflow = builder.task("next", "f", dependencies=["alert"]).build()
    workflow.tasks["alert"].dependencies = ["risky"]
    ended = await stage.run(workflow, {"risky": outcome})
    assert ended.fakes.tasks == ran
    assert ended.state == ("failed" if outcome is BOOM else "succeeded")


async def test_a_handler_declared_before_its_owner_does_not_deadlock(stage: Stage) -> None:
    """What comes before a handler's owner sees only what the handler itself depends on."""
    workflow = Workflow(name="early")
    workflow.add_task(TaskOperator(task_id="alert", function="f"))
    workflow.add_task(
        TaskOperator(task_id="risky", function="risky", dependencies=["alert"], on_failure_task_id="alert")
    )
    ended = await stage.run(workflow, {"risky": BOOM})
    assert ended.fakes.tasks == ["risky", "alert"]


async def test_a_handler_of_two_owners_runs_for_each(stage: Stage) -> None:
    """One handler runs once per owner that failed, and knows which."""
    workflow = Workflow(name="shared")
    for name in ("a", "b", "c"):
        workflow.add_task(TaskOperator(task_id=name, function=name, on_failure_task_id="alert"))
    workflow.add_task(TaskOperator(task_id="alert", function="alert", args=["{{failed_task_id}}: {{error_message}}"]))
    ended = await stage.run(workflow, {"a": BOOM, "b": RuntimeError("bang")})
    said = sorted(call.args[0] for call in ended.fakes.calls if call.function == "alert")
    assert said == ["a: boom", "b: bang"]


async def test_a_handler_of_a_task_in_a_loop_runs_in_its_iteration(stage: Stage) -> None:
    """A handler defined outside runs inside the iteration whose task failed, and sees its item."""
    workflow = (
        WorkflowBuilder("looped")
        .foreach("each", items="{{[1, 2]}}", loop_body=lambda b: b.task("work", "work", args=["{{item}}"]))
        .build()
    )
    workflow.add_task(TaskOperator(task_id="alert", function="alert", args=["{{item}} {{error_message}}"]))
    workflow.tasks["work"].on_failure_task_id = "alert"
    ended = await stage.run(workflow, {"work": lambda n: BOOM if n == 2 else n})
    assert [call.step for call in ended.fakes.calls] == ["each[0]/work", "each[1]/work", "each[1]/alert@work"]
    assert (ended.fakes.calls[-1].args, ended.state) == (("2 boom",), "failed")


LOOPS: dict[str, Any] = {
    "sequential": {},
    "parallel": {"parallel": True},
    "spawned": {"parallel": True, "metadata": {"spawn": True}},
}


@pytest.mark.parametrize("how", LOOPS)
async def test_a_handler_that_fails_inside_a_loop_fails_the_run_and_not_the_loop(stage: Stage, how: str) -> None:
    """Every item is worked on, what follows the loop runs, and the run then fails with the handler's error."""
    builder = WorkflowBuilder(f"told_{how}")
    builder.foreach(
        "each", items="{{[1, 2]}}", loop_body=lambda b: b.task("work", "work", args=["{{item}}"]), **LOOPS[how]
    )
    workflow = builder.task("after", "after", args=["{{each}}"]).build()
    workflow.add_task(TaskOperator(task_id="tell", function="tell"))
    workflow.tasks["work"].on_success_task_id = "tell"
    ended = await stage.run(workflow, {"work": lambda n: n * 10, "tell": BOOM})
    assert sorted(ended.fakes.tasks) == ["after", "tell", "tell", "work", "work"]
    assert ended.fakes.calls[-1].args == ([10, 20],)
    assert (ended.state, ended.error["step"]) == ("failed", "each[0]/tell@work")
    assert ended.noted("failed") == {"each[0]/tell@work", "each[1]/tell@work"}


async def test_a_handler_that_fails_in_a_while_loop_lets_it_go_on(stage: Stage) -> None:
    """The loop ends when its condition says so."""
    builder = WorkflowBuilder("told_while").task("first", "one", result_key="n")
    builder.while_loop(
        "loop", condition="{{n}} < 3", loop_body=lambda b: b.task("add", "add", args=["{{n}}"], result_key="n")
    )
    workflow = builder.build()
    workflow.add_task(TaskOperator(task_id="tell", function="tell"))
    workflow.tasks["add"].on_success_task_id = "tell"
    ended = await stage.run(workflow, {"one": 1, "add": lambda n: n + 1, "tell": BOOM})
    assert (ended.fakes.tasks, ended.state) == (["first", "add", "tell", "add", "tell"], "failed")


def switched(**deps: list[str]) -> Workflow:
    workflow = Workflow(name="switched").add_task(TaskOperator(task_id="fetch", function="fetch"))
    switch = SwitchOperator(
        task_id="route", switch_on="{{fetch}}", cases={"p": "p", "q": "q"}, default="other", dependencies=["fetch"]
    )
    workflow.add_task(switch)
    for name in ("p", "q", "other"):
        workflow.add_task(TaskOperator(task_id=name, function="f", dependencies=deps.get(name, ["route"])))
    return workflow.add_task(TaskOperator(task_id="join", function="f", dependencies=["p", "q", "other"]))


@pytest.mark.parametrize(("value", "chosen"), [("p", "p"), ("q", "q"), ("?", "other"), (None, "other")])
async def test_a_join_on_all_cases_runs_after_the_chosen_one(stage: Stage, value: Any, chosen: str) -> None:
    """Skipped dependencies count as satisfied as long as one ran."""
    ended = await stage.run(switched(), {"fetch": value})
    assert ended.fakes.tasks == ["fetch", chosen, "join"]


@pytest.mark.parametrize(("value", "ran"), [("q", ["fetch", "q", "end"]), ("p", ["fetch", "p"])])
async def test_cases_chained_by_accident_are_still_chosen_by_the_switch(stage: Stage, value: str, ran: Any) -> None:
    """A gated task runs only if its router chose it, whatever the chain says."""
    workflow = (
        WorkflowBuilder("chained")
        .task("fetch", "fetch")
        .switch("route", switch_on="{{fetch}}", cases={"p": "p", "q": "q"})
        .task("p", "f")
        .task("q", "f")
        .task("end", "f")
        .build()
    )
    ended = await stage.run(workflow, {"fetch": value})
    assert ended.fakes.tasks == ran


def parallel(**options: Any) -> Workflow:
    return (
        WorkflowBuilder("side_by_side")
        .task("z", "f")
        .parallel(
            "par",
            branches={
                "a": lambda b: b.task("a1", "a1").task("a2", "a2", args=["{{a1}}"]),
                "b": lambda b: b.task("b1", "b1", result_key="kept"),
            },
            **options,
        )
        .task("after", "after", args=["{{a2}}", "{{kept}}"])
        .build()
    )


async def test_a_failed_branch_fails_the_parallel_and_not_the_other_branch(stage: Stage) -> None:
    """What follows the failed task does not run; the other branch does; the run fails with the first error."""
    ended = await stage.run(parallel(), {"a1": BOOM})
    assert sorted(ended.fakes.tasks) == ["a1", "b1", "z"]
    assert ended.noted("upstream_failed") == {"par#0/a2", "after"}
    assert (ended.state, ended.error["step"]) == ("failed", "par#0/a1")


async def test_nested_loops_route_in_every_iteration(stage: Stage) -> None:
    """Each outer item runs its inner loop, its own condition and its last task."""
    workflow = (
        WorkflowBuilder("loops")
        .foreach(
            "o",
            items="{{range(2)}}",
            loop_body=lambda b: (
                b.foreach("i", items="{{range(2)}}", loop_body=lambda c: c.task("in1", "f").task("in2", "f"))
                .condition(
                    "cc", condition="false", if_true=lambda c: c.task("ct", "f"), if_false=lambda c: c.task("cf", "f")
                )
                .task("o2", "f")
            ),
        )
        .task("after", "f")
        .build()
    )
    ended = await stage.run(workflow)
    expected = []
    for k in (0, 1):
        expected += [f"o[{k}]/i[{j}]/{task}" for j in (0, 1) for task in ("in1", "in2")]
        expected += [f"o[{k}]/cf", f"o[{k}]/o2"]
    assert ended.fakes.steps == [*expected, "after"]
    assert ended.noted("skipped") == {"o[0]/ct", "o[1]/ct"}


async def test_a_target_of_two_routers_runs_if_one_chose_it(stage: Stage) -> None:
    """Gates are OR-ed."""
    workflow = Workflow(name="two")
    for router, condition in (("c1", "false"), ("c2", "true")):
        workflow.add_task(ConditionOperator(task_id=router, condition=condition, if_true="t"))
    workflow.add_task(TaskOperator(task_id="t", function="f"))
    assert (await stage.run(workflow)).fakes.tasks == ["t"]


async def test_a_template_that_finds_nothing_fails_its_task_and_says_so(stage: Stage) -> None:
    """The error names the missing part; nothing was called."""
    workflow = WorkflowBuilder("typo").task("a", "a").task("b", "b", args=["{{a.nmae}}"]).build()
    ended = await stage.run(workflow, {"a": {"name": 1}})
    assert (ended.state, ended.fakes.tasks) == ("failed", ["a"])
    assert "did you mean 'name'" in ended.error["message"]


async def test_branches_in_place_and_spawned_come_to_the_same(stage: Stage) -> None:
    """A parallel and a foreach give the same results whether their parts are tasks of their own or not."""
    ends = []
    for spawn in ("never", "always"):
        builder = WorkflowBuilder(f"spread_{spawn}").task("z", "f")
        builder.parallel(
            "par",
            branches={
                "a": lambda b: b.task("a1", "a1").task("a2", "a2", args=["{{a1}}"]),
                "b": lambda b: b.task("b1", "b1", result_key="kept"),
            },
            metadata={"spawn": spawn},
        )
        builder.foreach(
            "each",
            items="{{range(5)}}",
            loop_body=lambda b: b.task("twice", "twice", args=["{{item}}"]),
            parallel=True,
            max_parallel=2,
            metadata={"spawn": spawn},
        )
        builder.task("after", "after", args=["{{a2}}", "{{kept}}", "{{each}}"])
        outcomes = {"a1": 1, "a2": lambda n: n + 1, "b1": "k", "twice": lambda n: n * 2, "after": lambda *a: list(a)}
        ended = await stage.run(builder.build(), outcomes)
        ends.append((ended.state, ended.result, sorted(ended.fakes.steps)))
        children = await stage.sql("select count(*) from durable.task where parent_id is not null")
        assert (children[0][0] > 0) == (spawn == "always")
    assert ends[0] == ends[1]
    assert ends[0][1] == [2, "k", [0, 2, 4, 6, 8]]
