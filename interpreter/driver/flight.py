"""One operation of a walk that is under way."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any

from durable import Handle
from interpreter.walker.commands import OpenFork, RunCall, WaitForEvent


class Flight:
    """Who performs a command. `task` is its own; the last of a chain inherits it.

    An operation that has `children` (tasks or runs that it started) is never just dropped: it is told that it is
    `stopping`, stops them, and ends when they have. None: it may be dropped at any time.
    """

    __slots__ = ("children", "command", "name", "stopping", "task")

    def __init__(self, name: str, command: Any, children: list[Handle] | None = None):
        self.name = name
        self.command = command
        self.children = children
        self.stopping = False
        self.task: asyncio.Task[None] | None = None

    def record_names(self) -> Iterable[str]:
        """Every name that the operation may have records under."""
        command = self.command
        if type(command) is RunCall and command.call.via != "workflow":
            return (self.name,)
        return (f"{self.name}:open",) if type(command) is OpenFork else self._names_of_attempts()

    def _names_of_attempts(self) -> Iterator[str]:
        command = self.command
        yield self.name
        if type(command) is RunCall:
            yield f"{self.name}:start"
        if type(command) in (RunCall, WaitForEvent):
            for attempt in range(2, 1 + sum(rule.attempts for rule in command.retry)):
                yield from (f"{self.name}~{attempt}{part}" for part in ("", ":rest", ":start"))
