"""The gate in front of every step: closed while this worker's lease may have run out."""

from __future__ import annotations

import asyncio
import time


class Gate:
    """Open until a moment that each renewal moves on; steps wait in front of a closed one."""

    def __init__(self, lease: float):
        self._lease = lease
        self.closes_at = time.monotonic() + lease * 2 / 3

    @property
    def closed(self) -> bool:
        return time.monotonic() > self.closes_at

    def renewed(self, at: float) -> None:
        """The lease was renewed by a call that began at this monotonic time. Called from the beat's thread."""
        self.closes_at = at + self._lease * 2 / 3

    async def open(self) -> None:
        # Polled: the thread that renews the lease must not have to reach into the loop.
        while self.closed:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
