"""Transaction steps: the user's writes and the step's record in one commit.

The fence is passed last, after the user's SQL: a reaper never waits for user code, and what a dead worker wrote is
rolled back. When the answer to a commit is lost, the fence decides: it is advanced past the lost call, which waits
for it or makes it fail, and then the journal says whether it happened.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import orjson
import psycopg

from durable import faults
from durable.errors import Evicted, LeaseLost, StoreUnavailable
from durable.lanes import StepInfo, current
from durable.link import CONNECT, connect
from durable.writer import Json

if TYPE_CHECKING:
    from durable.recording import Recording

# How often the session of one attempt may break under the user's code before that counts as the code's own failure.
_MOST_LOSSES = 20
_REST = 0.1

RECORD = "select durable.record_in_transaction(%s, %s, %s, %s::json, %s::json)"


class Slot:
    """One fenced channel for transaction steps, with the sessions behind it."""

    def __init__(self, dsn: str, worker_id: str, channel: int):
        self.channel = channel
        self.flush_no = 0
        self._dsn = dsn
        self._worker_id = worker_id
        self._async: psycopg.AsyncConnection | None = None
        self._sync: psycopg.Connection | None = None

    async def async_session(self) -> psycopg.AsyncConnection:
        if self._async is None or self._async.closed or self._async.broken:
            self._async = await connect(self._dsn, f"durable:{self._worker_id}")
        return self._async

    def sync_session(self) -> psycopg.Connection:
        if self._sync is None or self._sync.closed or self._sync.broken:
            name = f"durable:{self._worker_id}"
            self._sync = psycopg.connect(self._dsn, autocommit=True, application_name=name, **CONNECT)
        return self._sync

    def record_params(self, row: Json, value: Json | None) -> tuple[Any, ...]:
        self.flush_no += 1
        text = orjson.dumps(row).decode()
        return self._worker_id, self.channel, self.flush_no, text, value and orjson.dumps(value).decode()

    async def was_committed(self, row: Json, run_id: str) -> bool:
        """After a lost answer: end the lost call's chance, then read the truth."""
        while True:
            try:
                session = await self.async_session()
                self.flush_no += 1
                params = (self._worker_id, self.channel, self.flush_no)
                await session.execute("select durable.pass_fence(%s, %s, %s)", params)
                found = await session.execute(
                    "select 1 from durable.journal where run_id = %s and task_id = %s and pos = %s",
                    (run_id, row["t"], row["p"]),
                )
                return await found.fetchone() is not None
            except (psycopg.OperationalError, StoreUnavailable):
                await asyncio.sleep(_REST)

    def leave_session(self) -> None:
        """A thread still has the session: the next step gets another."""
        self._sync = None

    async def close(self) -> None:
        if self._async is not None:
            await self._async.close()
        if self._sync is not None:
            self._sync.close()


