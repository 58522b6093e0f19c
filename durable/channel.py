"""A fenced write connection of a worker: numbered calls, each applied exactly once.

A call whose answer was lost is sent again under the same number on a new session. The store then either applies it,
says that it was applied before, or that the worker is dead. Nothing in between is possible.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import psycopg
import structlog

from durable.errors import LeaseLost, StoreUnavailable
from durable.link import Link, Param
from durable.traffic import Traffic

log = structlog.get_logger("durable.channel")

# The server may or may not have committed: the connection broke, or an operator's statement_timeout struck.
AMBIGUOUS = (psycopg.OperationalError, psycopg.InterfaceError)
_NOT_AMBIGUOUS = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected, psycopg.errors.DiskFull)
_FIRST_REST = 0.02
_LONGEST_REST = 1.0

Opened = Callable[[], Awaitable[None]]


class AlreadyApplied(Exception):
    """The call was applied earlier; what it answered is lost and must be read from the store."""


class Channel:
    """One logical write connection, identified by its number; the session behind it may change."""

    def __init__(self, dsn: str, worker_id: str, number: int, check_server: Opened, traffic: Traffic):
        self.worker_id = worker_id
        self.number = number
        self._dsn = dsn
        self._check_server = check_server
        self._traffic = traffic
        self._head = [worker_id.encode(), b"%d" % number]
        self._flush_no = 0
        self._link: Link | None = None

    async def call(self, sql: str, params: Sequence[Param], fault: str | None = None) -> bytes:
        """Send one numbered write; returns its answer, raises `AlreadyApplied` or `LeaseLost`."""
        await self._traffic.enter()
        try:
            return await self._apply(sql, params, fault)
        finally:
            self._traffic.leave()

    async def close(self) -> None:
        if self._link is not None:
            link, self._link = self._link, None
            await link.close()

    async def _apply(self, sql: str, params: Sequence[Param], fault: str | None) -> bytes:
        self._flush_no += 1
        everything = [*self._head, b"%d" % self._flush_no, *params]
        rest = _FIRST_REST
        while True:
            try:
                answer = await (await self._session()).call(sql, everything, fault)
            except (StoreUnavailable, *AMBIGUOUS) as exc:
                if isinstance(exc, _NOT_AMBIGUOUS):
                    raise
                await self._lost(exc, rest)
                rest = min(rest * 2, _LONGEST_REST)
                continue
            except psycopg.Error as exc:
                if exc.sqlstate == "DU001":
                    raise LeaseLost(str(exc).splitlines()[0]) from None
                raise
            if answer is None:
                raise AlreadyApplied
            return answer

    async def _session(self) -> Link:
        if self._link is None:
            link = await Link.open(self._dsn, f"durable:{self.worker_id}")
            await self._check_server()
            self._link = link
        return self._link

    async def _lost(self, exc: Exception, rest: float) -> None:
        log.warning("connection lost, sending the same write again", channel=self.number, error=str(exc).strip())
        await self.close()
        await asyncio.sleep(rest)
