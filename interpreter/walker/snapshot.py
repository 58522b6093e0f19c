"""A walk as a JSON value and back. What follows after a restore is what would have followed without it.

Counters are left out (they follow from the edges); values are shared, never changed in place.
"""

from __future__ import annotations

from typing import Any

from interpreter.errors import WalkError
from interpreter.walker.commands import SettleRun
from interpreter.walker.frame import Frame
from interpreter.walker.program import Program
from interpreter.walker.scope import Evaluator
from interpreter.walker.states import OPEN
from interpreter.walker.walk import Trace, Walk


def snapshot(walk: Walk) -> dict[str, Any]:
    """The state of a walk between two records."""
    return {
        "plan": walk.program.plan.hash,
        "now": walk.now,
        "globals": walk.globals,
        "spawn_over": walk.spawn_over,
        "handled": list(walk.handled),
        "expired": list(walk.expired),
        "strays": list(walk.strays),
        "voids": list(walk.voids),
        "unit": dict(walk.unit) if walk.unit is not None else None,
        "settled": walk.settled.to_json() if walk.settled is not None else None,
        "frames": [_frame_form(frame) for frame in walk.frames.values()],
        "flight": [[path, frame.key, i] for path, (frame, i) in walk.flight.items()],
        "parked": [[frame.key, i] for frame, i in walk.parked],
    }


def _frame_form(frame: Frame) -> dict[str, Any]:
    form: dict[str, Any] = {
        "key": frame.key,
        "graph": frame.layout.name,
        "parent": frame.parent.key if frame.parent is not None else None,
        "owner": frame.owner,
        "slot": frame.slot,
        "role": frame.role,
        "status": "".join(frame.status),
        "edges": "".join(frame.edges),
        "entered": list(frame.entered),
        "base": _base_form(frame),
        "vars": dict(frame.vars),
        "args": {str(i): dict(tokens) for i, tokens in frame.args.items()},
        "data": {str(i): _copied(data) for i, data in frame.data.items()},
        "stop": frame.stop,
        "exit": frame.exit,
        "leaving": _copied(frame.leaving) if frame.leaving is not None else None,
        "failures": list(frame.failures),
        "voids": list(frame.voids),
    }
    return {key: part for key, part in form.items() if part not in (None, {}, [])}


def _base_form(frame: Frame) -> Any:
    """All slots of a fork start from the same names: kept once, with their owner."""
    if frame.base is None:
        return None
    if frame.parent is None:
        return "unit"
    shared = frame.parent.data[frame.owner].get("base")
    return "owner" if shared is frame.base else ["own", frame.base]


def _copied(data: dict[str, Any]) -> dict[str, Any]:
    # One level is enough: what lies deeper is replaced by the walker, never changed.
    return {key: _shallow(part) for key, part in data.items()}


def _shallow(part: Any) -> Any:
    if isinstance(part, dict):
        return dict(part)
    return list(part) if isinstance(part, list) else part


def restore(program: Program, evaluator: Evaluator, form: dict[str, Any], trace: Trace | None = None) -> Walk:
    """The walk a snapshot describes. It must be of the same plan."""
    if form["plan"] != program.plan.hash:
        raise WalkError(f"a snapshot of plan {form['plan'][:12]} cannot go on with {program.plan.hash[:12]}")
    walk = Walk(program, evaluator, trace)
    walk.now, walk.globals, walk.spawn_over = form["now"], form["globals"], form["spawn_over"]
    walk.handled, walk.expired = list(form["handled"]), list(form["expired"])
    walk.strays, walk.voids = list(form["strays"]), list(form["voids"])
    walk.unit = dict(form["unit"]) if form["unit"] is not None else None
    walk.settled = _settled(form["settled"])
    for part in form["frames"]:
        _restore_frame(walk, part)
    walk.root = next((frame for frame in walk.frames.values() if frame.parent is None), None)
    walk.flight = {path: (walk.frames[key], i) for path, key, i in form["flight"]}
    walk.parked = [(walk.frames[key], i) for key, i in form["parked"]]
    return walk


def _settled(form: dict[str, Any] | None) -> SettleRun | None:
    if form is None:
        return None
    return SettleRun(**{key: part for key, part in form.items() if key != "tag"})


def _restore_frame(walk: Walk, form: dict[str, Any]) -> None:
    # Parents were opened, and so are listed, before their children.
    parent = walk.frames[form["parent"]] if "parent" in form else None
    layout = walk.program.layout(form["graph"])
    frame = walk.open_frame(parent, form["owner"], layout, form["key"], form["slot"], form["role"])
    frame.status = list(form.get("status", ""))
    frame.edges = list(form.get("edges", ""))
    frame.open = sum(state in OPEN for state in frame.status)
    frame.recount()
    frame.enter(tuple(form.get("entered", ())))
    frame.vars = dict(form.get("vars", {}))
    frame.args = {int(i): dict(tokens) for i, tokens in form.get("args", {}).items()}
    frame.data = {int(i): _copied(data) for i, data in form.get("data", {}).items()}
    frame.stop, frame.exit = form.get("stop"), form.get("exit")
    frame.leaving = _copied(form["leaving"]) if "leaving" in form else None
    frame.failures = list(form.get("failures", ()))
    frame.voids = list(form.get("voids", ()))
    frame.base = _restored_base(walk, frame, form.get("base"))


def _restored_base(walk: Walk, frame: Frame, form: Any) -> dict[str, Any] | None:
    if form is None:
        return None
    if form == "unit" and walk.unit is not None:
        scope: dict[str, Any] = walk.unit["scope"]
        return scope
    if form == "owner" and frame.parent is not None:
        shared: dict[str, Any] = frame.parent.data[frame.owner]["base"]
        return shared
    own: dict[str, Any] = form[1]
    return own
