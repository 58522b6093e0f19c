"""Nodes that own frames: loops, forks, attempts, functions, blocks; their names, retries and timeouts."""

from __future__ import annotations

import json

import pytest

from interpreter.expressions import Templates
from interpreter.plan import (
    Attempt,
    Block,
    Branch,
    Compute,
    Each,
    Fork,
    Function,
    Handler,
    Repeat,
    RetryRule,
    Return,
    Wait,
)
from interpreter.walker import snapshot
from interpreter.walker.records import CancelAsked, Fired, Opened, Settled

from .walking import FAIL, Run, after, call, calls, chain, condition, gate, graph, plan, run

ITEM = {"b": graph([call("t", args="{{item}}", bind=("t",))], result=("t",))}


def test_a_sequential_loop_runs_item_after_item_and_collects():
    """Items run in order, one at a time, and their results are a list in that order."""
    made = plan([Each(id="l", items="{{xs}}", body="b", bind=("out",))], [], ITEM, result=("out",))
    run_ = Run(made, {"l[0]/t": "A", "l[1]/t": "B"}, inputs={"xs": ["a", "b"]})
    assert run_.order == ["l[0]/t"]
    assert run_.finish().order == ["l[0]/t", "l[1]/t"]
    assert run_.settled.value == ["A", "B"]


def test_an_empty_loop_succeeds_at_once():
    """A loop over nothing is done, with an empty list."""
    made = plan([Each(id="l", items=[], body="b", bind=("out",))], [], ITEM, result=("out",))
    assert run(made).settled.value == []


def test_a_parallel_loop_keeps_its_cap_exactly():
    """Never more items than the cap, and never fewer while items are left."""
    made = plan([Each(id="l", items=list(range(7)), body="b", mode="parallel", cap=3)], [], ITEM)
    run_ = Run(made)
    while run_.bag:
        assert len(run_.bag) == min(3, 7 - (len(run_.order) - len(run_.bag)))
        run_.step()
    assert len(run_.order) == 7


def test_a_sequential_loop_stops_at_a_failed_item_and_a_parallel_one_drains():
    """The error of the lowest item stands; a parallel loop runs all its items first."""
    for mode, ran in (("sequential", 2), ("parallel", 3)):
        done = run(plan([Each(id="l", items=[1, 2, 3], body="b", mode=mode)], [], ITEM), {"l[1]/t": FAIL})
        assert (len(done.order), done.states["l"]) == (ran, "failed")
        assert done.settled.error["node"] == "l[1]/t"


def test_until_includes_the_item_that_satisfies_it():
    """A loop with `until` ends after the item that makes it true, and keeps its result."""
    each = Each(id="l", items=[1, 2, 3], body="b", until="{{ t == 'stop' }}", bind=("out",))
    done = run(plan([each], [], ITEM, result=("out",)), {"l[0]/t": "go", "l[1]/t": "stop"})
    assert done.settled.value == ["go", "stop"]


def test_items_unpack_into_several_names():
    """Several item names take the parts of each item; a wrong count fails that item."""
    body = {"b": graph([call("t", args=["{{i}}", "{{x}}"])])}
    each = Each(id="l", items=[[0, "a"], [1, "b"]], item=("i", "x"), body="b")
    assert [c.args for c in run(plan([each], [], body)).commands if c.tag == "run_call"] == [
        [0, "a"],
        [1, "b"],
    ]
    bad = run(plan([each.model_copy(update={"items": [[1, 2, 3]]})], [], body))
    assert bad.settled.error["type"] == "ValueError"


def test_a_repeat_writes_to_the_enclosing_scope():
    """A while loop tests before each iteration, over names its body wrote."""
    body = {
        "b": graph(
            [Compute(id="inc", value="{{ n + 1 }}", bind=("n",)), *calls("t")],
            chain("inc", "t"),
            writes="through",
        )
    }
    made = plan([Repeat(id="w", when="{{n}} < 3", body="b"), call("z", args="{{n}}")], [after("w", "z")], body)
    done = run(made, inputs={"n": 1})
    assert done.order == ["w[0]/t", "w[1]/t", "z"]
    assert next(c for c in done.commands if getattr(c, "path", "") == "z").args == 3


def test_a_repeat_has_a_limit():
    """A loop that never ends fails with an iteration limit."""
    done = run(plan([Repeat(id="w", when="true", body="b", limit=3)], [], {"b": graph(calls("t"))}))
    assert (len(done.order), done.settled.error["type"]) == (3, "IterationLimit")


