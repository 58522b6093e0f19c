"""Marked points of the protocol at which a test may kill this process.

`DURABLE_FAULT=flush.sent:3` ends the process with SIGKILL when it comes to that point for the third time. Nothing is
armed otherwise, and a point costs one comparison.
"""

from __future__ import annotations

import os
import signal

POINTS = (
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


class _Trap:
    def __init__(self, spec: str | None):
        name, _, count = (spec or "").partition(":")
        self.name = name
        self.left = int(count or 1)


_trap = _Trap(os.environ.get("DURABLE_FAULT"))
armed = bool(_trap.name)


def arm(spec: str | None) -> None:
    """Set the trap from inside the process; None takes it away."""
    global _trap, armed
    _trap = _Trap(spec)
    armed = bool(_trap.name)
    if armed and _trap.name not in POINTS:
        raise ValueError(f"unknown fault point {_trap.name!r}; known are {', '.join(POINTS)}")


def point(name: str) -> None:
    """Die here, if the trap says so."""
    if armed and name == _trap.name:
        _trap.left -= 1
        if _trap.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
