"""The plan as a value, and the faults that make one unwalkable."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from interpreter.errors import PlanError
from interpreter.plan import (
    Branch,
    Case,
    Choose,
    Compute,
    Each,
    Edge,
    Fork,
    Function,
    Graph,
    Pass,
    Plan,
    Region,
    Repeat,
    Return,
    Span,
    Wait,
)
from interpreter.walker import check_plan, require_sound

from .walking import after, arc, call, calls, chain, condition, gate, graph, plan


def test_a_plan_reads_back_equal_from_text():
    """The JSON form survives a round trip through text, kinds and tuples included."""
    made = plan([call("a", args={"x": [1, None]}, span=Span(line=3)), Compute(id="b", value=None)], chain("a", "b"))
    assert Plan.from_json(json.loads(json.dumps(made.to_json()))) == made


def test_the_hash_names_the_meaning():
    """A moved line keeps the hash; a changed argument does not."""
    at = lambda line, x: plan([call("a", args=x, span=Span(line=line))])  # noqa: E731
    assert at(1, 1).hash == at(9, 1).hash
    assert at(1, 1).hash != at(1, 2).hash


def test_a_misspelt_field_is_refused():
    """An unknown key is an error, not a silent loss."""
    with pytest.raises(ValidationError, match="retries"):
        call("a", retries=3)


def loop(body: Graph, **kw) -> Plan:
    return plan([Each(id="l", items=[1], body="b", **kw)], [], {"b": body})


FAULTS = {
    "does not exist": plan([Each(id="l", items=[], body="gone")]),
    "used by no node": plan(calls("a"), bodies={"spare": graph(calls("b"))}),
    "a colon names": plan([Each(id="l", items=[], body="g:0")], bodies={"g:0": graph(calls("a"))}),
    "two nodes are called": plan(calls("a", "a")),
    "cannot be an id": plan(calls("a/b")),
    "names 'gone'": plan(calls("a"), [after("a", "gone")]),
    "the entry 'gone'": plan(calls("a"), entries=("gone",)),
    "mirrors 'gone'": plan([Pass(id="e", mirrors="gone")]),
    "wait for each other": plan(calls("a", "b", "c"), chain("a", "b", "c", "b")),
    "can never run": plan(calls("a", "b", "c"), [after("b", "c")], entries=("a",)),
    "never chooses": plan([condition("c", "true"), *calls("a")], [gate("c", "maybe", "a")]),
    "only arcs may": plan(calls("a", "b"), [Edge(source="a", target="b", when="true")]),
    "only `after` edges": plan(calls("a", "b", "h"), [Edge(source="a", target="b", kind="on_success", unless=("h",))]),
    "only arcs inside a region": plan(calls("a"), [arc("a", "a", back=True)]),
    "either a target or an exit": plan(calls("a"), [arc("a")]),
    "does not lead to a region": plan(calls("a", "b"), [arc("a", "b", entry="x")]),
    "not in the region": plan(
        [call("a"), Region(id="r", body="g")], [arc("a", "r", entry="x")], {"g": graph(calls("b"))}
    ),
    "either for seconds or until": plan([Wait(id="w")]),
    "either `when` or `equals`": plan([Choose(id="c", cases=(Case(label="x"),))]),
    "gives its item no name": loop(graph(calls("a")), item=()),
    "may run in place": loop(graph(calls("a")), mode="parallel", spawn="auto", queue="gpu"),
    "final step 'gone'": plan(calls("a"), final_step="gone"),
    "must stand alone": plan(calls("a", "b"), chain("a", "b"), final_step="b"),
    "frames of themselves": plan([Function(id="f", body="g")], [], {"g": graph([Function(id="f", body="g")])}),
    "not inside a loop": plan([Return(id="x", exit="break")]),
    "leave the parallel": loop(graph([Return(id="x")]), mode="parallel"),
    "may be spawned": loop(graph([Return(id="x", exit="terminate")]), mode="parallel", spawn="auto"),
}


@pytest.mark.parametrize("message", FAULTS)
def test_a_structural_fault_is_found(message):
    """Each fault is named in words."""
    assert any(message in str(fault) for fault in check_plan(FAULTS[message]))
    with pytest.raises(PlanError):
        require_sound(FAULTS[message])


def test_all_faults_come_at_once_with_their_places():
    """Faults are collected, and a node's span says where."""
    nodes = [
        Wait(id="w", span=Span(line=4, column=2, file="x.yaml")),
        Choose(id="c", cases=(Case(label="x"),)),
    ]
    faults = check_plan(plan(nodes))
    assert len(faults) == 2
    assert str(faults[0]).startswith("x.yaml:4:2: w must wait")


def test_exits_that_stay_inside_are_fine():
    """A break inside a loop inside a branch, a continue of a parallel item, a return of a called function."""
    bodies = {
        "b": graph([Repeat(id="w", when="true", body="it"), Function(id="f", body="fn")]),
        "it": graph([Return(id="x", exit="break")]),
        "fn": graph([Return(id="r")]),
        "item": graph([Return(id="c", exit="continue")]),
    }
    fork = Fork(id="fork", branches=(Branch(name="b", body="b"),))
    each = Each(id="each", items=[1], body="item", mode="parallel")
    assert check_plan(plan([fork, each], [], bodies)) == []
