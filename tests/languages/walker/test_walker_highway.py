"""Highway's scenarios, compiled by hand: which operators run, which do not, and in which state they end."""

from __future__ import annotations

import pytest

from interpreter.plan import Each
from interpreter.walker.check import check_plan

from .walking import FAIL, after, call, calls, chain, condition, end, gate, graph, on, plan, run, switch

BRANCHED = plan(
    [
        *calls("z"),
        condition("c", "{{flag}}"),
        *calls("t1", "t2", "t3", "f1", "f2"),
        end("c"),
        *calls("after"),
    ],
    [
        after("z", "c"),
        gate("c", "true", "t1"),
        *chain("t1", "t2", "t3"),
        gate("c", "false", "f1"),
        *chain("f1", "f2"),
        *[after(member, "c.end") for member in ("c", "t1", "t2", "t3", "f1", "f2")],
        after("c.end", "after"),
    ],
)


def test_only_the_chosen_branch_runs_and_outsiders_follow_it():
    """Of two branches the chosen one runs, the other is skipped, and what follows the condition runs."""
    done = run(BRANCHED, inputs={"flag": False})
    assert done.order == ["z", "f1", "f2", "after"]
    assert done.named("skipped") == {"t1", "t2", "t3"}
    assert done.outcome == "succeeded"


def test_an_outsider_waits_for_the_last_member_of_the_branch():
    """What depends on a condition starts when the chosen branch has ended, not when it was chosen."""
    done = run(BRANCHED, inputs={"flag": True})
    assert done.order == ["z", "t1", "t2", "t3", "after"]


def test_an_empty_branch_lets_the_outsiders_run():
    """A condition whose chosen branch is empty is complete at once."""
    made = plan(
        [condition("c", "{{flag}}"), *calls("t1"), end("c"), *calls("after")],
        [gate("c", "true", "t1"), after("c", "c.end"), after("t1", "c.end"), after("c.end", "after")],
    )
    done = run(made, inputs={"flag": False})
    assert done.order == ["after"]
    assert done.named("skipped") == {"t1"}


def test_nested_conditions_route_independently():
    """An inner condition routes inside the chosen branch; the other outer branch is skipped."""
    made = plan(
        [
            condition("c1", "{{outer}}"),
            condition("c2", "{{inner}}"),
            *calls("a", "b"),
            end("c2"),
            *calls("c", "d"),
            end("c1"),
            *calls("after"),
        ],
        [
            gate("c1", "true", "c2"),
            gate("c1", "false", "d"),
            gate("c2", "true", "a"),
            gate("c2", "false", "b"),
            *[after(member, "c2.end") for member in ("c2", "a", "b")],
            after("c2.end", "c"),
            *[after(member, "c1.end") for member in ("c1", "c2.end", "c", "d")],
            after("c1.end", "after"),
        ],
    )
    assert check_plan(made) == []
    done = run(made, inputs={"outer": True, "inner": False})
    assert done.order == ["b", "c", "after"]
    assert done.named("skipped") == {"a", "d"}


CALLBACKS = plan(
    calls("risky", "ok@risky", "bad@risky"),
    [on("success", "risky", "ok@risky"), on("failure", "risky", "bad@risky")],
)


@pytest.mark.parametrize(
    ("outcome", "ran", "skipped", "ends"),
    [(1, "ok@risky", "bad@risky", "succeeded"), (FAIL, "bad@risky", "ok@risky", "failed")],
)
def test_exactly_one_callback_runs_and_a_handled_failure_still_fails(outcome, ran, skipped, ends):
    """One of two callbacks runs, the other is skipped; a handled failure leaves the run failed."""
    done = run(CALLBACKS, {"risky": outcome})
    assert done.order == ["risky", ran]
    assert done.named("skipped") == {skipped}
    assert done.outcome == ends


