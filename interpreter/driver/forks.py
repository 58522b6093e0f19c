"""The units of forks that run as tasks of their own: which wait for their cap, which run, which are to be stopped."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from durable import Handle
from interpreter.walker import Walk, unit_of
from interpreter.walker.commands import Spawn, Unit

# By path, so that a unit is taken out of the middle at once: stopping a fork takes out all of them.
Queue = OrderedDict[str, Unit]


class Forks:
    """Open units by their paths, each with its fork in `fork_of`. A unit is queued, then being started, then running,
    then gone."""

    __slots__ = ("_doomed", "_queued", "_workflow", "fork_of", "running")

    def __init__(self, workflow: str) -> None:
        self.running: dict[str, Handle] = {}
        self._workflow = workflow
        self.fork_of: dict[str, str] = {}
        self._queued: dict[str, Queue] = {}
        self._doomed: set[str] = set()  # to be stopped as soon as they have been started

    def admit(self, command: Spawn) -> Spawn:
        """A fork opens: what to start at once. The others come when one of these has gone."""
        first = command.units if command.cap is None else command.units[: command.cap]
        self._queued[command.path] = _queue(command.units[len(first) :])
        self.fork_of |= {unit.path: command.path for unit in command.units}
        return Spawn(command.path, first)

    def started(self, units: Iterable[Unit], handles: Iterable[Handle]) -> None:
        self.running |= {unit.path: handle for unit, handle in zip(units, handles, strict=True)}

    def gone(self, path: str) -> list[Spawn]:
        """A unit has ended: the next of its fork, if one waits."""
        self.running.pop(path, None)
        self._doomed.discard(path)
        fork = self.fork_of.pop(path, None)
        queue = self._queued.get(fork) if fork is not None else None
        if not queue:
            return []
        _, unit = queue.popitem(last=False)
        return [Spawn(unit.path, [unit])]

    def stop(self, path: str) -> bool:
        """A unit that does not run yet is no longer wanted. True: it is just being started, and will have to end."""
        fork = self.fork_of.get(path)
        if fork is None:
            return False
        if self._queued[fork].pop(path, None) is not None:
            return False
        self._doomed.add(path)
        return True

    def is_doomed(self, path: str) -> bool:
        return path in self._doomed

    # ---------------------------------------------------------------- snapshots

    def form(self) -> dict[str, Any]:
        """As JSON: paths only, for the walk knows the rest."""
        return {
            "running": {path: handle.task_id for path, handle in self.running.items()},
            "queued": {fork: list(queue) for fork, queue in self._queued.items() if queue},
            "doomed": sorted(self._doomed),
        }

    def restore(self, walk: Walk, form: dict[str, Any]) -> None:
        """Go on from a snapshot; units that were just being started come with their command, by `adopt`."""
        self.running = {path: Handle(task_id, self._workflow) for path, task_id in form["running"].items()}
        self._queued = {fork: _queue(unit_of(walk, path) for path in paths) for fork, paths in form["queued"].items()}
        self._doomed = set(form["doomed"])
        self.adopt(walk, [*self.running, *(path for queue in self._queued.values() for path in queue)])

    def adopt(self, walk: Walk, paths: Iterable[str]) -> None:
        for path in paths:
            frame, i = walk.flight[path]
            self.fork_of[path] = frame.path(i)
            self._queued.setdefault(frame.path(i), Queue())


def _queue(units: Iterable[Unit]) -> Queue:
    return Queue((unit.path, unit) for unit in units)
