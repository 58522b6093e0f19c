"""Snapshots of a walk: taken when the records since the last one outweigh the state, so they cost no more than the
records do, and a resume costs no more than a snapshot and as many records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import orjson

from durable import DurableContext
from interpreter.driver.flight import Flight
from interpreter.driver.forks import Forks
from interpreter.plan import Call
from interpreter.walker import Evaluator, Program, Walk, restore, snapshot, unit_of
from interpreter.walker.commands import (
    EmitEvent,
    Evaluate,
    OpenFork,
    RunCall,
    SetTimer,
    Spawn,
    Unit,
    WaitForEvent,
)

# Fewer bytes are read and replayed in no time.
_LEAST: Final = 16 * 1024
_COMMANDS: Final[dict[str, Any]] = {kind.tag: kind for kind in (Evaluate, SetTimer, WaitForEvent, EmitEvent, OpenFork)}


class Saving:
    """When to take a snapshot of one walk, and which records it leaves open."""

    __slots__ = ("_ctx", "_last", "due", "positions")

    def __init__(self, ctx: DurableContext) -> None:
        self._ctx = ctx
        self._last = 0
        self.due = _LEAST
        self.positions: dict[str, list[int]] = {}  # of open records, by name
        ctx.positions = self.positions

    def done(self, flight: Flight) -> None:
        """An operation is over: no snapshot needs its records any more."""
        for name in flight.record_names():
            self.positions.pop(name, None)

    def consider(self, walk: Walk, flights: Iterable[Flight], forks: Forks) -> None:
        """Take a snapshot if it is lighter than the records since the last one."""
        if self._ctx.replaying or walk.settled is not None:
            return
        form = {
            "walk": snapshot(walk),
            "open": [_form(flight) for flight in flights],
            "forks": forks.form(),
            "spawned": self._ctx.spawned,
        }
        data = orjson.dumps(form)
        if self.is_worth(len(data)):
            self._take(data)
        else:
            self.due = self._last + len(data)

    def is_worth(self, size: int) -> bool:
        """Whether a snapshot of this size is lighter than what it saves a replay from reading."""
        return size <= self._ctx.weight - self._last

    def _take(self, data: bytes) -> None:
        self._ctx.save(data)
        self._last = self._ctx.weight
        self.due = self._last + max(_LEAST, len(data))


def _form(flight: Flight) -> dict[str, Any]:
    """An operation under way. Of units only the paths: the walk knows the rest, and has it once for all of them."""
    command = flight.command
    form: dict[str, Any]
    if type(command) is Unit:
        form = {"tag": Unit.tag, "path": command.path}
    elif type(command) is Spawn:
        form = {"tag": Spawn.tag, "path": command.path, "units": [unit.path for unit in command.units]}
    else:
        form = command.to_json()
    return {**form, "stopping": True} if flight.stopping else form


class Resumed:
    """What a snapshot holds: the walk, and the operations that were under way."""

    def __init__(self, program: Program, evaluator: Evaluator, form: dict[str, Any]) -> None:
        self.walk = restore(program, evaluator, form["walk"])
        self.forks: dict[str, Any] = form["forks"]
        self.spawned: bool = form["spawned"]
        self.open = [(self._command(dict(one)), "stopping" in one) for one in form["open"]]

    def _command(self, form: dict[str, Any]) -> Any:
        form.pop("stopping", None)
        tag = form.pop("tag")
        if tag == Unit.tag:
            return unit_of(self.walk, form["path"])
        if tag == Spawn.tag:
            return Spawn(form["path"], [unit_of(self.walk, path) for path in form["units"]])
        frame, i = self.walk.flight.get(form["path"], (None, -1))
        node = frame.layout.nodes[i] if frame is not None else None
        if tag == RunCall.tag:
            assert isinstance(node, Call)
            return RunCall(form["path"], form["args"], node)
        command = _COMMANDS[tag](**form)
        if hasattr(command, "retry") and node is not None:
            command.retry = node.retry
        return command
