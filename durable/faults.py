"""Marked points of the protocol at which a test may kill this process, or watch it.

`DURABLE_FAULT=flush.sent:3` ends the process with SIGKILL when it comes to that point for the third time. Nothing is
armed otherwise, and a point costs one comparison.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

WORKER_POINTS = (
    "claim.before",
    "claim.after",
    "step.before",
    "step.after",
    "flush.before",
    "flush.sent",
    "flush.after",
    "park.before",
    "park.after",
    "resume.before",
    "pass.before",
    "pass.sent",
    "pass.after",
    "end.before",
    "end.after",
    "transaction.before",
    "transaction.after",
)
SCHEDULER_POINTS = (
    "look.before",
    "look.decided",
    "look.applied",
    "look.after",
    "trigger.applied",
    "backfill.applied",
    "deadline.applied",
)
POINTS = WORKER_POINTS + SCHEDULER_POINTS


class _Trap:
    def __init__(self, spec: str | None):
        name, _, count = (spec or "").partition(":")
        self.name = name
        self.left = int(count or 1)


# Called with the name of each point and the step it is about, if any; what they raise is raised there.
Watcher = Callable[[str, Any], None]

_trap = _Trap(os.environ.get("DURABLE_FAULT"))
_watchers: list[Watcher] = []
armed = bool(_trap.name)


def arm(spec: str | None) -> None:
    """Set the trap from inside the process; None takes it away."""
    global _trap, armed
    _trap = _Trap(spec)
    armed = bool(_trap.name or _watchers)
    if _trap.name and _trap.name not in POINTS:
        raise ValueError(f"unknown fault point {_trap.name!r}; known are {', '.join(POINTS)}")


def watch(watcher: Watcher) -> None:
    """Have every point told to `watcher`, until `unwatch`."""
    global armed
    _watchers.append(watcher)
    armed = True


def unwatch(watcher: Watcher) -> None:
    global armed
    _watchers.remove(watcher)
    armed = bool(_trap.name or _watchers)


def point(name: str, about: Any = None) -> None:
    """Die here, if the trap says so."""
    if not armed:
        return
    for watcher in _watchers:
        watcher(name, about)
    if name == _trap.name:
        _trap.left -= 1
        if _trap.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
