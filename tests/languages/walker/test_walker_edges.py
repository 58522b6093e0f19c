"""The edge table cell by cell, joins and trigger rules, and an oracle that knows nothing of the walker."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interpreter.plan import Choose, Edge, Plan
from interpreter.walker.states import EDGE_TABLE

from .walking import FAIL, after, arc, call, calls, condition, gate, on, plan, run

TABLE = {
    # kind: what its target ends as, for each end of its source
    "after": {
        "succeeded": "succeeded",
        "failed": "upstream_failed",
        "skipped": "skipped",
        "expired": "skipped",
        "upstream_failed": "upstream_failed",
        "cancelled": "upstream_failed",
    },
    "on_success": {
        "succeeded": "succeeded",
        "failed": "skipped",
        "skipped": "skipped",
        "expired": "skipped",
        "upstream_failed": "skipped",
        "cancelled": "skipped",
    },
    "on_failure": {
        "succeeded": "skipped",
        "failed": "succeeded",
        "skipped": "skipped",
        "expired": "skipped",
        "upstream_failed": "skipped",
        "cancelled": "skipped",
    },
    "arc": {
        "succeeded": "succeeded",
        "failed": "succeeded",
        "skipped": "skipped",
        "expired": "skipped",
        "upstream_failed": "skipped",
        "cancelled": "skipped",
    },
}
SOURCES = {
    # how to make `s` end in a state: (nodes, edges, outcomes)
    "succeeded": (calls("s"), [], {}),
    "failed": (calls("s"), [], {"s": FAIL}),
    "skipped": ([condition("c", "false"), call("s")], [gate("c", "true", "s")], {}),
    "expired": ([call("s", guard="false")], [], {}),
    "upstream_failed": (calls("f", "s"), [after("f", "s")], {"f": FAIL}),
}


@pytest.mark.parametrize("state", SOURCES)
@pytest.mark.parametrize("kind", TABLE)
def test_an_edge_settles_by_the_table(kind, state):
    """What the target of a single edge ends as follows from the edge's kind and its source's end."""
    nodes, edges, outcomes = SOURCES[state]
    edge = Edge(source="s", target="t", kind=kind, when="true" if kind == "arc" else None)
    done = run(plan([*nodes, call("t")], [*edges, edge]), outcomes)
    assert done.states["s"] == state
    assert done.states["t"] == TABLE[kind][state]


@pytest.mark.parametrize("kind", TABLE)
def test_an_edge_of_a_cancelled_node_settles_by_the_table(kind):
    """A leaf that was cancelled on its own breaks what comes after it and triggers no callback."""
    from interpreter.walker.records import Settled

    from .walking import Run

    edge = Edge(source="s", target="t", kind=kind, when="true" if kind == "arc" else None)
    done = Run(plan(calls("s", "t"), [edge]))
    done.feed(Settled("s", "cancelled"))
    assert done.finish().states["t"] == TABLE[kind]["cancelled"]
    assert done.outcome == "failed"


@pytest.mark.parametrize(
    ("state", "end"),
    [("chosen", "succeeded"), ("other", "skipped"), ("failed", "upstream_failed"), ("skipped", "skipped")],
)
def test_a_gate_settles_by_the_table(state, end):
    """A chosen gate is live; one not chosen or of a skipped router is dead; of a failed one, poisoned."""
    on_value = {"chosen": "{{'a'}}", "other": "{{'b'}}", "failed": "{{nobody}}", "skipped": "{{'a'}}"}[state]
    router = switch_of(on_value)
    nodes = [condition("c", "false"), router, call("t")]
    edges = [gate("r", "a", "t"), gate("c", "true" if state == "skipped" else "false", "r")]
    assert run(plan(nodes, edges)).states["t"] == end


def switch_of(on_value: str) -> Choose:
    from .walking import switch

    return switch("r", on_value, ["a", "b"])


def test_an_arc_nobody_selected_is_dead():
    """After success and after failure, an arc that was not selected leads nowhere."""
    for outcome in (1, FAIL):
        done = run(plan(calls("s", "t"), [arc("s", "t", "false")], fails_when="unhandled"), {"s": outcome})
        assert done.states["t"] == "skipped"
        assert done.outcome == ("succeeded" if outcome == 1 else "failed")


def test_exited_nodes_leave_dead_edges():
    """The table gives every kind of edge of an exited node as dead."""
    assert {kind: table["x"] for kind, table in EDGE_TABLE.items()} == dict.fromkeys(EDGE_TABLE, "d")


@pytest.mark.parametrize(
    ("rule", "ends"),
    [
        # sources: both succeed, one fails, both fail, one skipped and one succeeds, both skipped
        ("all_success", ["ran", "upstream_failed", "upstream_failed", "ran", "skipped"]),
        ("all_done", ["ran", "ran", "ran", "ran", "ran"]),
        ("one_success", ["ran", "ran", "upstream_failed", "ran", "skipped"]),
        ("one_done", ["ran", "ran", "ran", "ran", "skipped"]),
        ("none_failed", ["ran", "upstream_failed", "upstream_failed", "ran", "ran"]),
    ],
)
def test_trigger_rules_decide_what_dependencies_mean(rule, ends):
    """Each trigger rule over each pair of ends of two dependencies."""
    pairs = [("s", "s"), ("s", "f"), ("f", "f"), ("s", "k"), ("k", "k")]
    for (a, b), expected in zip(pairs, ends, strict=True):
        done = run(*_two_sources(a, b, rule))
        actual = done.states["t"]
        assert ("ran" if actual == "succeeded" else actual) == expected, (rule, a, b)


def _two_sources(a: str, b: str, rule: str):
    nodes = [condition("c", "false"), call("a"), call("b"), call("t", trigger=rule)]
    edges = [after("a", "t"), after("b", "t")]
    edges += [gate("c", "true", name) for name, state in (("a", a), ("b", b)) if state == "k"]
    outcomes = {name: FAIL for name, state in (("a", a), ("b", b)) if state == "f"}
    return plan(nodes, edges), outcomes


def test_join_first_starts_at_the_first_token_and_notes_later_ones():
    """A `join: first` node runs once, at the first token; a later token is noted as late."""
    made = plan([*calls("a", "b"), call("t", join="first")], [arc("a", "t"), arc("b", "t")])
    done = run(made)
    assert done.order == ["a", "b", "t"]
    late = [c for c in done.commands if c.tag == "note" and c.what == "late"]
    assert [(c.path, c.data) for c in late] == [("t", "b")]


def test_join_each_runs_once_per_token_and_its_follower_once():
    """A `join: each` node has an instance per token, named by the edge; what it leads to runs once."""
    made = plan(
        [*calls("a", "b"), call("t", join="each", args="{{ x }}"), call("u")],
        [arc("a", "t", args={"x": 1}), arc("b", "t", args={"x": 2}), arc("t", "u")],
    )
    from .random_plans import Toy

    class ByToken(Toy):
        def resolve(self, scope, name):
            return scope.args.get(name, super().resolve(scope, name))

    done = run(made, evaluator=ByToken())
    assert done.order == ["a", "b", "t[0]/t", "t[1]/t", "u"]
    assert [c.args for c in done.commands if c.tag == "run_call" and "/t" in c.path] == [1, 2]


def test_a_node_that_is_no_entry_and_has_no_edges_is_skipped():
    """Where entries are given, only they get the first tokens."""
    assert run(plan(calls("a", "b"), entries=("a",))).states == {"a": "succeeded", "b": "skipped"}


# The oracle: the firing rule in its plainest form, one node after another in topological order.


@st.composite
def dags(draw) -> tuple[Plan, dict[str, str]]:
    size = draw(st.integers(1, 8))
    routers = [i for i in range(size) if draw(st.integers(0, 4)) == 0]
    labels = {i: draw(st.sampled_from("ab")) for i in routers}
    nodes = [
        Choose(id=f"n{i}", default=labels[i], cases=(), many=False) if i in labels else call(f"n{i}")
        for i in range(size)
    ]
    edges = []
    for j in range(size):
        for i in range(j):
            if draw(st.integers(0, 2)) == 0:
                edges.append(_dag_edge(draw, i, j, labels))
    failing = {f"n{i}": FAIL for i in range(size) if i not in labels and draw(st.integers(0, 3)) == 0}
    return plan(nodes, edges), failing


def _dag_edge(draw, i: int, j: int, labels: dict[int, str]) -> Edge:
    if i in labels and draw(st.booleans()):
        return gate(f"n{i}", labels[i] if draw(st.booleans()) else labels[i].upper(), f"n{j}")
    kind = draw(st.sampled_from(["after", "after", "success", "failure"]))
    return after(f"n{i}", f"n{j}") if kind == "after" else on(kind, f"n{i}", f"n{j}")


def oracle(made: Plan, failing: dict[str, object]) -> dict[str, str]:
    graph = made.graphs["main"]
    states: dict[str, str] = {}
    for node in graph.nodes:
        incoming = [edge for edge in graph.edges if edge.target == node.id]
        state = _by_rule(incoming, states, graph)
        if state == "fire":
            state = "failed" if node.id in failing else "succeeded"
        states[node.id] = state
    return states


def _by_rule(incoming, states, graph) -> str:
    ends = [(edge.kind, _edge_end(edge, states[edge.source], graph)) for edge in incoming]
    gates = [end for kind, end in ends if kind == "gate"]
    deps = [end for kind, end in ends if kind != "gate"]
    if gates and "live" not in gates:
        return "upstream_failed" if "poisoned" in gates else "skipped"
    if "poisoned" in deps:
        return "upstream_failed"
    return "fire" if gates or not deps or "live" in deps else "skipped"


def _edge_end(edge, source: str, graph) -> str:
    if edge.kind == "gate" and source == "succeeded":
        router = next(node for node in graph.nodes if node.id == edge.source)
        return "live" if router.default == edge.label else "dead"
    if edge.kind == "on_success":
        return "live" if source == "succeeded" else "dead"
    if edge.kind == "on_failure":
        return "live" if source == "failed" else "dead"
    return {"succeeded": "live", "skipped": "dead"}.get(source, "poisoned")


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(dags())
def test_the_walker_agrees_with_the_plain_rule(case):
    """On random graphs of dependencies, gates and callbacks, the walker ends where the plain rule does."""
    made, failing = case
    assert run(made, failing).states == oracle(made, failing)
