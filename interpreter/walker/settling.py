"""The end of a node: its value is bound, its edges settle by the table, its targets are looked at."""

from __future__ import annotations

from typing import Any, Final

from interpreter.errors import ExpressionError
from interpreter.plan import Names, Owner
from interpreter.walker.frame import Frame
from interpreter.walker.program import EdgeInfo, Way
from interpreter.walker.routes import Chosen, select_arcs
from interpreter.walker.states import (
    CANCELLED,
    FAILED,
    IGNORED,
    LIVE,
    NAMES,
    OPEN,
    PARKED,
    PENDING,
    POISONED,
    RAN,
    SELECTED,
    SUCCEEDED,
    WAITING,
)
from interpreter.walker.walk import HALT, SETTLE, Walk

_NOTHING: Final[Chosen] = {}


def succeed(walk: Walk, frame: Frame, i: int, value: Any) -> None:
    """A node did its work: bind its value, select its arcs, settle."""
    layout = frame.layout
    chosen = _NOTHING
    try:
        if layout.unpacks[i]:
            _bind_parts(frame, layout.binds[i], value)
        else:
            for name in layout.binds[i]:
                frame.write(name, value)
        if layout.arcs[i] and frame.stop is None:
            chosen = select_arcs(walk, frame, i, {"status": "succeeded", "value": value, "error": None})
    except ExpressionError as error:
        end_failed(walk, frame, i, error.as_error(), _NOTHING)
        return
    finish(walk, frame, i, SUCCEEDED, chosen)


def fail(walk: Walk, frame: Frame, i: int, error: dict[str, Any]) -> None:
    """A node failed for good: select the arcs that take a failure, settle."""
    chosen = _NOTHING
    if frame.layout.arcs[i] and frame.stop is None:
        try:
            chosen = select_arcs(walk, frame, i, {"status": "failed", "value": None, "error": error})
        except ExpressionError as broken:
            error = {**broken.as_error(), "cause": error}
    end_failed(walk, frame, i, error, chosen)


def end_failed(walk: Walk, frame: Frame, i: int, error: dict[str, Any], chosen: Chosen) -> None:
    """Settle as failed with these arcs taken."""
    frame.note(i)["error"] = error
    finish(walk, frame, i, FAILED, chosen)


def finish(walk: Walk, frame: Frame, i: int, status: str, chosen: Chosen = _NOTHING) -> None:
    """A node is final. In a frame that is being stopped its edges no longer matter."""
    frame.status[i] = status
    frame.open -= 1
    if status != SUCCEEDED:
        _account(walk, frame, i, status, chosen)
    if walk.trace is not None:
        walk.final(frame, i, status)
    if frame.stop is None:
        ways = frame.layout.ways[i]
        if ways is None:
            _settle_edges(walk, frame, i, status, chosen)
        elif ways[status]:
            _arrive_directly(walk, frame, ways[status])
    if frame.open == 0:
        walk.todo.append((frame, SETTLE))


def _bind_parts(frame: Frame, names: Names, value: Any) -> None:
    for name, part in zip(names, unpacked(value, len(names)), strict=True):
        frame.write(name, part)


def unpacked(value: Any, count: int) -> list[Any]:
    """The parts of a value, as many as there are names for them."""
    if not isinstance(value, list | tuple):
        raise ExpressionError(f"cannot unpack a {type(value).__name__} into {count} names", type="TypeError")
    if len(value) != count:
        raise ExpressionError(f"cannot unpack {len(value)} values into {count} names", type="ValueError")
    return list(value)


def _account(walk: Walk, frame: Frame, i: int, status: str, chosen: Chosen) -> None:
    walk.tell(frame, i, NAMES[status])
    if status == FAILED or (status == CANCELLED and frame.stop is None):
        _count_failure(walk, frame, i, handled=status == FAILED and bool(frame.layout.watched[i] or chosen))
    elif status == CANCELLED:
        frame.voids.extend(_voids(frame, i))


def _voids(frame: Frame, i: int) -> list[list[Any]]:
    """The records behind a node's failure; kept with it until it is final."""
    found: list[list[Any]] = frame.data.get(i, {}).pop("voids", [])
    return found


