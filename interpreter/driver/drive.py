"""The driver: performs what the walker asks for and feeds it the records, in the one order they were made in.

An operation that has its record feeds the walker on the spot, before anything else can run; the context delivers
records in the order of their positions, on the first run and on every replay, so the walker sees one order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable
from typing import Any, Final

from durable import DurableContext, Handle
from interpreter.driver import units
from interpreter.driver.functions_protocol import Functions
from interpreter.driver.notes import Notes
from interpreter.driver.operations import PERFORM
from interpreter.driver.saving import Saving
from interpreter.walker import Walk, apply
from interpreter.walker.commands import (
    Cancel,
    CancelTimer,
    Command,
    Note,
    SetTimer,
    SettleRun,
    Spawn,
    Unit,
)
from interpreter.walker.records import Record, Settled

# What a cancelled operation may have recorded besides its own name.
_SUFFIXES: Final = ("", ":took", ":spawn", ":open")


class Flight:
    """One operation under way. `task` is who performs it; the last of a chain inherits it."""

    __slots__ = ("command", "name", "task")

    def __init__(self, name: str, command: Any):
        self.name = name
        self.command = command
        self.task: asyncio.Task[None] | None = None


class Drive:
    """One walk of one task, from its first record to its end."""

    def __init__(self, ctx: DurableContext, walk: Walk, functions: Functions, workflow: str, calls: dict[Any, Any]):
        self.ctx = ctx
        self.walk = walk
        self.functions = functions
        self.calls = calls
        self.workflow = workflow
        self.inputs: dict[str, Any] = {}
        self.spawned: dict[str, Handle] = {}
        self.flights: dict[str, Flight] = {}
        self._queued: dict[str, deque[Unit]] = {}  # units that wait for their cap, by the fork they belong to
        self._fork_of: dict[str, str] = {}
        self._notes = Notes(ctx)
        self._saving = Saving(ctx)
        self._end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self, first: Record | list[Any]) -> SettleRun:
        """Walk to the end, from the first record or from the commands that a snapshot left unanswered.

        A chain of operations runs right here; several at once, in tasks of their own.
        """
        try:
            started = [self._flight(one) for one in first] if isinstance(first, list) else self._feed(first)
            while len(started) == 1 and len(self.flights) == 1:
                record = await self._perform(started[0])
                started = self._landed(started[0], record)
            for flight in started:
                self._launch(flight)
            if self.walk.settled is None:
                await self._end
        finally:
            self._drop_all()
        self._notes.close()
        assert self.walk.settled is not None
        return self.walk.settled

    def name_of(self, command: SetTimer) -> str:
        """The name of a timer: of an owner's, with the attempt that it belongs to."""
        if command.timer == "wait":
            return command.path
        key, _, node = command.path.rpartition("/")
        frame = self.walk.frames.get(key) if command.path else None
        attempt = frame.data.get(frame.layout.index[node], {}).get("attempt", 1) if frame is not None else 1
        return f"{command.path}~{attempt}:{command.timer}"

    # ---------------------------------------------------------------- flights

    def _launch(self, flight: Flight) -> None:
        flight.task = asyncio.get_running_loop().create_task(self._fly(flight))

    async def _fly(self, flight: Flight) -> None:
        """Perform operations one after another as long as each leads to the next; others get tasks of their own."""
        try:
            while True:
                record = await self._perform(flight)
                started = self._landed(flight, record)
                if not started:
                    break
                for other in started[1:]:
                    self._launch(other)
                task, flight = flight.task, started[0]
                flight.task = task
        except asyncio.CancelledError:
            pass
        except BaseException as exc:
            # A stop, or an error of ours: the task's own code must end with it.
            if not self._end.done():
                self._end.set_exception(exc)
        else:
            if self.walk.settled is not None and not self._end.done():
                self._end.set_result(None)

    def _perform(self, flight: Flight) -> Awaitable[Record | None]:
        return PERFORM[type(flight.command)](self, flight.command)

    def _landed(self, flight: Flight, record: Record | None) -> list[Flight]:
        """An operation is done: what follows from its record."""
        del self.flights[flight.name]
        self._saving.done(flight.name, flight.command)
        return self._units_of(flight.command) if record is None else self._feed(record)

    def _drop_all(self) -> None:
        for flight in self.flights.values():
            if flight.task is not None:
                flight.task.cancel()

    # ---------------------------------------------------------------- the walker

    def _feed(self, record: Record) -> list[Flight]:
        """Move the walker by one record, and by those that follow from it at once; the operations to begin."""
        started: list[Flight] = []
        answers: list[Record] = [record]
        for given in answers:
            for command in apply(self.walk, given):
                if type(command) in PERFORM:
                    started.append(self._flight(command))
                else:
                    self._obey(command, answers)
            if self._fork_of and type(given) is Settled and given.path in self._fork_of:
                started.extend(self._next_unit(given.path))
        if self.ctx.weight >= self._saving.due and not self._fork_of:
            self._saving.consider(self.walk, [flight.command for flight in self.flights.values()])
        return started

    def _obey(self, command: Command, answers: list[Record]) -> None:
        """What takes no time: notes, and ends of operations that are no longer wanted."""
        if isinstance(command, Note):
            self._notes.keep(command)
        elif isinstance(command, CancelTimer):
            self._cancel(self._timer_name(command))
        elif isinstance(command, Cancel):
            self._cancel(command.path)
            answers.append(Settled(command.path, "cancelled"))

    def _flight(self, command: Any) -> Flight:
        name = command.path
        if type(command) is SetTimer:
            name = self.name_of(command)
        elif type(command) is Spawn:
            name = f"{name}:spawn"
        flight = self.flights[name] = Flight(name, command)
        return flight

    def _timer_name(self, command: CancelTimer) -> str:
        if command.timer == "wait":
            return command.path
        # An owner's timer is dropped with its attempt: there is only one of them at a time.
        tail = f":{command.timer}"
        mine = (name for name in self.flights if name.endswith(tail) and name.rpartition("~")[0] == command.path)
        return next(mine, "")

    def _cancel(self, name: str) -> None:
        """End an operation without its record. Where it had one already, a replay comes to the same point and
        passes over it."""
        self._cancel_unit(name)
        flight = self.flights.pop(name, None)
        if flight is None:
            return
        if flight.task is not None:
            flight.task.cancel()
        self._saving.done(name, flight.command)
        for suffix in _SUFFIXES:
            self.ctx.forget(name + suffix)

    # ---------------------------------------------------------------- units

    async def spawn(self, command: Spawn) -> None:
        """Start the tasks of as many units as the cap allows, with one record."""
        first = command.units if command.cap is None else command.units[: command.cap]
        group = await units.spawn(self.ctx, self.workflow, command.path, first, self.inputs)
        self.spawned |= {unit.path: handle for unit, handle in zip(first, group, strict=True)}

    def _units_of(self, command: Spawn) -> list[Flight]:
        first = command.units if command.cap is None else command.units[: command.cap]
        if command.path not in self._fork_of:
            self._queued[command.path] = deque(command.units[len(first) :])
            self._fork_of |= {unit.path: command.path for unit in command.units}
        return [self._flight(unit) for unit in first]

    def _next_unit(self, ended: str) -> list[Flight]:
        """A unit came back: another of its fork may begin."""
        queue = self._queued.get(self._fork_of.pop(ended))
        if not queue:
            return []
        unit = queue.popleft()
        return [self._flight(Spawn(unit.path, [unit]))]

    def _cancel_unit(self, name: str) -> None:
        fork = self._fork_of.pop(name, None)
        if fork is None:
            return
        self._queued[fork] = deque(unit for unit in self._queued[fork] if unit.path != name)
        handle = self.spawned.get(name)
        if handle is not None:
            self.ctx.cancel_child(handle, "its fork was stopped")
        if f"{name}:spawn" in self.flights:
            self._cancel(f"{name}:spawn")
