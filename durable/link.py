"""A lean connection for the hot path: one prepared call at a time, straight on libpq.

psycopg connects, authenticates and encrypts; after that the calls of flushers and passes go through its libpq
wrapper without cursors, adaptation or a reader registered anew for every query.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
from psycopg import errors, pq

from durable import faults
from durable.errors import StoreUnavailable

Param = bytes | None
# Hears how a call came out: the first column of its first row, or what went wrong.
Told = Callable[[bytes | None, BaseException | None], None]

# A session that neither answers nor closes must not hold a fence row for long.
_SESSION = (
    "-c idle_in_transaction_session_timeout=60s -c client_connection_check_interval=5s"
    " -c default_transaction_isolation=read\\ committed -c statement_timeout=0"
)
# For the store's own statements, which all go by key; never for sessions that run users' SQL. Plans are made once: with
# the size of a batch in hand the planner finds another plan for every claim, and making it cost three times the claim.
PLANNER = (
    " -c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off -c jit=off"
    " -c plan_cache_mode=force_generic_plan"
)
CONNECT: dict[str, Any] = {"connect_timeout": 10, "tcp_user_timeout": 15000, "keepalives_idle": 10}


async def connect(dsn: str, application: str, more: str = "") -> psycopg.AsyncConnection:
    """A psycopg connection in autocommit, with the session settings that the protocol relies on."""
    try:
        return await psycopg.AsyncConnection.connect(
            dsn,
            autocommit=True,
            application_name=application,
            options=_SESSION + more,
            prepare_threshold=None,
            **CONNECT,
        )
    except psycopg.OperationalError as exc:
        raise StoreUnavailable(explain_unreachable(dsn, exc)) from exc


def explain_unreachable(dsn: str, error: Exception) -> str:
    """What was tried, without the password, and what to do next."""
    info = psycopg.conninfo.conninfo_to_dict(dsn)
    where = f"{info.get('host', 'localhost')}:{info.get('port', 5432)}/{info.get('dbname', '')}"
    first = str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else type(error).__name__
    return f"cannot reach PostgreSQL at {where}: {first}. Check that it runs and that DURABLE_DATABASE_URL is right."


class Link:
    """One server session that runs one prepared statement at a time."""

    def __init__(self, connection: psycopg.AsyncConnection):
        self._connection = connection
        self._pg = connection.pgconn
        self._fd = self._pg.socket
        self._loop = asyncio.get_running_loop()
        self._names: dict[str, bytes] = {}
        self._told: Told | None = None
        self._last: pq.abc.PGresult | None = None
        self._loop.add_reader(self._fd, self._readable)
        self._listening = True
        self._prepared = 0
        self.calls = 0

    @classmethod
    async def open(cls, dsn: str, application: str) -> Link:
        return cls(await connect(dsn, application, PLANNER))

    async def call(self, sql: str, params: Sequence[Param], fault: str | None = None) -> bytes | None:
        """Run `sql` and answer with its first column of its first row."""
        name = self._names.get(sql) or await self._prepare(sql)
        return await self._answer(lambda told: self._send(name, params, told, fault))

    def knows(self, sql: str) -> bool:
        """Whether `sql` is prepared in this session."""
        return sql in self._names

    def post(self, sql: str, params: Sequence[Param], told: Told, fault: str | None = None) -> None:
        """As `call`, for a statement that the session knows: `told` is called when the answer is there."""
        self._send(self._names[sql], params, told, fault)

    async def close(self) -> None:
        self._stop_listening()
        await self._connection.close()

    async def _prepare(self, sql: str) -> bytes:
        # Never a name again whose preparation was cancelled half-way: the server may know it.
        self._prepared += 1
        name = b"d%d" % self._prepared

        def send(told: Told) -> None:
            try:
                self._told = told
                self._pg.send_prepare(name, sql.encode())
                self._push()
            except psycopg.Error:
                self._give_up()
                raise

        await self._answer(send)
        self._names[sql] = name
        return name

    async def _answer(self, send: Callable[[Told], None]) -> bytes | None:
        waiter: asyncio.Future[bytes | None] = self._loop.create_future()

        def told(answer: bytes | None, error: BaseException | None) -> None:
            if waiter.done():
                return
            if error is None:
                waiter.set_result(answer)
            else:
                waiter.set_exception(error)

        send(told)
        return await waiter

    def _send(self, name: bytes, params: Sequence[Param], told: Told, fault: str | None) -> None:
        self.calls += 1
        try:
            self._told = told
            self._pg.send_query_prepared(name, params)
            if faults.armed and fault is not None:
                self._pg.flush()
                faults.point(fault)
            self._push()
        except psycopg.Error:
            self._give_up()
            raise

    def _push(self) -> None:
        if self._pg.flush():
            self._loop.add_writer(self._fd, self._writable)

    def _writable(self) -> None:
        try:
            if not self._pg.flush():
                self._loop.remove_writer(self._fd)
        except psycopg.Error as exc:
            self._broken(exc)

    def _readable(self) -> None:
        try:
            self._pg.consume_input()
            if self._pg.is_busy():
                return
            while (result := self._pg.get_result()) is not None:
                # Kept from one reading to the next: its end, which says that it is committed, may come apart.
                self._last = result
                if self._pg.is_busy():
                    return
        except psycopg.Error as exc:
            self._broken(exc)
            return
        last, self._last = self._last, None
        if last is not None:
            self._tell(last)

    def _tell(self, result: pq.abc.PGresult) -> None:
        told, self._told = self._told, None
        if told is None:
            return
        if result.status == pq.ExecStatus.FATAL_ERROR:
            told(None, errors.error_from_result(result, encoding="utf-8"))
        else:
            told(result.get_value(0, 0) if result.ntuples else None, None)

    def _broken(self, exc: Exception) -> None:
        self._stop_listening()
        told, self._told = self._told, None
        if told is not None:
            told(None, errors.OperationalError(str(exc)))

    def _give_up(self) -> None:
        """Nothing was sent: whoever sends hears of it at once, by the exception."""
        self._told = None
        self._stop_listening()

    def _stop_listening(self) -> None:
        """Once, and at once: libpq closes the socket of a broken session itself, and its number may be that of somebody
        else's socket by the time this one is closed."""
        if self._listening:
            self._listening = False
            self._loop.remove_reader(self._fd)
            self._loop.remove_writer(self._fd)

    @property
    def broken(self) -> bool:
        return self._pg.status != pq.ConnStatus.OK
