"""The passer: what it hears of while a pass is under way is not forgotten for that pass's answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from durable.claims import NOTHING
from durable.clock import Clock
from durable.passes import Passer

LONG = 3600.0


class Store:
    """A channel whose passes are answered by the test, and a worker that wants nothing."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._answers: asyncio.Queue[bytes] = asyncio.Queue()

    async def call(self, text: str, params: list[bytes | None], point: str) -> bytes:
        self.asked.put_nowait(params[1])
        return await self._answers.get()

    def answer(self, clock: Clock, next_timer: float | None = None) -> None:
        now = clock.now()
        rest = "null" if next_timer is None else str(next_timer - now)
        self._answers.put_nowait(f"[{now}, null, null, null, false, null, {rest}, null]".encode())

    def wanted(self, passing: bool = False) -> Any:
        return NOTHING


@pytest.fixture
async def under_way() -> Any:
    """A passer whose first pass was sent and is not answered yet."""
    store, clock = Store(), Clock()
    passer = Passer(store, store, clock, lambda: LONG, lambda *_: None, lambda: None)  # type: ignore[arg-type]
    running = asyncio.create_task(passer.run())
    await store.asked.get()
    yield passer, store, clock
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_task_that_parks_during_a_pass_is_woken_in_time(under_way: Any) -> None:
    """The pass looked for timers before that park was committed: its answer says that there is none, or a late one."""
    passer, store, clock = under_way
    for seen in (None, clock.now() + LONG):
        passer.timer(clock.now() + 0.01)
        store.answer(clock, seen)
        async with asyncio.timeout(30):
            assert await store.asked.get() == b"t"


async def test_the_store_knows_of_earlier_timers(under_way: Any) -> None:
    """That of another worker, for example."""
    passer, store, clock = under_way
    passer.timer(clock.now() + LONG)
    store.answer(clock, clock.now() + 0.01)
    async with asyncio.timeout(30):
        assert await store.asked.get() == b"t"
