"""Stopping: what a cancel, a timeout, a fail-fast or an exit does to the frames under it.

The decision comes first, then what runs is cancelled, and a frame settles when all of it is final.
"""

from __future__ import annotations

from typing import Any

from interpreter.walker.commands import Cancel, CancelTimer, Timer
from interpreter.walker.frame import Frame
from interpreter.walker.settling import finish
from interpreter.walker.states import CANCELLED, EXITED, PARKED, RUNNING, WAITING
from interpreter.walker.walk import SETTLE, Walk


def stop_frame(walk: Walk, frame: Frame, why: str) -> None:
    """Start nothing more in a frame and cancel what runs in it. The first reason stands."""
    if frame.stop is not None:
        return
    frame.stop = why
    for i in range(frame.layout.size):
        state = frame.status[i]
        if state in (WAITING, PARKED):
            finish(walk, frame, i, stopped_state(frame))
        elif state == RUNNING:
            stop_node(walk, frame, i)
    if frame.open == 0:
        walk.todo.append((frame, SETTLE))


def stopped_state(frame: Frame) -> str:
    """What a node that was stopped in this frame becomes."""
    return EXITED if frame.stop == "exit" else CANCELLED


def stop_node(walk: Walk, frame: Frame, i: int) -> None:
    """Cancel what a running node has under way; it is final once nothing of it is left."""
    halt_owned(walk, frame, i)
    path = frame.path(i)
    if path in walk.flight:
        _stop_flight(walk, frame, i, path)
    elif nothing_left(frame, i):
        finish(walk, frame, i, stopped_state(frame))


def halt_owned(walk: Walk, frame: Frame, i: int) -> None:
    """Stop the frames and tasks a node opened."""
    drop_timeout(walk, frame, i)
    for kid in list(frame.kids.get(i, {}).values()):
        stop_frame(walk, kid, frame.stop or "cancel")
    for unit in frame.data.get(i, {}).get("units", {}):
        walk.out.append(Cancel(unit))


def nothing_left(frame: Frame, i: int) -> bool:
    """Whether every frame and task a node opened has settled, and it asks for nothing."""
    data = frame.data.get(i, {})
    return not frame.kids.get(i) and not data.get("units") and not data.get("asking")


def drop_timeout(walk: Walk, frame: Frame, i: int) -> None:
    """The timeout of an owner no longer matters."""
    if frame.data.get(i, {}).pop("timer", None):
        walk.out.append(CancelTimer(frame.path(i), "timeout"))


def _stop_flight(walk: Walk, frame: Frame, i: int, path: str) -> None:
    if frame.data.get(i, {}).get("asking"):
        return  # The answer is on its way and will find the frame stopped.
    timer = own_timer(frame, i)
    if timer is None:
        walk.out.append(Cancel(path))
        return
    walk.out.append(CancelTimer(path, timer))
    del walk.flight[path]
    finish(walk, frame, i, stopped_state(frame))


def own_timer(frame: Frame, i: int) -> Timer | None:
    """The timer a running node waits for, if that is what it does."""
    if frame.layout.nodes[i].kind == "wait":
        return "wait"
    return "backoff" if frame.data.get(i, {}).get("backoff") else None


def leave_frame(walk: Walk, frame: Frame, exit: dict[str, Any]) -> None:
    """An exit leaves this frame and all inside it."""
    frame.exit = exit
    stop_frame(walk, frame, "exit")