def test_a_handler_knows_what_failed():
    """A failure callback sees the id of the failed node and its error."""
    seen = run(CALLBACKS, {"risky": FAIL})
    asked = next(c for c in seen.commands if getattr(c, "path", "") == "bad@risky")
    assert asked.tag == "run_call"
    assert seen.settled.handled == ["risky"]
    assert seen.settled.error["type"] == "Boom"


@pytest.mark.parametrize(("outcome", "order"), [(1, ["risky", "next"]), (FAIL, ["risky", "alert@risky", "next"])])
def test_what_follows_a_handler_runs_either_way(outcome, order):
    """A handler that was not triggered is transparent; a triggered one is a real dependency."""
    made = plan(
        calls("risky", "alert@risky", "next"),
        [
            on("failure", "risky", "alert@risky"),
            after("alert@risky", "next"),
            after("risky", "next", "alert@risky"),
        ],
    )
    assert check_plan(made) == []
    assert run(made, {"risky": outcome}).order == order


def test_a_failed_handler_breaks_what_follows_it():
    """A handler that fails fails the run and what depends on it, never its owner."""
    made = plan(
        calls("risky", "ok@risky", "next"),
        [on("success", "risky", "ok@risky"), after("ok@risky", "next"), after("risky", "next", "ok@risky")],
    )
    done = run(made, {"ok@risky": FAIL})
    assert done.states == {"risky": "succeeded", "ok@risky": "failed", "next": "upstream_failed"}
    assert done.outcome == "failed"


SWITCH = plan(
    [
        *calls("fetch"),
        switch("route", "{{status}}", ["approved", "rejected"], "other"),
        *calls("pa", "pr", "default", "join"),
    ],
    [
        after("fetch", "route"),
        gate("route", "approved", "pa"),
        gate("route", "rejected", "pr"),
        gate("route", "other", "default"),
        *[after(case, "join") for case in ("pa", "pr", "default")],
    ],
)


@pytest.mark.parametrize(("status", "chosen"), [("approved", "pa"), ("rejected", "pr"), ("?", "default")])
def test_a_switch_takes_one_case_and_a_join_on_all_cases_runs(status, chosen):
    """Skipped dependencies count as satisfied as long as one ran."""
    done = run(SWITCH, inputs={"status": status})
    assert done.order == ["fetch", chosen, "join"]
    assert done.named("skipped") == {"pa", "pr", "default"} - {chosen}


@pytest.mark.parametrize(
    ("value", "order", "skipped"),
    [("q", ["fetch", "q", "end"], {"p"}), ("p", ["fetch", "p"], {"q", "end"})],
)
def test_cases_chained_by_accident_are_still_gated(value, order, skipped):
    """A gated node runs only if its router chose it, whatever its dependencies say."""
    made = plan(
        [*calls("fetch"), switch("route", "{{value}}", ["p", "q"]), *calls("p", "q", "end")],
        [
            after("fetch", "route"),
            gate("route", "p", "p"),
            gate("route", "q", "q"),
            *chain("p", "q", "end"),
        ],
    )
    done = run(made, inputs={"value": value})
    assert done.order == order
    assert done.named("skipped") == skipped


def test_a_failed_branch_fails_its_parallel_and_lets_the_others_go_on():
    """A failed member breaks what follows it and the operator; independent branches run to their end."""
    made = plan(
        [*calls("z", "par", "a1", "a2", "b1"), end("par"), *calls("after")],
        [
            after("z", "par"),
            after("par", "a1"),
            after("a1", "a2"),
            after("par", "b1"),
            *[after(member, "par.end") for member in ("par", "a1", "a2", "b1")],
            after("par.end", "after"),
        ],
    )
    done = run(made, {"a1": FAIL})
    assert done.order == ["z", "par", "a1", "b1"]
    assert done.named("upstream_failed") == {"a2", "after"}
    assert done.named("failed") == {"a1", "par.end"}
    assert done.outcome == "failed"
    assert done.settled.error["node"] == "a1"


