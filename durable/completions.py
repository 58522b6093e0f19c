"""Waiting for runs to end: by notification, with a slow poll behind it because a notification can be lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

import psycopg

from durable.ending import end
from durable.errors import NoSuchRun, StoreUnavailable
from durable.listener import Listener

# Workers tell of ends only while somebody says this.
AWAIT_ENDS = "select durable.await_ends()"

Ended = TypeVar("Ended")
Finished = Callable[[list[str]], Awaitable[set[str]]]


class Completions:
    """Futures of runs that somebody in this process waits for."""

    POLL = 2.0

    def __init__(self, dsn: str, finished: Finished):
        self._finished = finished
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self._wake = asyncio.Event()
        self._listener = Listener(dsn, "durable-client", "durable_done", self._hear, AWAIT_ENDS)
        self._tasks: list[asyncio.Task[None]] = []

    async def wait(self, run_id: str, ended: Callable[[], Awaitable[Ended | None]]) -> Ended:
        """What the run has come to, as soon as `ended` has something to say of it."""
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._listener.run()), asyncio.create_task(self._look())]
        await self._listener.ready.wait()
        while True:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(run_id, set()).add(future)
            try:
                if (found := await ended()) is not None:
                    return found
                await future
            finally:
                self._forget(run_id, future)

    async def close(self) -> None:
        await end(self._tasks)

    def _forget(self, run_id: str, future: asyncio.Future[None]) -> None:
        waiters = self._waiting.get(run_id, set())
        waiters.discard(future)
        if not waiters:
            self._waiting.pop(run_id, None)

    def _hear(self, payload: str) -> None:
        if payload == "a":
            self._wake.set()
            return
        # Sent after the commit of the runs' ends: true without asking again.
        for run_id in payload.split(","):
            self._resolve(run_id)

    async def _look(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.POLL):
                    await self._wake.wait()
            self._wake.clear()
            # A database that is away for longer is asked again at the next look.
            with contextlib.suppress(StoreUnavailable, psycopg.OperationalError, NoSuchRun):
                for run_id in await self._finished(list(self._waiting)) if self._waiting else ():
                    self._resolve(run_id)

    def _resolve(self, run_id: str) -> None:
        for future in self._waiting.get(run_id, ()):
            if not future.done():
                future.set_result(None)
