"""Notifications: hints from the store, never the truth."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import psycopg
import structlog
from psycopg import pq

from durable.errors import StoreUnavailable
from durable.link import Link, connect

log = structlog.get_logger("durable.listener")

NOTIFY = "select pg_notify($1, $2)"
TELL_ENDS = "select durable.tell_ends($1)"


class Listener:
    """Calls `hear` with every payload of one channel, and with "a" (look at everything) after each reconnect.

    `first` is a statement that a session which listens begins with.
    """

    def __init__(self, dsn: str, application: str, channel: str, hear: Callable[[str], None], first: str | None = None):
        self._first = first
        self._dsn = dsn
        self._application = application
        self._channel = channel
        self._hear = hear
        self.healthy = False
        self.ready = asyncio.Event()

    async def run(self) -> None:
        rest = 0.1
        while True:
            try:
                await self._listen()
            except (StoreUnavailable, psycopg.OperationalError) as exc:
                self.healthy = False
                log.info("not listening, will try again", channel=self._channel, error=str(exc).strip())
                await asyncio.sleep(rest)
                rest = min(rest * 2, 2.0)

    async def _listen(self) -> None:
        connection = await connect(self._dsn, self._application)
        try:
            await connection.execute(f"listen {self._channel}")
            if self._first is not None:
                await connection.execute(self._first)
            self.healthy = True
            self.ready.set()
            self._hear("a")
            await self._hear_all(connection.pgconn)
        finally:
            self.healthy = False
            await connection.close()

    async def _hear_all(self, session: pq.abc.PGconn) -> None:
        """Straight from the socket, until it breaks: a hint is worth the more, the sooner it is heard."""
        loop = asyncio.get_running_loop()
        broken: asyncio.Future[None] = loop.create_future()

        def readable() -> None:
            try:
                session.consume_input()
                while (notice := session.notifies()) is not None:
                    self._hear(notice.extra.decode())
            except psycopg.OperationalError as exc:
                # At once: libpq has closed the socket, and its number may soon be another's.
                loop.remove_reader(fd)
                if not broken.done():
                    broken.set_exception(exc)

        fd = session.socket
        loop.add_reader(fd, readable)
        # What came together with the answer to the listen itself was read with it.
        readable()
        try:
            await broken
        finally:
            loop.remove_reader(fd)


Message = tuple[str, bytes] | tuple[str, bytes, bytes]


class Notifier:
    """Tells others what this worker has committed, after the commit and coalesced."""

    # Between two notifications under load; the first one after a pause goes out at once.
    PAUSE = 0.001
    MOST_IDS = 150

    def __init__(self, dsn: str, application: str):
        self._dsn = dsn
        self._application = application
        self._lines: set[int] = set()
        self._news: set[str] = set()
        self._ended: list[str] = []
        self._wake = asyncio.Event()
        self._link: Link | None = None

    def work(self, lines: set[int]) -> None:
        self._lines |= lines
        self._wake.set()

    def news(self, workers: list[str]) -> None:
        """Something happened to tasks that these workers run, and they may not look for long."""
        self._news |= set(workers)
        self._wake.set()

    def ended(self, runs: list[str]) -> None:
        self._ended += runs
        self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self.run_once()
            except (StoreUnavailable, psycopg.OperationalError):
                # Only hints are lost: everyone polls.
                await self.close()
            await asyncio.sleep(self.PAUSE)

    async def run_once(self) -> None:
        messages = self._take()
        if not messages:
            return
        if self._link is None:
            self._link = await Link.open(self._dsn, self._application)
            # A hint need not survive a crash: it does not wait for the disk.
            await self._link.call("set synchronous_commit = off", ())
        for sql, *params in messages:
            await self._link.call(sql, params)

    async def close(self) -> None:
        if self._link is not None:
            link, self._link = self._link, None
            await link.close()

    def _take(self) -> list[Message]:
        messages: list[Message] = []
        if self._lines:
            messages.append((NOTIFY, b"durable_work", b"r" + _listed(self._lines)))
        if self._news:
            few = len(self._news) <= self.MOST_IDS
            messages.append((NOTIFY, b"durable_work", b"n" + ",".join(self._news).encode() if few else b"a"))
        if self._ended:
            few = len(self._ended) <= self.MOST_IDS
            messages.append((TELL_ENDS, ",".join(self._ended).encode() if few else b"a"))
        self._lines, self._news, self._ended = set(), set(), []
        return messages


def _listed(numbers: set[int]) -> bytes:
    return b",".join(b"%d" % number for number in sorted(numbers))
