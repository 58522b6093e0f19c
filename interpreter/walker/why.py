"""Why a node ran, was skipped, waits or has not started: read from the state of a walk, for people."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

from interpreter.walker.frame import Frame
from interpreter.walker.program import EdgeInfo
from interpreter.walker.states import (
    CANCELLED,
    EDGE_NAMES,
    EXITED,
    EXPIRED,
    FAILED,
    LIVE,
    NAMES,
    PARKED,
    PENDING,
    POISONED,
    RUNNING,
    SKIPPED,
    SUCCEEDED,
    UPSTREAM_FAILED,
    WAITING,
)
from interpreter.walker.walk import Walk

_MARKS: Final = re.compile(r"(\[[^\]]*\]|#\d+|!\d+|~\d+|\(\))+$")


@dataclass(frozen=True, slots=True)
class Why:
    """One sentence, and what it rests on."""

    path: str
    state: str
    reason: str
    edges: list[dict[str, str]] = field(default_factory=list)
    decision: dict[str, Any] | None = None
    guard: dict[str, Any] | None = None


def why(walk: Walk, path: str) -> Why:
    """Explain the state of a node by its full name."""
    key, _, node = path.rpartition("/")
    frame = walk.frames.get(key)
    if frame is None:
        return _why_no_frame(walk, path, key)
    i = frame.layout.index.get(node)
    if i is None:
        return Why(path, "unknown", f"there is no node {node!r} in {key or 'the run'}")
    return _explain(frame, i)


def _explain(frame: Frame, i: int) -> Why:
    data, status = frame.data.get(i, {}), frame.status[i]
    reason = _REASONS[status](frame, i)
    edges = [_edge_view(frame, edge) for edge in frame.layout.ins[i]]
    return Why(frame.path(i), NAMES[status], reason, edges, data.get("decision"), data.get("guard"))


def _why_no_frame(walk: Walk, path: str, key: str) -> Why:
    if walk.root is None:
        return Why(path, "not_started", "the run has not started")
    outer, _, segment = key.rpartition("/")
    frame, owner = walk.frames.get(outer), _MARKS.sub("", segment)
    if frame is None:
        return _why_no_frame(walk, path, outer)
    if owner not in frame.layout.index:
        return Why(path, "unknown", f"there is no node {owner!r} in {outer or 'the run'}")
    i = frame.layout.index[owner]
    about = f"{frame.path(i)} is {NAMES[frame.status[i]]}: {_REASONS[frame.status[i]](frame, i)}"
    if frame.status[i] == RUNNING:
        return Why(path, "not_open", f"{key} has settled or has not been opened yet; {about}")
    return Why(path, "not_open", f"{key} is not open; {about}")


def _edge_view(frame: Frame, edge: EdgeInfo) -> dict[str, str]:
    view = {
        "from": frame.layout.ids[edge.source],
        "kind": edge.kind,
        "state": EDGE_NAMES[frame.edges[edge.index]],
        "source": NAMES[frame.status[edge.source]],
    }
    return view | {"label": edge.label} if edge.label is not None else view


def _sources(frame: Frame, i: int, *states: str, gates: bool | None = None) -> list[EdgeInfo]:
    edges = frame.layout.ins[i]
    return [edge for edge in edges if frame.edges[edge.index] in states and (gates is None or edge.gate == gates)]


def _listed(frame: Frame, edges: list[EdgeInfo]) -> str:
    names = dict.fromkeys(f"{frame.layout.ids[edge.source]} ({NAMES[frame.status[edge.source]]})" for edge in edges)
    return ", ".join(names)


def _why_waiting(frame: Frame, i: int) -> str:
    if i == frame.layout.final:
        return "it runs when everything else has ended"
    if frame.layout.gated[i] and not frame.glive[i]:
        return f"no router has chosen it yet: {_listed(frame, _sources(frame, i, PENDING, gates=True))}"
    waits = _sources(frame, i, PENDING, gates=False)
    return f"it waits for {_listed(frame, waits)}"


def _why_parked(frame: Frame, i: int) -> str:
    return f"its guard does not hold: {_guard_text(frame, i)}"


def _guard_text(frame: Frame, i: int) -> str:
    guard = frame.data.get(i, {}).get("guard") or {}
    return f"{frame.layout.nodes[i].guard} with {guard.get('saw') or 'nothing it could see'}"


def _why_ran(frame: Frame, i: int) -> str:
    data = frame.data.get(i, {})
    if data.get("released"):
        return "it held a token, and what else it waited for was behind parked nodes"
    live = _sources(frame, i, LIVE)
    if not live:
        return "it is the final step" if i == frame.layout.final else _why_entered(frame, i)
    routed = [_choice_text(frame, edge) for edge in live if edge.kind in ("gate", "arc")]
    return "; ".join(routed) if routed else f"{_listed(frame, live)} let it start"


def _why_entered(frame: Frame, i: int) -> str:
    if i in frame.entered:
        return "it is where its frame starts"
    return f"its trigger rule {frame.layout.nodes[i].trigger} let it start"


def _choice_text(frame: Frame, edge: EdgeInfo) -> str:
    decision = frame.data.get(edge.source, {}).get("decision") or {}
    saw = decision.get("saw") or ({"on": decision["on"]} if "on" in decision else "nothing it could see")
    chose = decision.get("chose", decision.get("took", []))
    return f"{frame.layout.ids[edge.source]} chose {chose} with {saw}"


def _why_skipped(frame: Frame, i: int) -> str:
    guard = frame.data.get(i, {}).get("guard")
    if guard is not None and not guard["held"]:
        return _why_parked(frame, i)
    incoming = frame.layout.ins[i]
    if not incoming:
        return "no token came to it: it is not where its frame starts"
    routers = [edge for edge in incoming if edge.kind in ("gate", "arc")]
    if routers and not frame.glive[i]:
        ran = [edge for edge in routers if frame.status[edge.source] == SUCCEEDED] or routers
        return "nobody chose it: " + "; ".join(dict.fromkeys(_router_text(frame, edge) for edge in ran))
    return f"nothing it follows ran: {_listed(frame, list(incoming))}"


def _router_text(frame: Frame, edge: EdgeInfo) -> str:
    if "decision" in frame.data.get(edge.source, {}):
        return _choice_text(frame, edge)
    return f"{frame.layout.ids[edge.source]} was {NAMES[frame.status[edge.source]]}"


def _why_upstream_failed(frame: Frame, i: int) -> str:
    culprits = sorted(_culprits(frame, i, set()))
    return "because of " + ", ".join(_failure_text(frame, culprit) for culprit in culprits)


def _culprits(frame: Frame, i: int, seen: set[int]) -> set[int]:
    """The failed nodes behind poisoned edges, however far up."""
    found: set[int] = set()
    for edge in _sources(frame, i, POISONED):
        if edge.source in seen:
            continue
        seen.add(edge.source)
        if frame.status[edge.source] == UPSTREAM_FAILED:
            found |= _culprits(frame, edge.source, seen)
        else:
            found.add(edge.source)
    return found


def _failure_text(frame: Frame, i: int) -> str:
    error = frame.data.get(i, {}).get("error") or {}
    head = f"{frame.layout.ids[i]} ({NAMES[frame.status[i]]})"
    return f"{head}: {error['type']}: {error.get('message', '')}" if "type" in error else head


def _why_failed(frame: Frame, i: int) -> str:
    return _failure_text(frame, i)


def _why_stopped(frame: Frame, i: int) -> str:
    if frame.stop is None:
        return "what it ran was cancelled"
    return {
        "cancel": "the run or its owner was stopped",
        "timeout": "the run took too long",
        "fail_fast": "something else failed and this plan stops at the first failure",
        "exit": "an exit passed through",
    }[frame.stop]


def _why_expired(frame: Frame, i: int) -> str:
    return f"nothing else could run and {_why_parked(frame, i)}"


_REASONS: Final = {
    WAITING: _why_waiting,
    PARKED: _why_parked,
    RUNNING: _why_ran,
    SUCCEEDED: _why_ran,
    FAILED: _why_failed,
    SKIPPED: _why_skipped,
    UPSTREAM_FAILED: _why_upstream_failed,
    CANCELLED: _why_stopped,
    EXITED: _why_stopped,
    EXPIRED: _why_expired,
}