class Transactions:
    """The transaction slots of one worker."""

    def __init__(self, dsn: str, worker_id: str, channels: range):
        self._slots: asyncio.LifoQueue[Slot] = asyncio.LifoQueue()
        self._all = [Slot(dsn, worker_id, number) for number in channels]
        for slot in self._all:
            self._slots.put_nowait(slot)

    async def run(self, of: Recording, info: StepInfo, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """One attempt: run the user's function and commit its record with it. A lost connection is nobody's failure:
        what it had written is gone, and it runs again."""
        losses = 0
        while True:
            slot = await self._slots.get()
            try:
                return await self._try(of, info, slot, fn, args, kwargs)
            except SessionLost as lost:
                losses += lost.in_user_code
                if losses >= _MOST_LOSSES:
                    raise lost.cause from None
            finally:
                self._slots.put_nowait(slot)
            await asyncio.sleep(_REST)
            of.check_live()

    async def _try(
        self, of: Recording, info: StepInfo, slot: Slot, fn: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        faults.point("step.before", info)
        attempt = Attempt(of, info, slot)
        if inspect.iscoroutinefunction(fn):
            return await attempt.run_async(fn, args, kwargs)
        return await attempt.run_sync(fn, args, kwargs)

    async def close(self) -> None:
        for slot in self._all:
            await slot.close()


class SessionLost(Exception):
    """The session broke, and nothing of the step was committed."""

    def __init__(self, cause: Exception, in_user_code: bool):
        self.cause = cause
        self.in_user_code = in_user_code
        super().__init__(str(cause))


class Attempt:
    """One try of a transaction step. Its position is taken when the user's code is done, so it holds up nobody."""

    def __init__(self, of: Recording, info: StepInfo, slot: Slot):
        self._of = of
        self._info = info
        self._slot = slot
        self._pos: int | None = None
        self._row: Json | None = None
        self._session: psycopg.AsyncConnection | psycopg.Connection | None = None
        self._given_up = False
        self._began = time.monotonic()

    async def run_async(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        token = current.set(self._info)
        try:
            try:
                session = self._session = await self._slot.async_session()
                async with session.transaction():
                    value = await fn(session, *args, **kwargs)
                    data = self._of.encoded(value)
                    await session.execute(RECORD, await self._record(data))
                    faults.point("transaction.before", self._info)
                faults.point("transaction.after", self._info)
            except Exception as exc:
                await self._settle_failure(exc)
            return orjson.loads(data)
        finally:
            current.reset(token)
            self._release()

    async def run_sync(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        loop = asyncio.get_running_loop()

        def in_thread() -> bytes:
            current.set(self._info)
            session = self._session = self._slot.sync_session()
            try:
                with session.transaction():
                    value = fn(session, *args, **kwargs)
                    data = self._of.encoded(value)
                    # Positions belong to the loop's thread.
                    params = asyncio.run_coroutine_threadsafe(self._record_on_loop(data), loop).result()
                    session.execute(RECORD, params)
                    faults.point("transaction.before", self._info)
            finally:
                if self._given_up:
                    session.close()
            faults.point("transaction.after", self._info)
            return data

        self._data = b"null"
        context = contextvars.copy_context()
        try:
            try:
                self._data = await asyncio.to_thread(context.run, in_thread)
            except asyncio.CancelledError:
                # The thread goes on, but what it writes is rolled back: it comes to no record any more.
                self._given_up = True
                self._slot.leave_session()
                raise
            except Exception as exc:
                await self._settle_failure(exc)
            return orjson.loads(self._data)
        finally:
            self._release()

    async def _record_on_loop(self, data: bytes) -> tuple[Any, ...]:
        self._data = data
        return await self._record(data)

    async def _record(self, data: bytes) -> tuple[Any, ...]:
        pos = await self._of.take_position()
        if self._given_up:
            self._of.release_position(pos)
            raise Evicted("the step was given up by its own run")
        self._pos = pos
        took = int((time.monotonic() - self._began) * 1000)
        self._row, value = self._of.row("step", self._info.name, self._of.sealed(data), self._pos, took)
        return self._slot.record_params(self._row, value)

    async def _settle_failure(self, exc: Exception) -> None:
        """Return if the step was committed after all; raise what the retry policy is to decide about otherwise."""
        if _fenced(exc):
            raise Evicted("the worker lost its lease in a transaction step") from exc
        if not self._lost(exc):
            raise exc
        if self._row is not None and await self._was_committed(self._row):
            return
        raise SessionLost(exc, self._session is not None) from exc

    def _lost(self, exc: Exception) -> bool:
        """Whether the session broke, or never came to be: not the doing of the user's code."""
        if isinstance(exc, psycopg.errors.IdleInTransactionSessionTimeout):
            return False
        if self._session is None:
            return isinstance(exc, (psycopg.OperationalError, StoreUnavailable))
        return self._session.broken

    async def _was_committed(self, row: Json) -> bool:
        try:
            return await self._slot.was_committed(row, self._of.run_id)
        except psycopg.Error as exc:
            if _fenced(exc):
                raise Evicted("the worker lost its lease in a transaction step") from exc
            raise

    def _release(self) -> None:
        if self._pos is not None:
            self._of.release_position(self._pos)


def _fenced(exc: Exception) -> bool:
    return isinstance(exc, LeaseLost) or (isinstance(exc, psycopg.Error) and exc.sqlstate == "DU001")
