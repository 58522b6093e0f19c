"""Waiting without holding a slot.

A task may have several branches. Each either does something or waits (for a time, an event, a child). When every
branch waits, the task is parked in one transaction and its slot is free. Parking too early is harmless: code that
then wants to go on wakes its own task.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from enum import Enum
from typing import Any

import structlog

from durable import faults
from durable.clock import Clock
from durable.errors import Cancelled, Evicted, Stop
from durable.writer import Entry, JournalWriter, Json

log = structlog.get_logger("durable.task")

# Turns of the event loop that user code gets to ask for its next step before the task counts as waiting.
_PATIENCE_TURNS = 4


class Phase(Enum):
    LIVE = "live"
    PARKING = "parking"
    PARKED = "parked"
    DEAD = "dead"


class Wait:
    """One branch that waits, until a time at the latest."""

    __slots__ = ("alarm", "expiring", "future", "key", "on_store", "until")

    def __init__(self, key: str, until: float | None, on_store: bool, future: asyncio.Future[Any]):
        self.key = key
        self.until = until
        self.on_store = on_store  # has a wait row: its outcome is decided there, not by the clock
        self.future = future
        self.alarm: asyncio.TimerHandle | None = None
        self.expiring = False


class Parking:
    """The waits of one task, and whether it is parked."""

    __slots__ = (
        "_clock", "_late", "_loop", "_on_parked", "_parks", "_waits", "broken", "busy", "epoch", "heeded", "known",
        "leaving", "on_stop", "phase", "registered", "run_id", "stop", "task_id", "wakes", "writer",
    )  # fmt: skip

    def __init__(
        self,
        task_id: str,
        run_id: str,
        epoch: int,
        wakes: int,
        writer: JournalWriter,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        on_parked: Callable[[], None],
    ):
        self.task_id = task_id
        self.run_id = run_id
        self.epoch = epoch
        self.wakes = wakes
        self.phase = Phase.LIVE
        self.stop: str | None = None
        self.leaving = False  # the worker drains: what is under way ends, and nothing begins
        self.broken = False  # the store refused a record of it: the task is to begin again from what is recorded
        self.heeded = False  # the task is cleaning up: a stop has nothing more to say to it
        self.busy = 0
        self.on_stop: Callable[[str], None] | None = None  # who wants to hear of a stop at once
        self.known: dict[str, Any] = {}  # outcomes of wait rows that nobody has asked for yet
        self.registered: dict[str, float | None] = {}  # keys that already have a wait row, and its timeout
        self.writer = writer
        self._clock = clock
        self._on_parked = on_parked
        self._waits: dict[str, Wait] = {}
        self._parks = 0  # sent so far
        self._late: asyncio.Future[None] | None = None
        self._loop = loop

    # ---------------------------------------------------------------- for the context

    def check(self) -> None:
        """Raise what ends this task's code, if anything does."""
        if self.phase is Phase.DEAD:
            raise Evicted("this copy of the task no longer counts")
        if self.stop is not None:
            raise Cancelled(self.stop)

    async def live(self) -> None:
        """Return when this task may act."""
        await self.awake()
        if self.leaving and self.phase is Phase.LIVE:
            await self._last_done()
        self.check()

    async def awake(self) -> None:
        """Return when this task is not parked. One that was parked under running code wakes itself."""
        while self.phase in (Phase.PARKING, Phase.PARKED):
            if self._late is None:
                self._late = self._loop.create_future()
                if self.phase is Phase.PARKED:
                    self._wake_self()
            await asyncio.shield(self._late)

    def done(self) -> None:
        """An operation has ended; if only waits are left, the task may park."""
        self.busy -= 1
        if self.busy == 0 and self.leaving:
            self.kill()
        elif self.busy == 0 and self._waits:
            self._loop.call_soon(self._consider, _PATIENCE_TURNS)

    async def until(self, key: str, at: float) -> None:
        """Wait for a time."""
        if at > self._clock.now() or self.leaving:
            await self._wait(key, at, on_store=False)

    async def outcome(self, key: str, row: Json, until: float | None) -> Json:
        """Wait for what the store decides about a wait row."""
        if key in self.known:
            outcome: Json = self.known.pop(key)
            return outcome
        if key in self.registered:
            # Registered before a replay: the wait goes on until its first timeout, not for its whole length again.
            until = self.registered[key]
        else:
            self.registered[key] = until
            entry = Entry(self.task_id, None)
            entry.effects = {"waits": [row]}
            self.writer.put_lazily(entry)
        found: Json = await self._wait(key, until, on_store=True)
        return found

    # ---------------------------------------------------------------- for the worker

    def recall(self, waits: list[Any]) -> None:
        """The wait rows that the store has of a task which begins here."""
        for key, outcome, until in waits:
            self.registered[key] = until
            if outcome is not None:
                self.known[key] = outcome

    def resume(self, epoch: int, wakes: int, stop: str | None, waits: list[Any] | None) -> None:
        """The parked task was claimed again, by this very process."""
        faults.point("resume.before")
        self.phase = Phase.LIVE
        self.epoch = epoch
        self._news(wakes, stop, waits)
        self._go_on()

    def told(self, wakes: int, stop: str | None, waits: list[Any] | None) -> None:
        """Something happened while the task runs."""
        self._news(wakes, stop, waits)
        if self.phase is Phase.LIVE:
            self._fire_due()

    def park_refused(self, wakes: int, stop: str | None, waits: list[Any] | None) -> None:
        self.phase = Phase.LIVE
        self._news(wakes, stop, waits)
        self._go_on()

    def met(self, wakes: int | None, key: str, outcome: Json | None) -> None:
        """A wait found its outcome in the flush that registered or expired it."""
        if wakes is not None:
            self.wakes = wakes
        if outcome is not None:
            self._deliver(key, outcome)

    def clock_moved(self) -> None:
        if self.phase is Phase.LIVE:
            for wait in self._waits.values():
                self._set_alarm(wait)

    def leave(self) -> None:
        """Let what is under way be recorded, then end this copy of the task's code."""
        self.leaving = True
        if self.busy == 0 and (self._waits or self.phase is not Phase.LIVE):
            self.kill()

    def break_off(self, error: BaseException) -> None:
        """The store refused what this copy took for recorded."""
        log.error("a record was refused by the store", task=self.task_id, error=str(error))
        self.broken = True
        self.kill()

    def kill(self) -> None:
        """End this copy of the task's code: nothing it does counts any more."""
        self.phase = Phase.DEAD
        # Nobody hears of it again. Without these, a task that ended is freed at once, not by the garbage collector.
        self._on_parked, self.on_stop = _nobody, None
        if self._waits:
            self._fail_waits(Evicted("this copy of the task no longer counts"))
        if self._late is not None and not self._late.done():
            self._late.set_result(None)

    # ---------------------------------------------------------------- inside

    def _go_on(self) -> None:
        """Live again: let those act who wanted to while the task was parked, or park it for the waits that are left."""
        if self._late is None:
            self._settle_or_park()
            return
        late, self._late = self._late, None
        late.set_result(None)
        self._fire_due()
        self._loop.call_soon(self._consider, _PATIENCE_TURNS)

    async def _last_done(self) -> None:
        """Other branches may be in the middle of a step: this one does not take the task away from them."""
        if self.busy == 0:
            self.kill()
            return
        self._late = self._late or self._loop.create_future()
        await asyncio.shield(self._late)

    async def _wait(self, key: str, until: float | None, on_store: bool) -> Any:
        wait = Wait(key, until, on_store, self._loop.create_future())
        self._waits[key] = wait
        self._set_alarm(wait)
        self.busy -= 1
        self._loop.call_soon(self._consider, _PATIENCE_TURNS)
        # Whoever resolves the future has counted this branch as busy again.
        try:
            return await wait.future
        except asyncio.CancelledError:
            self._dropped(wait)
            raise

    def _consider(self, turns: int) -> None:
        if self.leaving and not self.busy:
            self.kill()
        elif self.phase is not Phase.LIVE or self.busy or not self._waits:
            self.writer.kick()
        elif turns:
            self._loop.call_soon(self._consider, turns - 1)
        else:
            self._settle_or_park()

    def _settle_or_park(self) -> None:
        self._fire_due()
        if self.busy == 0 and self._waits and self.phase is Phase.LIVE and self.stop is None:
            self._park()
        else:
            self.writer.kick()

    def earliest(self) -> float | None:
        """The first time at which one of the waits is over."""
        return min((wait.until for wait in self._waits.values() if wait.until is not None), default=None)

    def _park(self) -> None:
        self.phase = Phase.PARKING
        self._parks += 1
        entry = Entry(self.task_id, functools.partial(self._park_answered, self._parks))
        entry.park = {
            "t": self.task_id,
            "e": self.epoch,
            "w": self.wakes,
            "u": self.earliest(),
            "s": self.heeded,
        }
        faults.point("park.before")
        self.writer.put(entry)

    def _park_answered(self, number: int, error: BaseException | None) -> None:
        # A refusal has come through `park_refused` before this; so may have, on another channel, the next claim. Either
        # may have led to the next park already, whose answer is still to come.
        if self.phase is not Phase.PARKING or number != self._parks:
            return
        self.phase = Phase.PARKED
        for wait in self._waits.values():
            _silence(wait)
        if self._late is not None:
            self._wake_self()
        self._on_parked()

    def _wake_self(self) -> None:
        entry = Entry(self.task_id, None)
        entry.effects = {"wakes": [{"r": self.run_id, "t": self.task_id}]}
        self.writer.put(entry)

    def _news(self, wakes: int, stop: str | None, waits: list[Any] | None) -> None:
        self.wakes = wakes
        # A stop first: the child that was cancelled with its parent is no failure that the parent should see.
        if stop is not None and self.stop is None and not self.heeded:
            self.stop = stop
            self._fail_waits(Cancelled(stop))
            if self.on_stop is not None:
                self.on_stop(stop)
        for key, outcome, until in waits or ():
            self.registered.setdefault(key, until)
            if outcome is not None:
                self._deliver(key, outcome)

    def _fire_due(self) -> None:
        now = self._clock.now()
        for wait in list(self._waits.values()):
            if wait.until is not None and wait.until <= now:
                self._expire(wait)
            elif wait.alarm is None:
                self._set_alarm(wait)

    def _expire(self, wait: Wait) -> None:
        """A wait's time is over. With a wait row the store decides whether something came first."""
        if not wait.on_store:
            self._resolve(wait, None)
        elif not wait.expiring:
            wait.expiring = True
            self.busy += 1
            entry = Entry(self.task_id, lambda _: self.done())
            entry.effects = {"expired": [{"r": self.run_id, "t": self.task_id, "k": wait.key}]}
            self.writer.put(entry)

    def _deliver(self, key: str, outcome: Json) -> None:
        wait = self._waits.get(key)
        if wait is None:
            self.known[key] = outcome
        else:
            self._resolve(wait, outcome)

    def _resolve(self, wait: Wait, outcome: Any) -> None:
        if self.leaving:
            return
        del self._waits[wait.key]
        _silence(wait)
        self.busy += 1
        if not wait.future.done():
            wait.future.set_result(outcome)

    def _dropped(self, wait: Wait) -> None:
        """The code that waited was cancelled by its own workflow: the branch is busy with that now."""
        if self._waits.get(wait.key) is wait:
            del self._waits[wait.key]
            _silence(wait)
            self.busy += 1

    def _fail_waits(self, error: Stop) -> None:
        for wait in list(self._waits.values()):
            del self._waits[wait.key]
            _silence(wait)
            self.busy += 1
            if not wait.future.done():
                wait.future.set_exception(error)

    def _set_alarm(self, wait: Wait) -> None:
        _silence(wait)
        if wait.until is not None and not wait.expiring:
            delay = max(0.0, wait.until - self._clock.now())
            # Longer than a day: the alarm only makes the task look again.
            wait.alarm = self._loop.call_later(min(delay, 86400.0), self._alarm, wait)

    def _alarm(self, wait: Wait) -> None:
        wait.alarm = None
        if self.phase is Phase.LIVE and self._waits.get(wait.key) is wait:
            if wait.until is not None and wait.until <= self._clock.now() + 0.0005:
                self._expire(wait)
            else:
                self._set_alarm(wait)


def _nobody() -> None:
    """Who hears of the parking of a dead copy."""


def _silence(wait: Wait) -> None:
    if wait.alarm is not None:
        wait.alarm.cancel()
        wait.alarm = None
