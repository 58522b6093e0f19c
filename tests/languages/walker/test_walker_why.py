"""Why a node ran, was skipped, waits or has not started."""

from __future__ import annotations

import pytest

from interpreter.expressions import Templates
from interpreter.plan import Each
from interpreter.simulate import FAIL as FAILS
from interpreter.simulate import read_outcomes, simulate
from interpreter.walker import Program, Walk, why

from .walking import FAIL, Run, after, arc, call, calls, chain, condition, gate, graph, on, plan, run, switch

ROUTED = plan(
    [
        call("a", bind=("data",)),
        switch("route", "{{data.status}}", ["ok", "bad"]),
        *calls("good", "poor", "end"),
    ],
    [
        after("a", "route"),
        gate("route", "ok", "good"),
        gate("route", "bad", "poor"),
        after("good", "end"),
        after("poor", "end"),
    ],
)


def test_a_choice_is_explained_with_the_values_it_saw():
    """Why something ran or was skipped names the router, its choice and what it saw."""
    done = run(ROUTED, {"a": {"status": "ok"}})
    assert why(done.walk, "good").reason == "route chose ['ok'] with {'data.status': 'ok'}"
    assert why(done.walk, "poor").reason == "nobody chose it: route chose ['ok'] with {'data.status': 'ok'}"
    assert why(done.walk, "end").reason == "good (succeeded) let it start"
    assert why(done.walk, "route").decision["chose"] == ["ok"]


def test_a_wait_names_what_it_waits_for():
    """A node that has not started says for whom it waits and in which state they are."""
    walk = Run(ROUTED).walk
    assert why(walk, "a").state == "running"
    assert why(walk, "a").reason == "it is where its frame starts"
    assert why(walk, "route").reason == "it waits for a (running)"
    assert why(walk, "good").reason == "no router has chosen it yet: route (waiting)"
    assert why(walk, "end").edges[0] == {
        "from": "good",
        "kind": "after",
        "state": "pending",
        "source": "waiting",
    }


def test_a_broken_node_names_the_culprit_however_far_up():
    """upstream_failed leads to the node that failed and its error."""
    done = run(plan(calls("a", "b", "c"), chain("a", "b", "c")), {"a": FAIL})
    assert why(done.walk, "c").reason == "because of a (failed): Boom: a"
    assert why(done.walk, "a").reason == "a (failed): Boom: a"


def test_guards_expiry_and_cancels_are_explained():
    """A parked node shows its guard and what it saw; an expired one that nothing else could run."""
    made = plan([*calls("a", "n"), call("p", guard="{{n}} > 5")], [arc("a", "p")], entries=("a",))
    run_ = Run(made, inputs={"n": 3})
    assert why(run_.walk, "n").reason.startswith("no token came to it")
    run_.finish()
    assert why(run_.walk, "p").reason == "nothing else could run and its guard does not hold: {{n}} > 5 with {'n': 3}"
    assert why(run_.walk, "p").guard == {"held": False, "saw": {"n": 3}}


def test_frames_that_are_not_open_are_explained_by_their_owner():
    """A node of a frame that is over or has not begun is explained by who owns the frame."""
    made = plan([call("a"), Each(id="l", items=[1, 2], body="b")], chain("a", "l"), {"b": graph(calls("t"))})
    run_ = Run(made)
    assert why(run_.walk, "l[0]/t").reason == "l[0] is not open; l is waiting: it waits for a (running)"
    run_.step()
    assert why(run_.walk, "l[0]/t").state == "running"
    assert why(run_.walk, "l[1]/t").reason.startswith("l[1] has settled or has not been opened yet; l is running")
    assert why(run_.walk, "gone").state == "unknown"
    assert why(run_.walk, "gone[1]/x").state == "unknown"
    assert why(Walk(Program(made), Templates()), "l[0]/t").reason == "the run has not started"


def test_every_state_has_an_explanation():
    """Whatever the state of a node, there is a sentence for it."""
    nodes = [*calls("a", "b", "h"), condition("c", "false"), *calls("t", "last")]
    edges = [after("a", "b"), on("failure", "a", "h"), gate("c", "true", "t")]
    done = run(plan(nodes, edges, final_step="last"), {"a": FAIL})
    for path in done.states:
        assert why(done.walk, path).reason


def test_the_simulator_says_what_would_run_and_why():
    """Outcomes given as text lead to what runs, what is skipped and the end, each with its reason."""
    report = simulate(ROUTED, read_outcomes(['a={"status": "bad"}', "poor=fail"]))
    assert report.ran == ["a", "route", "poor"]
    assert report.skipped == ["good", "end"]
    assert str(report).splitlines()[-1] == "the run failed: poor fails"
    assert "skipped          good  (nobody chose it: route chose ['bad']" in str(report)


def test_outcomes_are_read_from_text():
    """`fail` fails, JSON is a value, other text is text, and anything else is refused."""
    read = read_outcomes(["a=fail", "b=[1]", "c=hello", 'd="fail"'])
    assert read == {"a": FAILS, "b": [1], "c": "hello", "d": "fail"}
    with pytest.raises(ValueError, match="task=fail"):
        read_outcomes(["a"])


def test_the_simulator_walks_spawned_branches_too():
    """A loop that is always spawned in production is simulated all the same."""
    made = plan([Each(id="l", items=[1, 2], body="b", mode="parallel", spawn="always")], [], {"b": graph(calls("t"))})
    assert simulate(made).ran == ["l[0]/t", "l[1]/t", "l"]