def test_nested_loops_run_their_bodies_per_item_and_route_inside_each():
    """Every outer item runs its own inner loop, its own condition and its own last task."""
    made = plan(
        [Each(id="o", items="{{outer}}", body="o", item=("item",)), *calls("after")],
        [after("o", "after")],
        {
            "o": graph(
                [
                    Each(id="i", items="{{inner}}", body="i"),
                    condition("cc", "false"),
                    *calls("ct", "cf"),
                    end("cc"),
                    *calls("o2"),
                ],
                [
                    after("i", "cc"),
                    gate("cc", "true", "ct"),
                    gate("cc", "false", "cf"),
                    *[after(member, "cc.end") for member in ("cc", "ct", "cf")],
                    after("cc.end", "o2"),
                ],
            ),
            "i": graph(calls("in1", "in2"), chain("in1", "in2")),
        },
    )
    done = run(made, inputs={"outer": [1, 2], "inner": ["x", "y"]})
    expected = []
    for k in (0, 1):
        expected += [f"o[{k}]/i[{j}]/{task}" for j in (0, 1) for task in ("in1", "in2")]
        expected += [f"o[{k}]/cf", f"o[{k}]/o2"]
    assert done.order == [*expected, "after"]
    assert done.named("skipped") == {"o[0]/ct", "o[1]/ct"}


def test_a_gated_node_falls_with_its_router():
    """When its only router failed, a gated node is upstream_failed, not skipped."""
    made = plan(
        [switch("route", "{{nobody}}", ["a"]), *calls("a", "b")],
        [gate("route", "a", "a"), after("a", "b")],
    )
    done = run(made)
    assert done.states == {"route": "failed", "a": "upstream_failed", "b": "upstream_failed"}
    assert done.settled.error["type"] == "UndefinedName"


def test_a_node_named_by_two_routers_runs_if_one_chose_it():
    """Gates are OR-ed: one live gate is enough, before the other router has even spoken."""
    made = plan(
        [condition("c1", "{{one}}"), call("slow"), condition("c2", "{{two}}"), *calls("t")],
        [after("slow", "c2"), gate("c1", "true", "t"), gate("c2", "true", "t")],
    )
    assert run(made, inputs={"one": True, "two": False}).order == ["slow", "t"]
    assert run(made, inputs={"one": False, "two": True}).order == ["slow", "t"]
    assert run(made, inputs={"one": False, "two": False}).named("skipped") == {"t"}


@pytest.mark.parametrize("spawn", ["in_place", "spawned"])
@pytest.mark.parametrize("event", ["success", "failure"])
def test_a_failed_handler_fails_the_run_and_not_the_loop_around_it(spawn, event):
    """The loop comes to what its own tasks come to; the run fails with the handler's error."""
    body = graph(calls("work", "tell@work"), [on(event, "work", "tell@work")], result=("out",))
    loop = Each(id="l", items=[1, 2], body="body", mode="parallel", spawn="always", on_error="continue")
    made = plan([loop, *calls("after")], [after("l", "after")], {"body": body})
    outcomes = {"tell@work": FAIL, "l[1]/work": FAIL if event == "failure" else 1}
    done = run(made, outcomes, spawn=(spawn, 1))
    assert done.order[-1] == "after"
    assert (done.states["l"], done.outcome) == ("succeeded", "failed")
    assert done.settled.error["node"] == ("l[1]/tell@work" if event == "failure" else "l[0]/tell@work")


def test_a_failed_handler_stops_a_run_that_stops_at_the_first_failure():
    """With fail_fast nothing more starts anywhere."""
    body = graph(calls("work", "tell@work"), [on("success", "work", "tell@work")])
    loop = Each(id="l", items=[1, 2, 3], body="body")
    done = run(plan([loop], [], {"body": body}, fail_fast=True), {"tell@work": FAIL})
    assert done.order == ["l[0]/work", "l[0]/tell@work"]
    assert done.outcome == "failed"
