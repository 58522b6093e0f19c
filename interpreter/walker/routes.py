"""Which arcs a node that ended takes, and with what on them."""

from __future__ import annotations

from typing import Any

from interpreter.plan import Node
from interpreter.walker.frame import Frame
from interpreter.walker.program import EdgeInfo
from interpreter.walker.scope import Scope
from interpreter.walker.walk import Walk

Chosen = dict[str | int | None, dict[str, Any] | None]


def select_arcs(walk: Walk, frame: Frame, i: int, outcome: dict[str, Any]) -> Chosen:
    """The arcs a node takes after this outcome, each with the args of its token."""
    node = frame.layout.nodes[i]
    scope = walk.watching(frame, i)
    scope.outcome = outcome
    arcs = _open_to(node, frame.layout.arcs[i], outcome)
    taken = _taken(walk, node, arcs, scope)
    chosen: Chosen = {arc.index: _args(walk, arc, scope) for arc in taken}
    decision = {"took": [_end(frame, arc) for arc in taken], "saw": scope.seen}
    frame.note(i)["decision"] = decision
    walk.tell(frame, i, "route", decision)
    return chosen


def _open_to(node: Node, arcs: tuple[EdgeInfo, ...], outcome: dict[str, Any]) -> list[EdgeInfo]:
    # An arc without a condition means success, unless the author asked for the other reading.
    if outcome["status"] == "failed" and node.route_on_failure == "guarded":
        return [arc for arc in arcs if arc.when is not None]
    return list(arcs)


def _taken(walk: Walk, node: Node, arcs: list[EdgeInfo], scope: Scope) -> list[EdgeInfo]:
    if node.route == "inclusive":
        return [arc for arc in arcs if _holds(walk, arc, scope)]
    if node.route == "exclusive":
        return _first(walk, arcs, scope)
    guarded = _first(walk, [arc for arc in arcs if arc.when is not None], scope)
    return guarded or [arc for arc in arcs if arc.when is None]


def _first(walk: Walk, arcs: list[EdgeInfo], scope: Scope) -> list[EdgeInfo]:
    for arc in arcs:
        if _holds(walk, arc, scope):
            return [arc]
    return []


def _holds(walk: Walk, arc: EdgeInfo, scope: Scope) -> bool:
    return arc.when is None or walk.evaluator.truth(arc.when, scope)


def _args(walk: Walk, arc: EdgeInfo, scope: Scope) -> dict[str, Any] | None:
    if arc.args is None:
        return None
    args: dict[str, Any] = walk.evaluator.value(arc.args, scope)
    return args


def _end(frame: Frame, arc: EdgeInfo) -> str:
    if arc.target >= 0:
        return frame.layout.ids[arc.target]
    return arc.back or f"exit {arc.exit}"