def test_break_and_continue_leave_a_loop_and_an_iteration():
    """`break` ends the loop as succeeded; `continue` ends one iteration; the rest has exited."""
    nodes = [condition("c", "{{ item == 2 }}"), Return(id="x", exit="break"), call("t")]
    edges = [gate("c", "true", "x"), gate("c", "false", "t")]
    made = plan([Each(id="l", items=[1, 2, 3], body="b"), call("z")], [after("l", "z")], {"b": graph(nodes, edges)})
    assert run(made).order == ["l[0]/t", "z"]
    nodes[1] = Return(id="x", exit="continue")
    made = plan([Each(id="l", items=[1, 2, 3], body="b"), call("z")], [after("l", "z")], {"b": graph(nodes, edges)})
    done = run(made)
    assert done.order == ["l[0]/t", "l[2]/t", "z"]
    assert done.states["l[1]/t"] == "exited"


def test_branches_are_isolated_and_their_patches_merged():
    """A branch sees the names as of the fork and its own; the others see its writes only after it ended."""
    branch = lambda value: graph(  # noqa: E731
        [Compute(id="set", value=value, bind=("x",)), call("t", args="{{x}}"), call("u", args="{{x}}")],
        chain("set", "t", "u"),
        writes=("x",),
        result=("x",),
    )
    bodies = {"a": branch("A"), "b": branch("B")}
    fork = Fork(id="f", branches=(Branch(name="a", body="a"), Branch(name="b", body="b")), bind=("out",))
    made = plan([fork, call("z", args=["{{x}}", "{{out}}"])], [after("f", "z")], bodies)
    done = run(made, inputs={"x": "old"})
    args = {c.path: c.args for c in done.commands if c.tag == "run_call"}
    assert args == {"f#0/t": "A", "f#1/t": "B", "f#0/u": "A", "f#1/u": "B", "z": ["B", ["A", "B"]]}


def test_a_fork_raises_the_lowest_failure_after_all_have_settled():
    """All branches run to their end; the failure of the first branch in plan order stands."""
    bodies = {name: graph(calls(name)) for name in "abc"}
    fork = Fork(id="f", branches=tuple(Branch(name=n, body=n) for n in "abc"))
    done = run(plan([fork], [], bodies), {"c": FAIL, "b": FAIL})
    assert done.order == ["f#0/a", "f#1/b", "f#2/c"]
    assert done.settled.error["node"] == "f#1/b"
    kept = fork.model_copy(update={"on_error": "collect", "bind": ("out",)})
    values = run(plan([kept], [], bodies, result=("out",)), {"b": FAIL, "a": 1, "c": 3}).settled.value
    assert [values[0], values[1]["type"], values[2]] == [None, "Boom", None]


def test_fail_fast_cancels_the_other_branches():
    """The first failure cancels what else runs under the fork, which fails when all is final."""
    bodies = {name: graph(calls(name, f"{name}2"), chain(name, f"{name}2")) for name in "ab"}
    fork = Fork(id="f", branches=tuple(Branch(name=n, body=n) for n in "ab"), fail_fast=True)
    run_ = Run(plan([fork, call("z")], [after("f", "z")], bodies), {"a": FAIL})
    assert [c.path for c in run_.step() if c.tag == "cancel"] == ["f#1/b"]
    run_.finish()
    assert run_.states["f#1/b"] == "cancelled"
    assert run_.states["f#1/b2"] == "cancelled"
    assert (run_.states["f"], run_.states["z"]) == ("failed", "upstream_failed")


TRY = {
    "body": graph([call("risky", bind=("r",)), call("more")], chain("risky", "more"), writes="through"),
    "net": graph([call("fallback", args="{{ e.type }}", bind=("r",))], writes="through"),
    "any": graph(calls("default"), writes="through"),
}
ATTEMPT = Attempt(
    id="try",
    body="body",
    handlers=(Handler(body="net", errors=("NetworkError",), bind="e"), Handler(body="any")),
)


class NetworkError(Exception):
    pass


@pytest.mark.parametrize(
    ("outcome", "order"),
    [
        (1, ["try~1/risky", "try~1/more", "z"]),
        (NetworkError(), ["try~1/risky", "try!0/fallback", "z"]),
        (FAIL, ["try~1/risky", "try!1/default", "z"]),
    ],
)
def test_an_attempt_runs_the_first_handler_that_matches(outcome, order):
    """A body that fails is handled by the first handler for its error; the run goes on as if all was well."""
    made = plan([ATTEMPT, call("z")], [after("try", "z")], TRY, fails_when="raised")
    done = run(made, {"risky": outcome})
    assert done.order == order
    assert done.outcome == "succeeded"


def test_an_error_nobody_handles_goes_on_up_and_one_in_a_handler_too():
    """An unmatched error and an error in a handler fail the attempt."""
    only = ATTEMPT.model_copy(update={"handlers": ATTEMPT.handlers[:1]})
    bodies = {name: TRY[name] for name in ("body", "net")}
    assert run(plan([only], [], bodies), {"risky": FAIL}).settled.error["node"] == "try~1/risky"
    twice = run(plan([ATTEMPT], [], TRY), {"risky": FAIL, "default": FAIL})
    assert twice.settled.error["node"] == "try!1/default"


