"""The scheduler as a service: it looks when something is due, when it is told to, and once in a while.

APScheduler is only its alarm clock. Any number of them may run beside each other, and each may be killed at any point:
what a look does is one transaction on rows that it has locked.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Protocol

import psycopg
import structlog
from apscheduler.schedulers.asyncio import AsyncIOScheduler

from durable.errors import StoreUnavailable
from durable.link import PLANNER, connect
from durable.listener import Listener
from durable.store import check_store
from scheduler.backfills import BackfillLooks
from scheduler.deadlines import DeadlineLooks
from scheduler.store import GRACE, Connection, TickLooks, fetch
from scheduler.triggers import TriggerLooks

log = structlog.get_logger("durable.scheduler")

CHANNEL = "durable_schedule"
# A clock that differs by more from what passed here was moved.
CLOCK_JUMP = timedelta(seconds=30)
RESTS = (0.1, 0.5, 1.0, 2.0, 5.0)


class Part(Protocol):
    """One kind of work of the scheduler."""

    async def run_once(self, connection: Connection) -> int:
        """Do a batch of what is due; how much there was."""

    async def next_at(self, connection: Connection) -> datetime | None:
        """When there is something to do although nobody tells of it."""


def all_parts(grace: timedelta = GRACE) -> tuple[Part, ...]:
    """What a scheduler does: ticks first, so that backfills stand behind them and deadlines find what was skipped."""
    return TickLooks(grace=grace), TriggerLooks(), BackfillLooks(), DeadlineLooks()


class Scheduler:
    """`s = Scheduler(dsn); task = asyncio.create_task(s.run()); await s.ready(); ...; s.stop(); await task`"""

    def __init__(self, dsn: str, parts: Sequence[Part] | None = None, *, fallback: float = 15.0):
        self._dsn = dsn
        self._parts: Sequence[Part] = parts if parts is not None else all_parts()
        self._fallback = fallback
        self._alarm = Alarm(self._wake_up, fallback)
        self._clock = Clock()
        self._wake = asyncio.Event()
        self._stopping = False
        self._ready = asyncio.Event()
        self._connection: Connection | None = None

    async def run(self) -> None:
        """Serve until `stop`."""
        await check_store(self._dsn)
        self._alarm.start()
        listener = Listener(self._dsn, "durable-scheduler-ears", CHANNEL, lambda _: self._wake_up())
        ears = asyncio.create_task(listener.run())
        try:
            await self._refresh()
            await listener.ready.wait()
            await self._serve()
        finally:
            ears.cancel()
            await asyncio.gather(ears, return_exceptions=True)
            self._alarm.stop()
            await self._hang_up()

    async def ready(self) -> None:
        """Wait until the first look is over."""
        await self._ready.wait()

    @property
    def looked_at(self) -> datetime | None:
        """When it last looked, by the database's clock."""
        return self._clock.seen

    def stop(self) -> None:
        """Finish the look that goes on, then end."""
        self._stopping = True
        self._wake_up()

    def stop_on_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self.stop)

    async def run_once(self) -> int:
        """All that is due now, part by part in turns; how much there was."""
        connection = await self._connected()
        total = 0
        while count := sum([await part.run_once(connection) for part in self._parts]):
            total += count
        return total

    # ---------------------------------------------------------------- inside

    async def _serve(self) -> None:
        failures = 0
        while not self._stopping:
            self._wake.clear()
            try:
                await self._look()
                failures = 0
                self._ready.set()
            except (StoreUnavailable, psycopg.Error) as exc:
                await self._recover(exc, RESTS[min(failures, len(RESTS) - 1)])
                failures += 1
                continue
            await self._wake.wait()

    async def _look(self) -> None:
        await self.run_once()
        connection = await self._connected()
        now = (await fetch(connection, "select durable.now() as now"))[0]["now"]
        if jump := self._clock.jump(now):
            await connection.execute("select durable.note_clock(%s)", (jump.total_seconds(),))
        self._clock.saw(now)
        due = [await part.next_at(connection) for part in self._parts]
        self._alarm.ring_in(min((at - now for at in due if at is not None), default=None))

    async def _refresh(self) -> None:
        """What was computed by an earlier program may be computed differently by this one."""
        for part in self._parts:
            if isinstance(part, TickLooks):
                with contextlib.suppress(StoreUnavailable, psycopg.OperationalError):
                    await part.refresh(await self._connected())

    async def _recover(self, exc: Exception, rest: float) -> None:
        log.warning("a look failed and will be tried again", error=str(exc).strip())
        await self._hang_up()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(rest):
                while not self._stopping:
                    await self._wake.wait()
                    self._wake.clear()

    async def _connected(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = await connect(self._dsn, "durable-scheduler", PLANNER)
        return self._connection

    async def _hang_up(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.close()

    def _wake_up(self) -> None:
        self._wake.set()


class Alarm:
    """APScheduler with two jobs: one that is moved to whatever is due next, and one that rings in any case."""

    def __init__(self, ring: Callable[[], None], fallback: float):
        self._ring = ring
        self._fallback = fallback
        self._timer = AsyncIOScheduler(timezone=UTC, job_defaults={"misfire_grace_time": None, "coalesce": True})

    def start(self) -> None:
        self._timer.add_job(self._rings, "interval", seconds=self._fallback, id="fallback")
        self._timer.start()

    def stop(self) -> None:
        self._timer.shutdown(wait=False)

    def ring_in(self, left: timedelta | None) -> None:
        """Ring when this much time has passed; None: not before somebody tells."""
        if left is None:
            if self._timer.get_job("due"):
                self._timer.remove_job("due")
            return
        # Later than the fallback rings nobody needs to know; and a date too far ahead is none for the alarm clock.
        at = datetime.now(UTC) + min(max(left, timedelta(0)), timedelta(days=1))
        self._timer.add_job(self._rings, "date", run_date=at, id="due", replace_existing=True)

    async def _rings(self) -> None:
        # A coroutine runs on the loop; a plain function would be called in a thread, which cannot wake anybody here.
        self._ring()


class Clock:
    """Watches the database's clock from outside."""

    def __init__(self) -> None:
        self._last: tuple[datetime, float] | None = None

    @property
    def seen(self) -> datetime | None:
        return self._last and self._last[0]

    def jump(self, now: datetime) -> timedelta | None:
        """By how much the clock was moved since it was last seen, if it was."""
        if self._last is None:
            return None
        jump = (now - self._last[0]) - timedelta(seconds=time.monotonic() - self._last[1])
        return jump if abs(jump) > CLOCK_JUMP else None

    def saw(self, now: datetime) -> None:
        self._last = (now, time.monotonic())
