"""The firing rule: when a node is admitted, skipped or made to wait, and what firing it means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from interpreter.errors import ExpressionError
from interpreter.plan import Owner
from interpreter.walker import bodies, cycles, leaves, many
from interpreter.walker.frame import Frame
from interpreter.walker.owners import Outcome, add_voids, conclude, expression_failed, frame_outcome, set_timeout
from interpreter.walker.settling import end_failed, fail, finish
from interpreter.walker.states import (
    CANCELLED,
    EXPIRED,
    FAILED,
    PARKED,
    RUNNING,
    SKIPPED,
    SUCCEEDED,
    UPSTREAM_FAILED,
    WAITING,
)
from interpreter.walker.stops import nothing_left, stopped_state
from interpreter.walker.walk import Walk

# What the functions of this table share is a walk, a frame, a position and a node of their own kind.
FIRE: Final[dict[str, Callable[..., None]]] = {
    "call": leaves.fire_call,
    "compute": leaves.fire_compute,
    "choose": leaves.fire_choose,
    "wait": leaves.fire_wait,
    "await_event": leaves.fire_await_event,
    "emit": leaves.fire_emit,
    "return": leaves.fire_return,
    "pass": leaves.fire_pass,
    "each": many.begin_each,
    "fork": many.begin_fork,
    "repeat": cycles.begin_repeat,
    "region": cycles.begin_region,
    "attempt": bodies.begin_body,
    "block": bodies.begin_body,
    "function": bodies.begin_function,
}
CHILD_SETTLED: Final[dict[str, Callable[..., None]]] = {
    "each": many.slot_settled,
    "fork": many.slot_settled,
    "repeat": cycles.repeat_settled,
    "region": cycles.region_settled,
    "attempt": bodies.attempt_settled,
    "block": bodies.body_settled,
    "function": bodies.body_settled,
}


def look_at(walk: Walk, frame: Frame, i: int) -> None:
    """Something a node waits for has changed."""
    if not frame.layout.plain[i]:
        _look_closely(walk, frame, i)
    elif frame.status[i] == WAITING and not frame.pending[i]:
        if frame.live[i] and not frame.poisoned[i]:
            _fire_leaf(walk, frame, i)
        else:
            _join(walk, frame, i)


def _look_closely(walk: Walk, frame: Frame, i: int) -> None:
    status, rule = frame.status[i], frame.layout.rules[i]
    if rule == "each":
        if status in (WAITING, RUNNING):
            _look_at_tokens(walk, frame, i)
    elif status == WAITING:
        _consider(walk, frame, i, rule)
    elif status == RUNNING and frame.data.get(i, {}).pop("again", None):
        _begin(walk, frame, i)


def _consider(walk: Walk, frame: Frame, i: int, rule: str) -> None:
    # Gates are OR-ed and come first: a node nobody can choose any more does not wait for its dependencies.
    if frame.layout.gated[i] and not frame.glive[i]:
        if not frame.gpending[i]:
            finish(walk, frame, i, UPSTREAM_FAILED if frame.gpoisoned[i] else SKIPPED)
    elif rule == "all":
        if not frame.pending[i]:
            _join(walk, frame, i)
    elif rule == "mirror":
        _mirror(walk, frame, i)
    else:
        _by_rule(walk, frame, i, rule)


def _join(walk: Walk, frame: Frame, i: int) -> None:
    """All edges of a node are there."""
    if frame.poisoned[i]:
        finish(walk, frame, i, UPSTREAM_FAILED)
    elif frame.live[i] or frame.glive[i]:
        admit(walk, frame, i)
    else:
        finish(walk, frame, i, SKIPPED)


def _by_rule(walk: Walk, frame: Frame, i: int, rule: str) -> None:
    verdict = _verdict(frame, i, rule)
    if verdict == "admit":
        admit(walk, frame, i)
    elif verdict != WAITING:
        finish(walk, frame, i, verdict)


def _verdict(frame: Frame, i: int, rule: str) -> str:
    """Admit, wait, or the state to end in. `first` and `one_done` look at tokens as they come."""
    token = frame.live[i] or frame.glive[i]
    if rule in ("first", "one_done") and (token or (rule == "one_done" and frame.poisoned[i])):
        return "admit"
    if frame.pending[i]:
        return WAITING
    if rule == "all_done" and (token or frame.layout.ins[i]):
        return "admit"
    if frame.poisoned[i]:
        return UPSTREAM_FAILED
    return "admit" if token or (rule == "none_failed" and frame.layout.ins[i]) else SKIPPED


def _mirror(walk: Walk, frame: Frame, i: int) -> None:
    """The end of a two-phase operator is what its start is; failed if a member broke under it."""
    if frame.pending[i]:
        return
    start = frame.layout.mirrors[i]
    status = frame.status[start]
    if status == SUCCEEDED and not frame.poisoned[i]:
        # Only a node that mirrors its start comes here, and those are of that kind.
        leaves.fire_pass(walk, frame, i, frame.layout.nodes[i])  # type: ignore[arg-type]
    elif status in (SUCCEEDED, FAILED):
        fail(walk, frame, i, _member_error(frame, i))
    else:
        finish(walk, frame, i, SKIPPED if status == EXPIRED else status)


def _member_error(frame: Frame, i: int) -> dict[str, Any]:
    ids, data = frame.layout.ids, frame.data
    for source in sorted(edge.source for edge in frame.layout.ins[i]):
        error = data.get(source, {}).get("error")
        if error is not None and frame.status[source] == FAILED:
            return {**error, "node": error.get("node", frame.prefix + ids[source])}
    return {"type": "MemberFailed", "message": f"a member of {ids[i]} did not succeed", "mro": ["Exception"]}


def admit(walk: Walk, frame: Frame, i: int) -> None:
    """A node may start if its guard holds."""
    if not frame.layout.guarded[i]:
        fire(walk, frame, i)
        return
    try:
        held = guard_holds(walk, frame, i)
    except ExpressionError as error:
        end_failed(walk, frame, i, error.as_error(), {})
        return
    if held:
        fire(walk, frame, i)
    else:
        _hold_back(walk, frame, i)


def guard_holds(walk: Walk, frame: Frame, i: int) -> bool:
    """Evaluate a guard and keep what it saw."""
    scope = walk.watching(frame, i)
    held = walk.evaluator.truth(frame.layout.nodes[i].guard, scope)
    frame.note(i)["guard"] = {"held": held, "saw": scope.seen}
    return held


def _hold_back(walk: Walk, frame: Frame, i: int) -> None:
    mode = frame.layout.nodes[i].guard_mode
    if mode == "park":
        frame.status[i] = PARKED
        walk.parked.append((frame, i))
        walk.tell(frame, i, "parked", frame.data[i]["guard"])
    elif mode == "skip" or not (frame.pending[i] or frame.gpending[i]):
        finish(walk, frame, i, SKIPPED)


def fire(walk: Walk, frame: Frame, i: int) -> None:
    """A node starts."""
    if frame.layout.owners[i]:
        frame.status[i] = RUNNING
        frame.note(i)["attempt"] = 1
        _begin(walk, frame, i)
    else:
        _fire_leaf(walk, frame, i)


def _fire_leaf(walk: Walk, frame: Frame, i: int) -> None:
    layout = frame.layout
    frame.status[i] = RUNNING
    try:
        FIRE[layout.kinds[i]](walk, frame, i, layout.nodes[i])
    except ExpressionError as error:
        fail(walk, frame, i, error.as_error())


def _begin(walk: Walk, frame: Frame, i: int) -> None:
    node = frame.layout.nodes[i]
    set_timeout(walk, frame, i)
    try:
        FIRE[node.kind](walk, frame, i, node)
    except ExpressionError as error:
        expression_failed(walk, frame, i, error)


def _look_at_tokens(walk: Walk, frame: Frame, i: int) -> None:
    cycles.begin_tokens(walk, frame, i)
    data = frame.data[i]
    if data["opened"]:
        frame.status[i] = RUNNING
    if frame.pending[i] or frame.gpending[i] or not nothing_left(frame, i):
        return
    if data["opened"]:
        _end_tokens(walk, frame, i)
    else:
        poisoned = frame.poisoned[i] or frame.gpoisoned[i]
        finish(walk, frame, i, UPSTREAM_FAILED if poisoned else SKIPPED)


def _end_tokens(walk: Walk, frame: Frame, i: int) -> None:
    data, chosen = frame.data[i], cycles.tokens_end(frame, i)
    if data["broken"]:
        end_failed(walk, frame, i, data["broken"], chosen)
    else:
        finish(walk, frame, i, SUCCEEDED if data["ran"] else SKIPPED, chosen)


def child_settled(walk: Walk, kid: Frame) -> None:
    """A frame has settled: its patch is merged and its owner decides what that means."""
    frame, i = kid.parent, kid.owner
    assert frame is not None
    outcome = frame_outcome(walk, kid)
    walk.drop_frame(kid)
    if kid.base is not None and outcome.status != CANCELLED:
        for name, value in kid.patch().items():
            frame.write(name, value)
    if outcome.status in (FAILED, CANCELLED):
        add_voids(frame, i, kid.voids)
    if frame.stop is not None:
        stopped_owner(walk, frame, i)
    elif "ending" in frame.data[i]:
        conclude(walk, frame, i)
    else:
        _tell_owner(walk, frame, i, kid, outcome)


def _tell_owner(walk: Walk, frame: Frame, i: int, kid: Frame, outcome: Outcome) -> None:
    if kid.role == "token":
        cycles.token_settled(walk, frame, i, kid, outcome)
        return
    node = frame.layout.nodes[i]
    assert isinstance(node, Owner)
    try:
        CHILD_SETTLED[node.kind](walk, frame, i, node, kid, outcome)
    except ExpressionError as error:
        expression_failed(walk, frame, i, error)


def stopped_owner(walk: Walk, frame: Frame, i: int) -> None:
    """An owner in a frame that is being stopped ends with the last thing it opened."""
    if nothing_left(frame, i) and frame.status[i] == RUNNING:
        finish(walk, frame, i, stopped_state(frame))