def _count_failure(walk: Walk, frame: Frame, i: int, *, handled: bool) -> None:
    plan = walk.program.plan
    if handled:
        walk.handled.append(frame.path(i))
    # The end of a two-phase operator answers for its members.
    if plan.fails_when == "unhandled" and (handled or frame.layout.carried[i]):
        return
    if frame.layout.handlers[i] and frame.parent is not None:
        _fail_run(walk, frame, i)
        return
    frame.failures.append(i)
    frame.voids.extend(_voids(frame, i))
    if not handled and frame.stop is None and (plan.fail_fast or _owner_is_hasty(frame)):
        walk.todo.append((frame, HALT))


def _fail_run(walk: Walk, frame: Frame, i: int) -> None:
    """A callback handler failed inside an operator: that fails the run, and never the operator."""
    error = frame.data.get(i, {}).get("error") or {"type": "Cancelled", "message": f"{frame.path(i)} was cancelled"}
    walk.strays.append({"node": frame.path(i), **error})
    walk.voids.extend(_voids(frame, i))
    if walk.program.plan.fail_fast and walk.root is not None:
        walk.todo.append((walk.root, HALT))


def _owner_is_hasty(frame: Frame) -> bool:
    if frame.parent is None:
        return False
    owner = frame.parent.layout.nodes[frame.owner]
    return isinstance(owner, Owner) and owner.fail_fast


def _arrive_directly(walk: Walk, frame: Frame, ways: tuple[Way, ...]) -> None:
    """What `_settle_edges` does, where it follows from the plan: no gate, no arc, nothing conditional. Most nodes."""
    pending = frame.pending
    for e, state, target, patient in ways:
        frame.edges[e] = state
        pending[target] = left = pending[target] - 1
        if state == LIVE:
            frame.live[target] += 1
        elif state == POISONED:
            frame.poison(target)
        if (not left or not patient) and (frame.status[target] == WAITING or frame.layout.rules[target] == "each"):
            walk.todo.append((frame, target))


def _settle_edges(walk: Walk, frame: Frame, i: int, status: str, chosen: Chosen) -> None:
    for edge in frame.layout.outs[i]:
        _settle_edge(walk, frame, edge, status, chosen)
    for edge in frame.layout.unless_of.get(i, ()):
        _settle_unless(walk, frame, edge)


def _settle_edge(walk: Walk, frame: Frame, edge: EdgeInfo, status: str, chosen: Chosen) -> None:
    state = edge.table[status]
    if state == SELECTED:
        state = LIVE if edge.pick in chosen else "d"
    if edge.target < 0:
        _leave(frame, edge, state, chosen)
    elif edge.unless:
        _settle_unless(walk, frame, edge)
    else:
        if state == LIVE and edge.kind == "arc":
            _carry(frame, edge, chosen)
        _arrive(walk, frame, edge, state)


def _arrive(walk: Walk, frame: Frame, edge: EdgeInfo, state: str) -> None:
    target = edge.target
    frame.count(edge.index, state)
    status = frame.status[target]
    if status == WAITING or frame.layout.rules[target] == "each":
        walk.todo.append((frame, target))
    elif state == LIVE and edge.kind == "arc" and status != PARKED:
        walk.tell(frame, target, "late", frame.layout.ids[edge.source])


def _carry(frame: Frame, edge: EdgeInfo, chosen: Chosen) -> None:
    args = chosen[edge.pick]
    if args is not None:
        frame.args.setdefault(edge.target, {})[str(edge.index)] = args


def _leave(frame: Frame, edge: EdgeInfo, state: str, chosen: Chosen) -> None:
    frame.edges[edge.index] = state
    if state != LIVE:
        return
    way, name = ("back", edge.back) if edge.back is not None else ("exit", edge.exit)
    frame.leaving = frame.leaving or {"back": {}, "exit": {}}
    tokens = frame.leaving[way]
    tokens[str(name)] = {**tokens.get(str(name), {}), **(chosen.get(edge.pick) or {})}


def _settle_unless(walk: Walk, frame: Frame, edge: EdgeInfo) -> None:
    if frame.edges[edge.index] != PENDING:
        return
    handlers = [frame.status[handler] for handler in edge.unless]
    source = frame.status[edge.source]
    if any(state in RAN for state in handlers):
        _arrive(walk, frame, edge, IGNORED)
    elif source not in OPEN and not any(state in OPEN for state in handlers):
        _arrive(walk, frame, edge, edge.table[source])