def test_a_function_sees_its_arguments_only_and_returns_a_value():
    """A function's frame has its arguments; a return in the middle ends it; its value is bound."""
    body = graph(
        [
            call("a", args="{{p}}"),
            condition("c", "{{p}} > 0"),
            Return(id="r", value="{{ p * 2 }}"),
            call("never"),
        ],
        [after("a", "c"), gate("c", "true", "r"), after("c", "never"), after("r", "never")],
    )
    made = plan([Function(id="f", body="fn", args={"p": "{{x}}"}, bind=("y",))], [], {"fn": body}, result=("y",))
    done = run(made, inputs={"x": 21})
    assert done.order == ["f()/a"]
    assert done.settled.value == 42
    assert done.states["f()/never"] == "exited"
    blind = graph([call("a", args="{{x}}")])
    lost = run(plan([Function(id="f", body="fn")], [], {"fn": blind}), inputs={"x": 1})
    assert lost.settled.error["type"] == "UndefinedName"


def test_a_return_passes_through_loops_and_attempts():
    """A return inside loops leaves them all; their nodes have exited."""
    bodies = {
        "fn": graph([Each(id="l", items=[1, 2], body="it"), call("never")], chain("l", "never")),
        "it": graph([Attempt(id="t", body="inner"), call("nor")], chain("t", "nor")),
        "inner": graph([Return(id="r", value="{{item}}")]),
    }
    done = run(plan([Function(id="f", body="fn", bind=("y",))], [], bodies, result=("y",)))
    assert done.settled.value == 1
    assert done.named("exited") == {"f()/l", "f()/never", "f()/l[0]/t", "f()/l[0]/nor", "f()/l[0]/t~1/r"}


def test_terminate_ends_the_run_and_cancels_what_runs():
    """Terminate records its outcome, cancels what runs, and settles when all of it is final."""
    stop = Return(id="stop", exit="terminate", outcome="failed", value="enough")
    made = plan([*calls("slow", "quick"), stop, call("z")], [after("quick", "stop"), after("slow", "z")])
    run_ = Run(made)
    commands = run_.feed(Settled("quick"))
    assert [c.path for c in commands if c.tag == "cancel"] == ["slow"]
    assert run_.walk.settled is None
    run_.finish()
    assert (run_.outcome, run_.settled.error["type"]) == ("failed", "Terminated")
    assert run_.states == {"quick": "succeeded", "stop": "exited", "z": "exited", "slow": "cancelled"}


def test_a_block_retries_as_a_whole_after_its_delay():
    """A composite with a retry policy runs again in a frame named by its attempt, after a durable wait."""
    rule = RetryRule(attempts=3, delay=10, backoff="exponential")
    block = Block(id="b", body="g", retry=(rule,))
    made = plan([block], [], {"g": graph(calls("t", "u"), chain("t", "u"))})
    done = run(made, {"b~1/t": FAIL, "b~2/u": FAIL})
    assert done.order == ["b~1/t", "b~2/t", "b~2/u", "b~3/t", "b~3/u"]
    assert [c.seconds for c in done.commands if c.tag == "set_timer"] == [10, 20]
    assert done.outcome == "succeeded"
    assert run(made, {"t": FAIL}).outcome == "failed"


def test_a_retried_loop_names_its_attempts():
    """The items of a retried loop run again under the name of the attempt."""
    each = Each(id="l", items=[1, 2], body="b", retry=(RetryRule(attempts=2),))
    done = run(plan([each], [], ITEM), {"l~1[1]/t": FAIL})
    assert done.order == ["l~1[0]/t", "l~1[1]/t", "l~2[0]/t", "l~2[1]/t"]


def test_a_timeout_of_a_composite_cancels_what_runs_in_it():
    """When its timer fires, what runs is cancelled, nothing new starts, and the composite fails when all is
    final; a composite that ended in time cancels its timer."""
    made = plan(
        [Block(id="b", body="g", timeout=5), call("z")],
        [after("b", "z")],
        {"g": graph(calls("t", "u"), chain("t", "u"))},
    )
    run_ = Run(made)
    commands = run_._apply(Fired("b", "timeout"))
    assert [c.tag for c in commands if c.tag != "note"] == ["cancel"]
    run_.finish()
    assert run_.states == {"b~1/u": "cancelled", "b~1/t": "cancelled", "b": "failed", "z": "upstream_failed"}
    assert run_.settled.error["type"] == "Timeout"
    in_time = run(made)
    assert [(c.path, c.timer) for c in in_time.commands if c.tag == "cancel_timer"] == [("b", "timeout")]


