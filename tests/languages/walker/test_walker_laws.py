"""Laws of the walker on random plans: any order, any crash, the same end."""

from __future__ import annotations

import random
import sys

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interpreter.plan import Choose, Each, Plan
from interpreter.simulate import simulate
from interpreter.walker import Program, apply, restore, snapshot
from interpreter.walker.records import CancelAsked, Settled
from interpreter.walker.states import OPEN

from .random_plans import Outcomes, Toy, plans
from .walking import Run, after, calls, chain, graph
from .walking import plan as make_plan

LAW = settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
FINAL = {"succeeded", "failed", "skipped", "upstream_failed", "cancelled", "exited", "expired"}
either = st.one_of(plans(), plans(arcs=True))
seeds = st.integers(0, 10_000)
failing = st.sampled_from([0, 10, 30, 60])


def drive(plan: Plan, seed: int, percent: int, **kw) -> Run:
    return Run(plan, Outcomes(seed, percent), evaluator=Toy(), spawn_over=1, **kw).finish()


@LAW
@given(either, seeds, failing)
def test_any_order_of_completion_gives_the_same_end(plan, seed, percent):
    """What runs, what is skipped and how the run ends depend on outcomes, never on their order, and are what
    the simulator says."""
    first = drive(plan, seed, percent)
    simulated = simulate(plan, Outcomes(seed, percent), evaluator=Toy())
    assert {step.path: step.state for step in simulated.steps} == first.states
    for shuffle in range(3):
        other = drive(plan, seed, percent, rng=random.Random(shuffle))
        assert other.states == first.states
        assert other.outcome == first.outcome
        assert sorted(other.settled.parked) == sorted(first.settled.parked)
        assert sorted(other.settled.handled) == sorted(first.settled.handled)


@LAW
@given(either, seeds, failing)
def test_a_crash_anywhere_changes_nothing(plan, seed, percent):
    """A walk restored from a snapshot or replayed from its records, before every record, goes on the same."""
    calm = drive(plan, seed, percent, rng=random.Random(seed))
    for how in ("snapshot", "replay"):
        crashed = drive(plan, seed, percent, rng=random.Random(seed), crash=lambda how=how: how)
        assert crashed.states == calm.states
        assert crashed.commands == calm.commands
        assert crashed.settled == calm.settled


@LAW
@given(either, seeds, failing)
def test_spawned_and_in_place_end_the_same(plan, seed, percent):
    """Whether branches run here or as tasks, one by one or in chunks, the same nodes run."""
    here = drive(plan, seed, percent)
    for chunk in (1, 2):
        apart = drive(plan, seed, percent, spawn=("spawned", chunk))
        assert apart.states == here.states
        assert apart.outcome == here.outcome
        assert sorted(apart.settled.parked) == sorted(here.settled.parked)
        assert sorted(apart.settled.handled) == sorted(here.settled.handled)


@LAW
@given(either, seeds, failing)
def test_every_node_of_the_run_ends(plan, seed, percent):
    """A run settles, once, and every node of it is final by then."""
    done = drive(plan, seed, percent)
    assert {node.id for node in plan.graphs["main"].nodes} <= done.states.keys()
    assert set(done.states.values()) <= FINAL
    assert [command.tag for command in done.commands].count("settle_run") == 1
    assert done.commands[-1].tag == "settle_run"
    assert list(done.walk.frames) == [""]
    assert not any(state in OPEN for state in done.walk.root.status)
    assert not done.walk.flight


@LAW
@given(plans(), seeds, failing)
def test_no_router_ever_opens_two_branches(plan, seed, percent):
    """Of the gates of one router only those with one label are ever live."""
    done = drive(plan, seed, percent)
    layout = done.walk.root.layout
    for node in layout.nodes:
        if isinstance(node, Choose):
            gates = [edge for edge in layout.outs[layout.index[node.id]] if edge.gate]
            assert len({edge.label for edge in gates if done.walk.root.edges[edge.index] == "l"}) <= 1


@LAW
@given(either, seeds, failing)
def test_a_command_is_sent_once_per_path(plan, seed, percent):
    """No path is asked for twice: names of frames make every execution distinct."""
    done = drive(plan, seed, percent)
    assert len(done.order) == len(set(done.order))


@LAW
@given(either, seeds, failing)
def test_nothing_starts_after_a_cancel(plan, seed, percent):
    """A cancelled run asks for nothing more, and settles when what runs is final."""
    run = Run(plan, Outcomes(seed, percent), evaluator=Toy(), spawn_over=1)
    for _ in range(seed % 5):
        if run.bag:
            run.step()
    if run.walk.settled is not None:
        return
    before = len(run.order)
    run._apply(CancelAsked())
    run.finish()
    assert len(run.order) == before
    assert run.outcome == "cancelled"


@LAW
@given(either, seeds)
def test_a_plan_and_its_json_walk_alike(plan, seed):
    """A plan reads back from its JSON form equal, with the same hash, and walks the same."""
    again = Plan.from_json(plan.to_json())
    assert again == plan
    assert again.hash == plan.hash
    assert drive(again, seed, 20).states == drive(plan, seed, 20).states


def test_the_cost_of_a_record_does_not_depend_on_the_size_of_the_plan():
    """Settling a node looks at its own edges only: as many calls in a plan of 20 as in one of 500."""
    for shape in (_chain, _fan_in):
        costs = {_calls_of(apply, shape(size)) for size in (20, 100, 500)}
        assert len(costs) == 1


def test_the_cost_of_an_item_does_not_depend_on_how_many_came_before():
    """The tenth item of a loop, in turn or side by side, costs what the three hundredth does."""
    for mode in ("sequential", "parallel"):
        costs = {_calls_of(apply, _loop(mode, at)) for at in (10, 100, 300)}
        assert len(costs) == 1


def _loop(mode, at):
    each = Each(id="e", items=list(range(400)), body="b", mode=mode, cap=3 if mode == "parallel" else None)
    run = Run(make_plan([each], [], {"b": graph(calls("c"))}))
    for slot in range(at):
        run.feed(Settled(f"e[{slot}]/c"))
    return run, f"e[{at}]/c"


def _chain(size):
    ids = [f"n{i}" for i in range(size)]
    return Run(make_plan(calls(*ids), chain(*ids))), "n0"


def _fan_in(size):
    ids = [f"n{i}" for i in range(size)]
    return Run(make_plan(calls(*ids, "join"), [after(id, "join") for id in ids])), "n7"


def _calls_of(function, case):
    run, path = case
    count = 0

    def profile(frame, event, arg):
        nonlocal count
        count += event == "call"

    sys.setprofile(profile)
    try:
        function(run.walk, Settled(path))
    finally:
        sys.setprofile(None)
    return count


@LAW
@given(plans(), seeds)
def test_a_snapshot_is_a_value(plan, seed):
    """A snapshot does not change when the walk it was taken of goes on."""
    run = Run(plan, Outcomes(seed, 20), evaluator=Toy())
    kept = snapshot(run.walk)
    shown = repr(kept)
    records = list(run.records)
    run.finish()
    assert repr(kept) == shown
    again = restore(Program(plan), Toy(), kept)
    for record in run.records[len(records) :]:
        apply(again, record)
    assert snapshot(again) == snapshot(run.walk)
