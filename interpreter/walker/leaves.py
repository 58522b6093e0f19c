"""Firing the nodes that own no frames."""

from __future__ import annotations

from typing import Any

from interpreter.errors import ExpressionError
from interpreter.plan import AwaitEvent, Call, Case, Choose, Compute, Emit, Node, Pass, Return, Wait
from interpreter.walker.commands import EmitEvent, Evaluate, RunCall, SetTimer, WaitForEvent
from interpreter.walker.frame import Frame
from interpreter.walker.routes import Chosen
from interpreter.walker.scope import Scope, clip
from interpreter.walker.settling import finish, succeed
from interpreter.walker.states import EXITED, SUCCEEDED
from interpreter.walker.stops import leave_frame
from interpreter.walker.walk import Walk


def fire_call(walk: Walk, frame: Frame, i: int, node: Call) -> None:
    """Render the arguments and ask for the call."""
    layout = frame.layout
    args = layout.args[i]
    if args is not None:
        args = walk.evaluator.value(args, Scope(frame, i, walk.globals, walk.now))
    path = frame.prefix + layout.ids[i]
    walk.flight[path] = (frame, i)
    walk.out.append(RunCall(path, args, node))


def fire_compute(walk: Walk, frame: Frame, i: int, node: Compute) -> None:
    """Evaluate in place, or ask the driver if the expression looks outside."""
    if node.recorded:
        walk.fly(frame, i, Evaluate(frame.path(i), node.value))
    else:
        succeed(walk, frame, i, walk.evaluator.value(node.value, walk.scope_of(frame, i)))


def fire_choose(walk: Walk, frame: Frame, i: int, node: Choose) -> None:
    """Select labels; the gates with other labels are dead."""
    scope = walk.watching(frame, i)
    labels, on = _labels(walk, node, scope)
    decision = {"chose": labels, "saw": scope.seen}
    if node.on is not None:
        decision["on"] = clip(on)
    frame.note(i)["decision"] = decision
    walk.tell(frame, i, "route", decision)
    for name in node.bind:
        frame.write(name, labels[0] if labels else None)
    chosen: Chosen = dict.fromkeys(labels)
    finish(walk, frame, i, SUCCEEDED, chosen)


def _labels(walk: Walk, node: Choose, scope: Scope) -> tuple[list[str], Any]:
    on = walk.evaluator.value(node.on, scope) if node.on is not None else None
    labels = []
    for case in node.cases:
        if _case_holds(walk, case, on, scope):
            labels.append(case.label)
            if not node.many:
                break
    if not labels and node.default is not None:
        labels.append(node.default)
    return labels, on


def _case_holds(walk: Walk, case: Case, on: Any, scope: Scope) -> bool:
    if case.equals is not None:
        return case.equals in texts(on)
    return walk.evaluator.truth(case.when, scope)


def texts(value: Any) -> tuple[str, ...]:
    # Booleans and null are spelt one way in Python and another in YAML; authors write either.
    if value is None:
        return ("None", "null")
    if isinstance(value, bool):
        return (str(value), str(value).lower())
    return (str(value),)


def fire_wait(walk: Walk, frame: Frame, i: int, node: Wait) -> None:
    """Set the timer; a wait that is over already is one, too."""
    scope = walk.scope_of(frame, i)
    if node.until is not None:
        until = walk.evaluator.value(node.until, scope)
        walk.fly(frame, i, SetTimer(frame.path(i), "wait", until=until))
        return
    seconds = _seconds(walk.evaluator.value(node.seconds, scope))
    walk.fly(frame, i, SetTimer(frame.path(i), "wait", seconds))


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ExpressionError(f"a wait takes a number of seconds, not {clip(value)!r}", type="TypeError")
    return max(0.0, float(value))


def fire_await_event(walk: Walk, frame: Frame, i: int, node: AwaitEvent) -> None:
    """Ask for the event under its rendered name."""
    scope = walk.scope_of(frame, i)
    event = str(walk.evaluator.value(node.event, scope))
    since = walk.evaluator.value(node.since, scope) if node.since is not None else None
    walk.fly(frame, i, WaitForEvent(frame.path(i), event, since, node.timeout, node.retry))


def fire_emit(walk: Walk, frame: Frame, i: int, node: Emit) -> None:
    """Ask for the event to be appended, with name and payload rendered."""
    scope = walk.scope_of(frame, i)
    event = str(walk.evaluator.value(node.event, scope))
    payload = walk.evaluator.value(node.payload, scope) if node.payload is not None else None
    walk.fly(frame, i, EmitEvent(frame.path(i), event, payload, node.retry))


def fire_pass(walk: Walk, frame: Frame, i: int, node: Pass) -> None:
    succeed(walk, frame, i, None)


def fire_return(walk: Walk, frame: Frame, i: int, node: Return) -> None:
    """Leave frames up to the one this exit means."""
    value = walk.evaluator.value(node.value, walk.scope_of(frame, i)) if node.value is not None else None
    finish(walk, frame, i, EXITED)
    exit = {"exit": node.exit, "value": value, "outcome": node.outcome, "node": frame.path(i)}
    leave_frame(walk, _frame_left_by(frame, node), exit)


def _frame_left_by(frame: Frame, node: Return) -> Frame:
    while frame.parent is not None and not _is_left(frame.role, _kind_of_owner(frame), node):
        frame = frame.parent
    return frame


def _kind_of_owner(frame: Frame) -> str:
    owner: Node | None = frame.parent.layout.nodes[frame.owner] if frame.parent is not None else None
    return owner.kind if owner is not None else ""


def _is_left(role: str, owner: str, node: Return) -> bool:
    if node.exit == "return":
        return role == "call"
    is_loop = owner in ("each", "repeat") and role in ("slot", "iteration")
    return is_loop and node.exit in ("break", "continue")