SPAWNED = Each(id="l", items=[1, 2, 3], body="b", mode="parallel", spawn="always", cap=2, bind=("out",))


def test_spawned_items_come_back_in_units_and_their_results_in_order():
    """The driver is asked, spawns units of a chunk of items, and the loop's value is as if run in place."""
    made = plan([SPAWNED], [], ITEM, result=("out",))
    run_ = Run(made, {f"l[{k}]/t": k for k in range(3)}, spawn=("spawned", 2))
    (asked,) = run_.commands[1:]
    assert (asked.tag, asked.count, asked.cap, asked.may_wait) == ("open_fork", 3, 2, False)
    (spawned,) = run_.step()
    assert [unit.path for unit in spawned.units] == ["l[0:2]", "l[2]"]
    assert spawned.units[0].items == [1, 2]
    assert run_.finish().settled.value == [0, 1, 2]


def test_spawned_units_are_cancelled_with_their_loop():
    """A timeout cancels the units that have not settled; the loop fails when the last of them is final."""
    run_ = Run(plan([SPAWNED.model_copy(update={"timeout": 5})], [], ITEM), spawn=("spawned", 1))
    run_.step()
    run_.feed(
        Settled("l[0]", value={"slots": [["s", 1, None]], "handled": [], "parked": [], "strays": [], "voids": []})
    )
    assert [c.path for c in run_._apply(Fired("l", "timeout")) if c.tag == "cancel"] == ["l[1]", "l[2]"]
    run_.feed(Settled("l[2]", "cancelled"))
    assert run_.walk.settled is None
    run_.feed(Settled("l[1]", "cancelled"))
    assert run_.settled.error["type"] == "Timeout"


def test_an_item_knows_its_place_in_the_loop_wherever_it_runs():
    """Index and length of the loop are the same in place and in a spawned unit."""

    class Places(Templates):
        def resolve(self, scope, name):
            return scope.loop if name == "loop" else super().resolve(scope, name)

    body = {"b": graph([call("t", args="{{ loop }}", bind=("t",))], result=("t",))}
    for spawn in (("in_place", 1), ("spawned", 1), ("spawned", 2)):
        seen = {}
        run_ = Run(plan([SPAWNED], [], body), evaluator=Places(), spawn=spawn)
        run_.commands = Watched(seen)
        run_.finish()
        assert seen == {f"l[{k}]/t": {"index": k, "length": 3} for k in range(3)}


class Watched(list):
    """A list of commands that remembers the arguments of calls, those of units included."""

    def __init__(self, seen):
        super().__init__()
        self.seen = seen

    def extend(self, commands):
        self.seen.update({c.path: c.args for c in commands if c.tag == "run_call"})
        super().extend(commands)


def test_a_lost_unit_fails_its_items():
    """A unit that failed as a task fails every item it held."""
    run_ = Run(plan([SPAWNED], [], ITEM), spawn=("spawned", 3))
    run_.step()
    run_.feed(Settled("l[0:3]", "failed", error={"type": "Lost", "message": "worker lost"}))
    assert (run_.outcome, run_.settled.error["type"]) == ("failed", "Lost")


def test_an_answer_that_comes_after_a_cancel_opens_nothing():
    """A fork that was still asking how to run when it was cancelled ends with the answer."""
    run_ = Run(plan([SPAWNED], [], ITEM), spawn=("spawned", 3))
    assert run_._apply(CancelAsked()) == []
    run_.finish()
    assert (run_.outcome, run_.order) == ("cancelled", [])


def test_a_timeout_of_the_run_fails_it():
    """The plan's own timeout stops everything."""
    made = plan([Wait(id="w", seconds=99), call("z")], chain("w", "z"), timeout=10)
    run_ = Run(made)
    run_._apply(Fired("", "timeout"))
    assert (run_.outcome, run_.settled.error["type"]) == ("failed", "Timeout")
    assert run_.states == {"w": "cancelled", "z": "cancelled"}


def test_a_late_timer_changes_nothing():
    """A record for something that is over is ignored."""
    run_ = Run(plan(calls("a", "b"), chain("a", "b")))
    before = snapshot(run_.walk)
    for record in (Fired("a", "backoff"), Fired("gone/x", "timeout"), Settled("nobody"), Opened("a")):
        assert run_._apply(record) == []
    assert snapshot(run_.walk) == before


def test_a_long_loop_leaves_nothing_behind():
    """The state of a loop does not grow with its iterations."""
    made = plan([Each(id="l", items=list(range(300)), body="b", collect="none"), call("z")], chain("l", "z"), ITEM)
    run_ = Run(made)
    sizes = []
    while run_.bag:
        sizes.append(len(json.dumps(snapshot(run_.walk))))
        run_.step()
    assert max(sizes[5:-1]) - min(sizes[5:-1]) < 60
