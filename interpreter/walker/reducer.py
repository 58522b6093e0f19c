"""The reducer: a record in, commands out. Everything a walk decides happens in here, in plan order."""

from __future__ import annotations

from typing import Any

from interpreter.errors import WalkError
from interpreter.walker.commands import Command, SetTimer, SettleRun, Unit
from interpreter.walker.firing import child_settled, look_at, stopped_owner
from interpreter.walker.frame import Frame
from interpreter.walker.many import begin_unit, open_as, unit_settled
from interpreter.walker.owners import add_voids, begin_again, frame_outcome, time_out, timeout_error
from interpreter.walker.program import Program
from interpreter.walker.quiescence import settle_quiet, unpark
from interpreter.walker.records import CancelAsked, Fired, Opened, Record, Settled, Started
from interpreter.walker.scope import Evaluator
from interpreter.walker.settling import fail, finish, succeed
from interpreter.walker.states import CANCELLED, EXITED, FAILED, RUNNING, WAITING
from interpreter.walker.stops import own_timer, stop_frame
from interpreter.walker.walk import HALT, SETTLE, Trace, Walk


def apply(walk: Walk, record: Record) -> list[Command]:
    """Move a walk by one record and return what to do next, in order.

    A record nobody waits for any more (a timer that crossed its cancel) changes nothing.
    """
    commands: list[Command] = []
    walk.out = commands
    if walk.settled is not None:
        return commands
    if record.now is not None:
        walk.now = record.now
    if type(record) is Settled:
        _settled(walk, record)
    else:
        _other(walk, record)
    _drain(walk)
    return commands


def _other(walk: Walk, record: Record) -> None:
    if isinstance(record, Started):
        _start(walk, record)
    elif isinstance(record, Fired):
        _fired(walk, record)
    elif isinstance(record, Opened):
        _opened(walk, record)
    elif isinstance(record, CancelAsked):
        stop_frame(walk, _root(walk), "cancel")


def _root(walk: Walk) -> Frame:
    if walk.root is None:
        raise WalkError("a walk begins with a Started record")
    return walk.root


def _start(walk: Walk, record: Started) -> None:
    if walk.root is not None and (walk.unit is None or walk.root.status[0] != WAITING):
        raise WalkError("this walk has started already")
    walk.globals = record.globals
    walk.spawn_over = record.spawn_over
    if walk.unit is not None:
        _start_unit(walk)
        return
    plan = walk.program.plan
    if plan.timeout is not None:
        walk.out.append(SetTimer("", "timeout", plan.timeout))
    walk.root = walk.open_frame(None, -1, walk.program.root, "", 0, "run")
    walk.root.vars = dict(record.inputs)
    walk.begin(walk.root)


def _start_unit(walk: Walk) -> None:
    root, unit = _root(walk), walk.unit
    assert unit is not None
    root.status[0] = RUNNING
    begin_unit(walk, root, 0, Unit(**unit))


def walk_of_unit(program: Program, evaluator: Evaluator, unit: Unit, trace: Trace | None = None) -> Walk:
    """The walk of a spawned unit. Give it the `Started` record of its own task; its `SettleRun` goes back to
    the walk that spawned it."""
    walk = Walk(program, evaluator, trace)
    whole = program.layout(unit.graph)
    alone = program.solo(unit.graph, whole.index[unit.node]) if unit.graph in program.layouts else whole
    walk.root = walk.open_frame(None, -1, program.unit(alone), unit.frame, 0, "run")
    walk.root.base = unit.scope
    form = unit.to_json()
    walk.unit = {key: form[key] for key in form if key != "tag"}
    return walk


def _settled(walk: Walk, record: Settled) -> None:
    found = walk.flight.get(record.path)
    if found is None:
        return
    frame, i = found
    if not frame.layout.leaves[i]:
        if frame.layout.owners[i]:
            _unit_settled(walk, frame, i, record)
        return
    del walk.flight[record.path]
    if record.writes:
        for name, value in record.writes.items():
            frame.write(name, value)
    if record.outcome == "succeeded":
        succeed(walk, frame, i, record.value)
        return
    add_voids(frame, i, record.voids)
    if record.outcome == "failed":
        fail(walk, frame, i, record.error or {"type": "Exception", "message": "failed"})
    else:
        finish(walk, frame, i, CANCELLED)


def _unit_settled(walk: Walk, frame: Frame, i: int, record: Settled) -> None:
    if record.path not in frame.data[i].get("units", ()):
        return
    del walk.flight[record.path]
    if frame.stop is None:
        unit_settled(walk, frame, i, record)
        return
    frame.data[i]["units"].pop(record.path)
    add_voids(frame, i, record.voids)
    stopped_owner(walk, frame, i)


