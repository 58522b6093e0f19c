"""NoETL's ways: tokens on arcs, guards that park, regions that go round, the final step."""

from __future__ import annotations

from interpreter.plan import Each, Region
from interpreter.walker import why
from interpreter.walker.records import CancelAsked

from .random_plans import Toy
from .walking import FAIL, Run, arc, call, calls, graph, plan, run


class Tokens(Toy):
    """Args of tokens are names; `ok` and `done` ask for states, as playbooks do."""

    def resolve(self, scope, name):
        if name in scope.args:
            return scope.args[name]
        if name == "outcome" and scope.outcome is not None:
            return scope.outcome
        return super().resolve(scope, name)


def test_a_guarded_arc_takes_a_failure_and_an_open_one_does_not():
    """After a failure only guarded arcs are looked at; one that fired makes the failure handled."""
    edges = [arc("s", "a"), arc("s", "h", "{{ outcome.status == 'failed' }}")]
    made = plan([call("s", route="inclusive"), *calls("a", "h")], edges, entries=("s",), fails_when="unhandled")
    failed = run(made, {"s": FAIL}, evaluator=Tokens())
    assert failed.states == {"s": "failed", "a": "skipped", "h": "succeeded"}
    assert failed.outcome == "succeeded"
    assert failed.settled.handled == ["s"]
    passed = run(made, evaluator=Tokens())
    assert passed.states == {"s": "succeeded", "a": "succeeded", "h": "skipped"}


def test_an_unhandled_failure_fails_the_run_and_lets_the_others_drain():
    """A failure no arc took stops its branch; the other branch runs to its end."""
    nodes = [call("s", route="inclusive"), *calls("a", "b", "b2")]
    made = plan(nodes, [arc("s", "a"), arc("s", "b"), arc("b", "b2")], entries=("s",), fails_when="unhandled")
    done = run(made, {"a": FAIL})
    assert done.states == {"s": "succeeded", "a": "failed", "b": "succeeded", "b2": "succeeded"}
    assert done.outcome == "failed"


def test_route_modes():
    """Exclusive takes the first match, inclusive all; the third takes a guarded match or else all others."""
    edges = [arc("s", "a", "{{ x }}"), arc("s", "b"), arc("s", "c")]
    expected = {
        ("exclusive", True): {"a"},
        ("exclusive", False): {"b"},
        ("inclusive", True): {"a", "b", "c"},
        ("inclusive", False): {"b", "c"},
        ("guarded_else_all", True): {"a"},
        ("guarded_else_all", False): {"b", "c"},
    }
    for (route, x), ran in expected.items():
        made = plan([call("s", route=route), *calls("a", "b", "c")], edges, entries=("s",))
        assert run(made, inputs={"x": x}).named("succeeded") == {"s"} | ran, (route, x)


def test_a_parked_step_runs_once_when_its_guard_holds():
    """A step whose guard is false is parked and runs when a later record makes it true, with all its args."""
    nodes = [call("start", route="inclusive"), *calls("a", "b")]
    nodes += [call("join", join="first", guard={"done": "b"}, args=["{{ x }}", "{{ y }}"])]
    edges = [arc("start", "a"), arc("start", "b")]
    edges += [arc("a", "join", args={"x": 1, "y": 1}), arc("b", "join", args={"y": 2})]
    made = plan(nodes, edges, entries=("start",))
    done = run(made, evaluator=Tokens())
    assert done.order == ["start", "a", "b", "join"]
    joined = next(c for c in done.commands if c.tag == "run_call" and c.path == "join")
    assert joined.args == [1, 2]


def test_what_is_parked_at_the_end_expires_and_is_reported():
    """A guard that never holds expires when nothing else can run; the run completes and lists it."""
    made = plan([call("a"), call("p", guard="false"), call("q")], [arc("a", "p"), arc("p", "q")], entries=("a",))
    done = run(made)
    assert done.states == {"a": "succeeded", "p": "expired", "q": "skipped"}
    assert (done.outcome, done.settled.parked) == ("succeeded", ["p"])
    strict = run(made.model_copy(update={"parked_fails": True}))
    assert (strict.outcome, strict.settled.error["type"]) == ("failed", "Parked")


def test_a_join_held_up_only_by_a_parked_step_is_released():
    """A join that holds a token and waits only for what is behind parked steps runs before they expire."""
    nodes = [call("s", route="inclusive"), call("p", guard={"done": "j"}), *calls("p2", "b", "j")]
    edges = [arc("s", "p"), arc("s", "b"), arc("p", "p2"), arc("p2", "j"), arc("b", "j")]
    done = run(plan(nodes, edges, entries=("s",)), evaluator=Toy())
    assert done.order == ["s", "b", "j", "p", "p2"]
    assert why(done.walk, "j").reason.startswith("it held a token")


def test_guard_modes_skip_and_drop():
    """A false guard that skips ends the step; one that drops forgets the token and waits for another."""
    nodes = [
        call("s", route="inclusive"),
        *calls("a", "b"),
        call("t", join="first", guard={"done": "b"}, guard_mode="drop"),
    ]
    edges = [arc("s", "a"), arc("s", "b"), arc("a", "t"), arc("b", "t")]
    assert run(plan(nodes, edges, entries=("s",)), evaluator=Toy()).order == ["s", "a", "b", "t"]
    skipping = [*nodes[:3], call("t", join="first", guard={"done": "b"}, guard_mode="skip")]
    assert run(plan(skipping, edges, entries=("s",)), evaluator=Toy()).named("skipped") == {"t"}


