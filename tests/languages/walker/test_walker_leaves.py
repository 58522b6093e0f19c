"""Nodes without frames: what each asks for, and what its answer does."""

from __future__ import annotations

import pytest

from interpreter.errors import WalkError
from interpreter.expressions import Templates
from interpreter.plan import AwaitEvent, Case, Choose, Compute, Emit, Pass, RetryRule, Return, Wait
from interpreter.walker import Program, Walk, apply, restore, snapshot
from interpreter.walker.records import CancelAsked, Fired, Settled, Started

from .walking import FAIL, Run, after, call, chain, condition, gate, plan, run


def commands_of(node, **inputs):
    return [c for c in Run(plan([node]), inputs=inputs).commands if c.tag != "note"]


def test_a_call_asks_with_its_arguments_rendered():
    """A call carries rendered args, and config, retry and timeout as they stand."""
    rule = RetryRule(attempts=3, delay=1)
    node = call(
        "a",
        target="pkg.fn",
        args={"x": "{{n}}", "y": "n={{n}}"},
        config={"raw": "{{n}}"},
        retry=(rule,),
        timeout=9,
    )
    (asked,) = commands_of(node, n=5)
    assert (asked.path, asked.target, asked.args) == ("a", "pkg.fn", {"x": 5, "y": "n=5"})
    assert (asked.config, asked.retry, asked.timeout) == ({"raw": "{{n}}"}, (rule,), 9)
    assert asked.to_json()["retry"] == [{"attempts": 3, "delay": 1.0}]


def test_a_call_whose_arguments_do_not_render_fails_without_running():
    """An undefined name fails the call before anything is asked for."""
    done = run(plan([call("a", args="{{nobody}}")]))
    assert done.order == []
    assert done.settled.error["type"] == "UndefinedName"


def test_values_are_bound_whole_or_in_parts():
    """`bind` names take the value; with `unpack`, one part each, and a wrong count fails the node."""
    made = plan([call("a", bind=("x", "y"), unpack=True)], result=("y",))
    assert run(made, {"a": [1, 2]}).settled.value == 2
    assert run(made, {"a": [1]}).settled.error["type"] == "ValueError"
    assert run(plan([call("a", bind=("x", "y"))], result=("y",)), {"a": [1]}).settled.value == [1]


def test_writes_of_a_record_become_names():
    """What a performer wrote besides its value is visible afterwards."""
    run_ = Run(plan([call("a"), call("b", args="{{ total }}")], chain("a", "b")))
    (asked,) = [c for c in run_.feed(Settled("a", writes={"total": 3})) if c.tag == "run_call"]
    assert asked.args == 3


def test_a_compute_is_inline_unless_it_looks_outside():
    """A plain compute needs no record; a recorded one is asked for and never evaluated again."""
    inline = run(plan([Compute(id="a", value="{{ 1 + 1 }}", bind=("x",))], result=("x",)))
    assert (inline.settled.value, len(inline.records)) == (2, 1)
    recorded = Run(plan([Compute(id="a", value="{{ 1 + 1 }}", bind=("x",), recorded=True)], result=("x",)))
    recorded.feed(Settled("a", value=99))
    assert recorded.settled.value == 99


@pytest.mark.parametrize(("value", "label"), [(True, "true"), (None, "null"), (3, "3"), ("x", "other")])
def test_a_switch_compares_texts(value, label):
    """The value is compared as text; booleans and null in either spelling."""
    cases = tuple(Case(label=c, equals=c) for c in ("true", "null", "3"))
    made = plan([Choose(id="s", on="{{v}}", cases=cases, default="other", bind=("chosen",))], result=("chosen",))
    assert run(made, inputs={"v": value}).settled.value == label


def test_a_choose_may_take_many():
    """With `many`, every case that holds is chosen."""
    cases = (Case(label="a", when="true"), Case(label="b", when="false"), Case(label="c", when="true"))
    nodes = [Choose(id="s", cases=cases, many=True), *[call(n) for n in "abc"]]
    assert run(plan(nodes, [gate("s", n, n) for n in "abc"])).order == ["a", "c"]


def test_waits_events_and_emits():
    """Waits set timers, event nodes render their names, and each ends by its record."""
    (timer,) = commands_of(Wait(id="w", seconds="{{n}}"), n=-5)
    assert (timer.timer, timer.seconds, timer.until) == ("wait", 0.0, None)
    (until,) = commands_of(Wait(id="w", until="2030-01-01T00:00:00Z"))
    assert until.until == "2030-01-01T00:00:00Z"
    (event,) = commands_of(AwaitEvent(id="e", event="done_{{n}}", timeout=60), n=1)
    assert (event.event, event.timeout) == ("done_1", 60)
    (emitted,) = commands_of(Emit(id="e", event="x", payload={"n": "{{n}}"}), n=1)
    assert emitted.payload == {"n": 1}
    assert run(plan([Wait(id="w", seconds="soon")])).settled.error["type"] == "TypeError"


def test_an_event_binds_its_payload_and_a_timeout_fails():
    """The payload is the value of the node; a timeout is a failure like any other."""
    made = plan([AwaitEvent(id="e", event="x", bind=("p",))], result=("p",))
    assert run(made, {"e": {"k": 1}}).settled.value == {"k": 1}
    assert run(made, {"e": FAIL}).outcome == "failed"


def test_a_return_at_the_root_ends_the_run_with_its_value():
    """What has not started by then has exited."""
    done = run(plan([Return(id="r", value="{{ 7 }}"), Pass(id="p")], [after("r", "p")]))
    assert (done.outcome, done.settled.value) == ("succeeded", 7)
    assert done.states == {"r": "exited", "p": "exited"}


def test_a_record_before_the_start_and_a_second_start_are_refused():
    """A walk begins with one start record; a snapshot belongs to one plan."""
    made = plan([call("a")])
    walk = Walk(Program(made), Templates())
    with pytest.raises(WalkError, match="begins"):
        apply(walk, CancelAsked())
    apply(walk, Started())
    with pytest.raises(WalkError, match="already"):
        apply(walk, Started())
    with pytest.raises(WalkError, match="cannot go on"):
        restore(Program(plan([call("b")])), Templates(), snapshot(walk))


def test_fail_fast_stops_the_run_at_the_first_failure():
    """With fail-fast the first unhandled failure cancels what else runs."""
    run_ = Run(plan([call("a"), call("b"), call("c")], [after("b", "c")], fail_fast=True), {"a": FAIL})
    run_.finish()
    assert run_.states == {"a": "failed", "c": "cancelled", "b": "cancelled"}
    assert (run_.outcome, run_.settled.error["type"]) == ("failed", "Boom")


def test_now_is_what_the_last_record_said():
    """The time an expression sees comes from records, so that a replay sees the same."""
    seen = []

    class Clock(Templates):
        def value(self, expr, scope):
            seen.append(scope.now)
            return super().value(expr, scope)

    run_ = Run(
        plan([call("a", args=1), Wait(id="w", seconds=1), call("b", args=1)], chain("a", "w", "b")),
        evaluator=Clock(),
    )
    run_.feed(Settled("a", now=10.0))
    run_.feed(Fired("w", now=20.0))
    assert seen == [0.0, 10.0, 20.0]


def test_conditions_keep_what_they_saw():
    """A decision is noted with the values it read."""
    done = run(plan([condition("c", "{{data.score}} > 0.8")]), inputs={"data": {"score": 0.9}})
    (note,) = [c for c in done.commands if c.tag == "note"]
    assert note.data == {"chose": ["true"], "saw": {"data.score": 0.9}}
