"""A fenced write connection of a worker: numbered calls, each applied exactly once.

A call whose answer was lost is sent again under the same number on a new session. The store then either applies it,
says that it was applied before, or that the worker is dead. Nothing in between is possible. A single record needs no
number: its place in the journal can be taken once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, NamedTuple

import psycopg
import structlog

from durable.ending import end
from durable.errors import LeaseLost, StoreUnavailable
from durable.link import Link, Param, Told
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


class Write(NamedTuple):
    """One call to be applied exactly once: by its number, or by the key of the one row that it inserts."""

    sql: str
    params: list[Param]
    keyed: bool = False


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
        self._reporting: asyncio.Task[None] | None = None

    async def call(self, sql: str, params: Sequence[Param], fault: str | None = None) -> bytes:
        """Send one numbered write; returns its answer, raises `AlreadyApplied` or `LeaseLost`."""
        return await self._send(Write(sql, self._numbered(params)), fault) or b""

    def post(self, sql: str, params: Sequence[Param], told: Told, fault: str | None = None) -> None:
        """As `call`, without a coroutine where all goes well: `told` hears the answer or the error."""
        self._post(Write(sql, self._numbered(params)), told, fault)

    def post_keyed(self, sql: str, params: Sequence[Param], told: Told, fault: str | None = None) -> None:
        """As `post`, for one row whose key can only be this call's own: it needs no number, and may answer nothing."""
        self._post(Write(sql, [self._head[0], *params], keyed=True), told, fault)

    def _post(self, write: Write, told: Told, fault: str | None) -> None:
        link = self._link
        if link is None or not link.knows(write.sql) or not self._traffic.enter_now():
            self._report(self._send(write, fault), told)
            return

        def answered(answer: bytes | None, error: BaseException | None) -> None:
            if error is None and (answer is not None or write.keyed):
                self._traffic.leave()
                told(answer, None)
            else:
                self._report(self._mend(write, error or AlreadyApplied()), told)

        try:
            link.post(write.sql, write.params, answered, fault)
        except psycopg.Error as exc:
            answered(None, exc)

    def mute(self) -> None:
        """Take every call from now on and answer none, as if this process were gone. For tests."""
        # Replaced on purpose.
        self.call = _never  # type: ignore[assignment, method-assign]
        self.post = self.post_keyed = _nothing  # type: ignore[assignment, method-assign]

    async def close(self) -> None:
        await end([self._reporting] if self._reporting is not None else [])
        await self._drop_session()

    def _numbered(self, params: Sequence[Param]) -> list[Param]:
        self._flush_no += 1
        return [*self._head, b"%d" % self._flush_no, *params]

    async def _send(self, write: Write, fault: str | None) -> bytes | None:
        await self._traffic.enter()
        try:
            return await self._apply(write, fault)
        finally:
            self._traffic.leave()

    def _report(self, outcome: Coroutine[Any, Any, bytes | None], told: Told) -> None:
        """Tell what becomes of a call that needs care: a new session, the same number again."""
        self._reporting = asyncio.get_running_loop().create_task(_tell(outcome, told))

    async def _mend(self, write: Write, error: BaseException) -> bytes | None:
        try:
            return await self._apply(write, None, error)
        finally:
            self._traffic.leave()

    async def _apply(self, write: Write, fault: str | None, last: BaseException | None = None) -> bytes | None:
        """Send until it is answered. `last` is what came of it already."""
        rest, in_doubt = _FIRST_REST, False
        while True:
            try:
                if last is not None:
                    raise last
                answer = await (await self._session()).call(write.sql, write.params, fault)
                if answer is None and not write.keyed:
                    raise AlreadyApplied
                return answer
            except (StoreUnavailable, *AMBIGUOUS) as exc:
                if isinstance(exc, _NOT_AMBIGUOUS):
                    raise
                await self._lost(exc, rest)
                rest = min(rest * 2, _LONGEST_REST)
                last, in_doubt = None, True
            except psycopg.Error as exc:
                if exc.sqlstate == "DU001":
                    raise LeaseLost(str(exc).splitlines()[0]) from None
                if in_doubt and write.keyed and isinstance(exc, psycopg.errors.UniqueViolation):
                    raise AlreadyApplied from None
                raise

    async def _session(self) -> Link:
        if self._link is None:
            link = await Link.open(self._dsn, f"durable:{self.worker_id}")
            await self._check_server()
            self._link = link
        return self._link

    async def _lost(self, exc: Exception, rest: float) -> None:
        log.warning("connection lost, sending the same write again", channel=self.number, error=str(exc).strip())
        await self._drop_session()
        await asyncio.sleep(rest)

    async def _drop_session(self) -> None:
        if self._link is not None:
            link, self._link = self._link, None
            await link.close()


async def _tell(outcome: Coroutine[Any, Any, bytes | None], told: Told) -> None:
    try:
        answer = await outcome
    except Exception as exc:
        told(None, exc)
    else:
        told(answer, None)


async def _never(*_: object) -> None:
    await asyncio.get_running_loop().create_future()


def _nothing(*_: object) -> None:
    pass
