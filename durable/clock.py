"""The store's time, as this process knows it: every answer of the store sets it anew."""

from __future__ import annotations

import time


class Clock:
    """Seconds since the epoch by `durable.now()`, without asking."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def now(self) -> float:
        return time.monotonic() + self._offset

    def sync(self, server_now: float) -> None:
        self._offset = server_now - time.monotonic()