def test_a_released_join_that_drops_its_token_is_released_once():
    """A join let go at the end whose guard drops the token stays as it was, and the run ends."""
    nodes = [call("s", route="inclusive"), call("p", guard="false"), call("b")]
    nodes += [call("j", guard="false", guard_mode="drop")]
    edges = [arc("s", "p"), arc("s", "b"), arc("p", "j"), arc("b", "j")]
    done = run(plan(nodes, edges, entries=("s",)))
    assert (done.states["p"], done.states["j"], done.outcome) == ("expired", "skipped", "succeeded")


LOOP = {
    "cycle": graph(
        [call("fetch", args="{{ page }}", bind=("more",)), call("store", route="inclusive")],
        [
            arc("fetch", "store"),
            arc("store", "fetch", "{{ more < 3 }}", back=True, args={"page": "{{ more }}"}),
            arc("store", exit="done", when="{{ more >= 3 }}", args={"total": "{{ more }}"}),
        ],
        writes="through",
    )
}
PAGED = plan(
    [call("start"), Region(id="loop", body="cycle"), call("end", args="{{ total }}"), call("never")],
    [
        arc("start", "loop", entry="fetch", args={"page": 0}),
        arc("loop", "end", label="done"),
        arc("loop", "never", label="other"),
    ],
    LOOP,
    entries=("start",),
)


def test_a_region_runs_one_frame_per_iteration_and_leaves_when_it_ends():
    """Back-edges give the next iteration with the args they carry; the exit is taken once, at the end."""
    pages = {f"loop[{k}]/fetch": k + 1 for k in range(5)}
    done = run(PAGED, pages, evaluator=Tokens())
    rounds = [f"loop[{k}]/{step}" for k in range(3) for step in ("fetch", "store")]
    assert done.order == ["start", *rounds, "end"]
    asked = [c.args for c in done.commands if c.tag == "run_call" and c.node in ("fetch", "end")]
    assert asked == [0, 1, 2, 3]
    assert done.named("skipped") == {"never"}


def test_a_region_stops_at_its_limit():
    """A region that would go round for ever fails with an iteration limit."""
    body = {"cycle": graph(calls("a"), [arc("a", "a", back=True)])}
    done = run(plan([Region(id="r", body="cycle", limit=4)], [], body))
    assert done.order == [f"r[{k}]/a" for k in range(4)]
    assert done.settled.error["type"] == "IterationLimit"


def test_two_back_edges_of_one_iteration_give_one_next_iteration():
    """Several live back-edges together start one next iteration, with merged args."""
    nodes = [call("a", route="inclusive", args="{{ x|default(0) }}"), *calls("b", "c")]
    edges = [arc("a", "b"), arc("a", "c")]
    edges += [arc(n, "a", {"below": 1}, back=True, args={"x": n}) for n in ("b", "c")]
    done = run(plan([Region(id="r", body="g")], [], {"g": graph(nodes, edges)}), evaluator=Tokens())
    assert done.order == ["r[0]/a", "r[0]/b", "r[0]/c", "r[1]/a", "r[1]/b", "r[1]/c"]
    assert next(c for c in done.commands if getattr(c, "path", "") == "r[1]/a").args == "c"


def test_a_failure_inside_a_region_fails_it_but_not_its_other_tokens():
    """An unhandled failure stops its own branch; the region goes round as long as tokens do, then fails."""
    nodes = [call("a", route="inclusive"), *calls("bad", "ok")]
    edges = [arc("a", "bad"), arc("a", "ok"), arc("ok", "a", {"below": 1}, back=True), arc("ok", exit="out")]
    nodes[2] = call("ok", route="inclusive")
    outer = plan(
        [Region(id="r", body="g"), call("t")],
        [arc("r", "t", label="out")],
        {"g": graph(nodes, edges)},
        fails_when="unhandled",
    )
    done = run(outer, {"bad": FAIL}, evaluator=Toy())
    assert done.states["r"] == "failed"
    assert "r[1]/ok" in done.order
    assert done.order[-1] == "t"


def test_the_final_step_runs_last_and_once():
    """The final step runs when everything else has ended, after a failure too, and not after a cancel."""
    made = plan([*calls("a", "last"), call("p", guard="false")], final_step="last", entries=("a", "p"))
    for outcome in (1, FAIL):
        done = run(made, {"a": outcome})
        assert done.order == ["a", "last"]
        assert done.states["p"] == "expired"
    stopped = Run(made)
    stopped._apply(CancelAsked())
    assert stopped.finish().states["last"] == "cancelled"


def test_a_parallel_loop_with_stats_counts_its_items():
    """A loop that goes on after errors succeeds, with null for the failed item and its stats."""
    each = Each(
        id="l",
        items=[1, 2, 3],
        body="b",
        mode="parallel",
        cap=2,
        on_error="continue",
        collect="stats",
        bind=("l",),
    )
    made = plan([each], [], {"b": graph([call("t", bind=("t",))], result=("t",))}, result=("l",))
    done = run(made, {"l[0]/t": "x", "l[1]/t": FAIL, "l[2]/t": "z"})
    assert done.settled.value == {
        "results": ["x", None, "z"],
        "stats": {"total": 3, "succeeded": 2, "failed": 1},
    }
