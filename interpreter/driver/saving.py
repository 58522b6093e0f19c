"""Snapshots of a walk: taken when the records since the last one outweigh the state, so they cost no more than the
records do, and a resume costs no more than a snapshot and as many records."""

from __future__ import annotations

from typing import Any, Final

import orjson

from durable import DurableContext
from interpreter.walker import Evaluator, Program, Walk, restore, snapshot
from interpreter.walker.commands import (
    EmitEvent,
    Evaluate,
    OpenFork,
    RunCall,
    SetTimer,
    WaitForEvent,
)

# Fewer bytes are read and replayed in no time.
_LEAST: Final = 16 * 1024
_COMMANDS: Final[dict[str, Any]] = {
    kind.tag: kind for kind in (RunCall, Evaluate, SetTimer, WaitForEvent, EmitEvent, OpenFork)
}


class Saving:
    """When to take a snapshot of one walk, and which records it leaves open."""

    def __init__(self, ctx: DurableContext) -> None:
        self._ctx = ctx
        self._last = 0
        self.due = _LEAST
        ctx.positions = {}

    def done(self, name: str, command: Any) -> None:
        """An operation is over: no snapshot needs its records any more."""
        positions = self._ctx.positions
        assert positions is not None
        positions.pop(name, None)
        if not (type(command) is RunCall and command.via != "workflow"):
            # The others record under names derived from theirs.
            for other in [key for key in positions if key.startswith((f"{name}:", f"{name}~"))]:
                del positions[other]

    def consider(self, walk: Walk, open_commands: list[Any]) -> None:
        """Take a snapshot if it is lighter than the records since the last one."""
        if self._ctx.replaying or walk.settled is not None:
            return
        form = {"walk": snapshot(walk), "open": [command.to_json() for command in open_commands]}
        data = orjson.dumps(form)
        if len(data) > self._ctx.weight - self._last:
            self.due = self._last + len(data)
            return
        self._ctx.save(data)
        self._last = self._ctx.weight
        self.due = self._last + max(_LEAST, len(data))


def resumed(program: Program, evaluator: Evaluator, form: dict[str, Any]) -> tuple[Walk, list[Any]]:
    """The walk of a snapshot, and the commands that were unanswered when it was taken."""
    walk = restore(program, evaluator, form["walk"])
    return walk, [_command(walk, one) for one in form["open"]]


def _command(walk: Walk, form: dict[str, Any]) -> Any:
    body = dict(form)
    command = _COMMANDS[body.pop("tag")](**body)
    if hasattr(command, "retry"):
        frame, i = walk.flight[command.path]
        command.retry = frame.layout.nodes[i].retry
    return command
