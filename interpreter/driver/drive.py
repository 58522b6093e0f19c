"""The driver: performs what the walker asks for and feeds it the records, in the one order they were made in.

An operation that has its record feeds the walker on the spot, before anything else can run; the context delivers
records in the order of their positions, on the first run and on every replay, so the walker sees one order.
"""

from __future__ import annotations

import asyncio
from typing import Any

from durable import DurableContext, Handle, StepFailed
from durable.errors import Cancelled
from interpreter.driver import units
from interpreter.driver.failure import failed
from interpreter.driver.flight import Flight
from interpreter.driver.forks import Forks
from interpreter.driver.functions_protocol import Functions
from interpreter.driver.notes import Notes
from interpreter.driver.operations import PERFORM
from interpreter.driver.saving import Resumed, Saving
from interpreter.walker import Walk, apply, queue_of
from interpreter.walker.commands import Cancel, CancelTimer, Command, Note, RunCall, SetTimer, SettleRun, Spawn, Unit
from interpreter.walker.records import Record, Settled


class Drive:
    """One walk of one task, from its first record to its end."""

    __slots__ = (
        "_dropped",
        "_end",
        "_inline",
        "_notes",
        "_positions",
        "_saving",
        "_timers",
        "_why",
        "calls",
        "ctx",
        "flights",
        "forks",
        "functions",
        "inputs",
        "walk",
        "workflow",
    )

    def __init__(self, ctx: DurableContext, walk: Walk, functions: Functions, workflow: str, calls: dict[Any, Any]):
        self.ctx = ctx
        self.walk = walk
        self.functions = functions
        self.calls = calls
        self.workflow = workflow
        self.inputs: dict[str, Any] = {}
        self.flights: dict[str, Flight] = {}
        self.forks = Forks(workflow)
        self._timers: dict[tuple[str, str], str] = {}  # the names of owners' timers, by path and kind
        self._notes = Notes(ctx)
        self._saving = Saving(ctx)
        self._positions = self._saving.positions
        self._end: asyncio.Future[None] | None = None  # of a walk that has several operations under way
        self._inline: asyncio.Task[Any] | None = None
        self._why: str | None = None
        self._dropped = False  # since the walker was fed last
        ctx.on_stop(self._told_to_stop)

    async def run(self, first: Record | Resumed) -> SettleRun:
        """Walk to the end, from the first record or from where a snapshot stands."""
        if self.ctx.replaying:
            await self._notes.load()
        try:
            started = self._resume(first) if isinstance(first, Resumed) else self._feed(first)
            started = await self._chain(started)
            if self.walk.settled is None:
                await self._side_by_side(started)
        finally:
            self._drop_all()
            # The context and its drive know each other: parted, what a walk held is free without the collector.
            self.ctx.on_stop(_nobody)
        self._notes.close()
        assert self.walk.settled is not None
        return self.walk.settled

    async def _chain(self, started: list[Flight]) -> list[Flight]:
        """Operations that follow one from another run right here; where several are to begin, they are given back."""
        self._inline = asyncio.current_task()
        try:
            while len(started) == 1 and len(self.flights) == 1:
                flight = started[0]
                try:
                    outcome = await PERFORM[type(flight.command)](self, flight.command)
                except StepFailed as exc:
                    outcome = failed(self.ctx, flight.command.path, exc)
                started = self._landed(flight, outcome)
            return started
        except asyncio.CancelledError:
            if self._why is None or self._inline is None or self._inline.uncancel():
                raise
            raise Cancelled(self._why) from None
        finally:
            self._inline = None

    async def _side_by_side(self, started: list[Flight]) -> None:
        """Several operations at once, in tasks of their own, until the walk ends."""
        self._end = asyncio.get_running_loop().create_future()
        for flight in started:
            self._launch(flight)
        if self._why is not None:
            raise Cancelled(self._why)
        await self._end

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
                try:
                    outcome = await PERFORM[type(flight.command)](self, flight.command)
                except StepFailed as exc:
                    outcome = failed(self.ctx, flight.command.path, exc)
                started = self._landed(flight, outcome)
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
            if self._end is not None and not self._end.done():
                self._end.set_exception(exc)
        else:
            if self.walk.settled is not None and self._end is not None and not self._end.done():
                self._end.set_result(None)

    def _landed(self, flight: Flight, outcome: Any) -> list[Flight]:
        """An operation is done: what follows from it."""
        name, command = flight.name, flight.command
        del self.flights[name]
        if type(command) is RunCall and type(outcome) is not Settled:
            # A step that succeeded, the hot case: its records have its own name.
            self._positions.pop(name, None)
            return self._feed(Settled(name, "succeeded", outcome))
        self._saving.done(flight)
        return self._units_of(command) if type(command) is Spawn else self._feed(outcome)

    def _flight(self, command: Any) -> Flight:
        name, kind = command.path, type(command)
        children: list[Handle] | None = None
        if kind is RunCall:
            children = [] if command.call.via == "workflow" else None
        elif kind is SetTimer:
            name = self.name_of(command)
            self._timers[command.path, command.timer] = name
        elif kind is Spawn:
            name = f"{name}:spawn"
        elif kind is Unit:
            children = [self.forks.running[name]]
        flight = self.flights[name] = Flight(name, command, children)
        return flight

    def _resume(self, saved: Resumed) -> list[Flight]:
        """The operations that were under way when a snapshot was taken."""
        self.ctx.spawned = self.ctx.spawned or saved.spawned
        self.forks.restore(self.walk, saved.forks)
        started = []
        for command, stopping in saved.open:
            if type(command) is Spawn:
                self.forks.adopt(self.walk, [unit.path for unit in command.units])
            flight = self._flight(command)
            flight.stopping = stopping
            started.append(flight)
        return started

    # ---------------------------------------------------------------- the walker

    def _feed(self, record: Record) -> list[Flight]:
        """Move the walker by one record, and by those that follow from it at once; the operations to begin."""
        commands = apply(self.walk, record)
        if len(commands) == 1 and type(commands[0]) is RunCall and not self.forks.fork_of:
            # One step leads to the next, and to nothing else.
            started = [self._flight(commands[0])]
        else:
            started = self._follow(record, commands)
        if self._notes.comparing:
            self._notes.fed()
        if self.ctx.weight >= self._saving.due:
            self._saving.consider(self.walk, self.flights.values(), self.forks)
        return started

    def _follow(self, record: Record, commands: list[Command]) -> list[Flight]:
        started: list[Flight] = []
        answers = [record]
        self._dropped = False
        for given in answers:
            for command in commands if given is record else apply(self.walk, given):
                if type(command) is Spawn:
                    started.append(self._flight(self.forks.admit(command)))
                elif type(command) in PERFORM:
                    started.append(self._flight(command))
                else:
                    self._obey(command, answers)
            if type(given) is Settled:
                started += map(self._flight, self.forks.gone(given.path))
        # What was begun and given up by the same record never starts.
        return [one for one in started if self.flights.get(one.name) is one] if self._dropped else started

    def _obey(self, command: Command, answers: list[Record]) -> None:
        """What takes no time: notes, and ends of operations that are no longer wanted."""
        if isinstance(command, Note):
            self._notes.keep(command)
        elif isinstance(command, CancelTimer):
            name = self._timers.pop((command.path, command.timer), "")
            if name in self.flights:
                self._drop(self.flights[name])
        elif isinstance(command, Cancel) and self._stop(command.path):
            answers.append(Settled(command.path, "cancelled"))

    # ---------------------------------------------------------------- stopping

    def _stop(self, path: str) -> bool:
        """End what runs under a path. True: it is over at once and without a record; else its record will come."""
        flight = self.flights.get(path)
        if flight is None:
            return not self.forks.stop(path)
        if flight.children is None:
            self._drop(flight)
            return True
        flight.stopping = True
        self.stop_children(flight)
        return False

    def stop_children(self, flight: Flight) -> None:
        """Ask the tasks and runs that an operation started to end."""
        for child in flight.children or ():
            self.ctx.cancel_child(child, "what it belongs to was stopped")

    def _drop(self, flight: Flight) -> None:
        """End an operation without its record: the step that it runs is cancelled, in a process of its own killed.
        Where it had a record already, a replay comes to the same point and passes over it."""
        del self.flights[flight.name]
        self._dropped = True
        if flight.task is not None:
            flight.task.cancel()
        self._saving.done(flight)
        for name in flight.record_names():
            self.ctx.forget(name)

    def _told_to_stop(self, why: str) -> None:
        """The task was asked to end: nothing that runs here is waited for."""
        self._why = why
        if self._inline is not None:
            self._inline.cancel()
        elif self._end is not None and not self._end.done():
            self._end.set_exception(Cancelled(why))
        self._drop_all()

    def _drop_all(self) -> None:
        for flight in self.flights.values():
            if flight.task is not None:
                flight.task.cancel()
        if self._end is not None and self._end.done() and not self._end.cancelled():
            # Whoever ended the walk another way has no use for it.
            self._end.exception()

    # ---------------------------------------------------------------- units

    async def spawn(self, command: Spawn) -> None:
        """Start the tasks of units, with one record."""
        queue = queue_of(self.walk, command.units[0])  # one fork's units, so one queue
        group = await units.spawn(self.ctx, self.workflow, command, self.inputs, queue)
        self.forks.started(command.units, group)

    def _units_of(self, command: Spawn) -> list[Flight]:
        """Units have their tasks: wait for each, and stop those that were given up meanwhile."""
        started = [self._flight(unit) for unit in command.units]
        for flight in started:
            if self.forks.is_doomed(flight.name):
                self._stop(flight.name)
        return started


def _nobody(why: str) -> None:
    """Who hears of a stop after the end of a walk."""
