"""The passer: applies signals and timers, and claims what they made ready, in one call.

It runs when hinted, when the next timer is due, and once in a while, because hints can be lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any

import orjson
import psycopg
import structlog

from durable import faults
from durable.channel import AlreadyApplied, Channel
from durable.claims import Want
from durable.clock import Clock
from durable.errors import LeaseLost
from durable.writer import Claims, claim_params

log = structlog.get_logger("durable.passes")

PASS = "select durable.pass($1, $2, $3, $4, $5, $6, $7, $8)"
ALL_SHARDS = frozenset(range(16))
_BREATH = 0.002


class Passer:
    """One worker's share in the passes."""

    def __init__(
        self,
        channel: Channel,
        claims: Claims,
        clock: Clock,
        interval: Callable[[], float],
        passed: Callable[[Want, list[Any]], None],
        sweep: Callable[[], None],
    ):
        self._channel = channel
        self._claims = claims
        self._clock = clock
        self._interval = interval
        self._passed = passed
        self._sweep = sweep
        self._shards: set[int] = set(ALL_SHARDS)
        self._next_timer: float | None = None
        self._new_timer: float | None = None  # of a task that parked after the last pass was sent
        self._wake = asyncio.Event()
        self._wake.set()
        self._swept_at = time.monotonic()
        self.passes = 0

    def hint(self, shards: set[int] | frozenset[int]) -> None:
        self._shards |= shards
        self._wake.set()

    def timer(self, at: float) -> None:
        """A task of this worker parked until then."""
        self._new_timer = _earlier(self._new_timer, at)
        if self._next_timer is None or at < self._next_timer:
            self._next_timer = at
            self._wake.set()

    async def run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._rest()):
                    await self._wake.wait()
            self._wake.clear()
            if self._until_sweep() <= 0:
                # By the clock, also while hints keep coming: a lost one is found no later for that.
                self._swept_at = time.monotonic()
                self._shards |= ALL_SHARDS
                self._sweep()
            try:
                if self._shards or self._timer_due():
                    await self.run_once()
            except LeaseLost as exc:
                self._claims.died(exc)
                return

    async def run_once(self) -> None:
        shards, self._shards = self._shards, set()
        timers = self._timer_due() or shards >= ALL_SHARDS
        self._new_timer = None
        faults.point("pass.before")
        want = self._claims.wanted(passing=True)
        text = b"{" + b",".join(b"%d" % shard for shard in sorted(shards)) + b"}"
        self.passes += 1
        try:
            answer = await self._channel.call(PASS, [text, b"t" if timers else b"f", *claim_params(want)], "pass.sent")
        except AlreadyApplied:
            self._passed(want, [])
            self.hint(ALL_SHARDS)
            await self._claims.reconcile()
            return
        except psycopg.Error as exc:
            # A lock that a flush held for too long, or a deadlock: nothing was applied.
            log.info("a pass was refused and will be tried again", error=str(exc).strip())
            self._passed(want, [])
            await asyncio.sleep(0.02)
            self.hint(shards)
            return
        faults.point("pass.after")
        self._take_in(want, shards, orjson.loads(answer))

    def _take_in(self, want: Want, tried: set[int], answer: list[Any]) -> None:
        now, more, signalled, next_in = answer[0], answer[4], answer[5], answer[6]
        # The pass may not have seen the timer of a task that parked meanwhile.
        self._next_timer = _earlier(self._new_timer, None if next_in is None else now + next_in)
        self._passed(want, answer)
        if fresh := set(signalled or ()) - tried:
            self.hint(fresh)
        elif signalled:
            # Another worker is at it, or a task was locked for a moment: no hurry.
            asyncio.get_running_loop().call_later(_BREATH, self.hint, set(signalled))
        if more:
            self.hint(ALL_SHARDS)

    def _timer_due(self) -> bool:
        return self._next_timer is not None and self._next_timer <= self._clock.now()

    def _until_sweep(self) -> float:
        return self._swept_at + self._interval() - time.monotonic()

    def _rest(self) -> float:
        rest = max(0.0, self._until_sweep())
        if self._next_timer is not None:
            rest = min(rest, max(0.0, self._next_timer - self._clock.now()))
        return rest


def _earlier(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
