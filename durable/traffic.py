"""Calls under way on a worker's channels. Whoever must compare memory with the store first lets all of them end.

A claim, a park or an end that is under way is in the store and not yet in memory, or the other way round.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Traffic:
    """Counts calls; `halted` waits for the last one and lets none begin meanwhile."""

    def __init__(self) -> None:
        self._calls = 0
        self._none: asyncio.Event | None = None  # there while somebody waits for the last call to end
        self._halt = asyncio.Lock()

    async def enter(self) -> None:
        while not self.enter_now():
            async with self._halt:
                pass

    def enter_now(self) -> bool:
        """Enter if nobody halts."""
        if self._halt.locked():
            return False
        self._calls += 1
        return True

    def leave(self) -> None:
        # Whoever waits goes on in a later turn of the loop: the answer is taken in before.
        self._calls -= 1
        if self._calls == 0 and self._none is not None:
            self._none.set()

    @asynccontextmanager
    async def halted(self) -> AsyncIterator[None]:
        async with self._halt:
            if self._calls:
                self._none = asyncio.Event()
                await self._none.wait()
                self._none = None
            yield