def _fired(walk: Walk, record: Fired) -> None:
    if record.timer == "timeout":
        _timed_out(walk, record)
        return
    found = walk.flight.get(record.path)
    if found is None or own_timer(*found) != record.timer:
        return
    frame, i = found
    del walk.flight[record.path]
    if record.timer == "backoff":
        begin_again(walk, frame, i)
    else:
        succeed(walk, frame, i, None)


def _timed_out(walk: Walk, record: Fired) -> None:
    if record.path == "":
        _root(walk).voids.extend(record.voids or ())
        stop_frame(walk, _root(walk), "timeout")
        return
    key, _, node = record.path.rpartition("/")
    frame = walk.frames.get(key)
    if frame is None:
        return
    i = frame.layout.index[node]
    if frame.data.get(i, {}).get("timer"):
        add_voids(frame, i, record.voids)
        time_out(walk, frame, i)


def _opened(walk: Walk, record: Opened) -> None:
    found = walk.flight.get(record.path)
    if found is None or not found[0].data.get(found[1], {}).get("asking"):
        return
    frame, i = found
    del walk.flight[record.path]
    if frame.stop is None:
        open_as(walk, frame, i, record)
        return
    frame.data[i].pop("asking", None)
    stopped_owner(walk, frame, i)


def _drain(walk: Walk) -> None:
    """Look at what changed until nothing more happens by itself."""
    todo = walk.todo
    while walk.settled is None:
        # It grows while it is gone through; what is added is looked at last.
        for frame, i in todo:
            if i >= 0:
                look_at(walk, frame, i)
            else:
                _look_at_frame(walk, frame, i)
        todo.clear()
        if walk.settled is not None or (walk.flight and not walk.parked):
            return
        moved = walk.parked and unpark(walk)
        if not moved and not walk.flight and not todo:
            moved = settle_quiet(walk)
            if not moved and not todo:
                raise WalkError("nothing runs and nothing can: the plan was not checked, or this is a bug")
        if not moved and not todo:
            return


def _look_at_frame(walk: Walk, frame: Frame, what: int) -> None:
    if walk.frames.get(frame.key) is not frame:
        return
    if what == HALT:
        stop_frame(walk, frame, "fail_fast")
    elif what == SETTLE and frame.parent is not None:
        child_settled(walk, frame)
    elif what == SETTLE:
        _settle_run(walk, frame)


def _settle_run(walk: Walk, root: Frame) -> None:
    status, value, error = frame_outcome(walk, root)
    outcome: Any = "succeeded"
    if root.stop == "timeout":
        outcome, error = "failed", timeout_error(f"the run took longer than {walk.program.plan.timeout:g} s")
    elif status == EXITED:
        outcome, value, error = _left(root)
    elif status in (FAILED, CANCELLED):
        outcome = "failed" if status == FAILED else "cancelled"
    elif walk.expired and walk.program.plan.parked_fails:
        outcome, error = "failed", _parked_error(walk)
    elif walk.strays and walk.unit is None:
        outcome, error = "failed", min(walk.strays, key=lambda stray: str(stray["node"]))
    if walk.unit is not None and outcome == "succeeded":
        value = _of_unit(walk, walk.unit["result"])
    walk.settled = SettleRun(outcome, value, error, walk.handled, walk.expired, voids=[*root.voids, *walk.voids])
    if walk.unit is not None:
        walk.settled.writes = root.vars
    walk.out.append(walk.settled)


def _of_unit(walk: Walk, result: dict[str, Any]) -> dict[str, Any]:
    """What a unit's slots came to, and what else happened in it that concerns the whole run."""
    more = {"handled": walk.handled, "parked": walk.expired, "strays": walk.strays}
    return {**result, **more, "voids": [*result["voids"], *walk.voids]}


def _left(root: Frame) -> tuple[str, Any, dict[str, Any] | None]:
    exit = root.exit or {}
    if exit["outcome"] == "succeeded":
        return "succeeded", exit["value"], None
    error = {"type": "Terminated", "message": str(exit["value"]), "mro": ["Terminated"], "node": exit["node"]}
    return exit["outcome"], exit["value"], error


def _parked_error(walk: Walk) -> dict[str, Any]:
    message = "parked when the run ended: " + ", ".join(walk.expired)
    return {"type": "Parked", "message": message, "mro": ["Parked", "Exception"]}
