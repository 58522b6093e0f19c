"""The end of a worker process: soon after it was asked to, and never later than its parent's.

A step that neither returns nor can be cancelled must not keep a process alive: what it held goes to other workers
when the lease is over, as if the process had been killed.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable

from durablectl import exits

HURRY_SECONDS = 6.0


class Ending:
    """Counts the requests to end, and is the last resort when they are not enough."""

    def __init__(self, patience: float):
        self._patience = patience
        self._last_resort: threading.Timer | None = None
        self.asked = 0

    def on_signals(self, stop: Callable[[], None]) -> None:
        """Let SIGTERM and SIGINT ask. Plain handlers: they run even while a step blocks the event loop."""

        def ask(*_: object) -> None:
            self.begin()
            stop()

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, ask)

    def begin(self) -> None:
        """From now on the process has so long to end; a second request leaves it less."""
        self.asked += 1
        if self._last_resort is not None:
            self._last_resort.cancel()
        patience = self._patience if self.asked == 1 else min(self._patience, HURRY_SECONDS)
        self._last_resort = threading.Timer(patience, _end_now, (exits.FAILED,))
        self._last_resort.daemon = True
        self._last_resort.start()

    def follow(self, leash: int) -> None:
        """End when the process that holds the other end of this pipe has ended, however it did."""
        threading.Thread(target=self._follow, args=(leash,), name="durable-leash", daemon=True).start()

    def _follow(self, leash: int) -> None:
        os.read(leash, 1)
        # Also from here: a main thread that never comes back to Python runs no signal handler.
        self.begin()
        os.kill(os.getpid(), signal.SIGTERM)


def leave(code: int) -> int:
    """The exit code, unless a thread of a step would keep the interpreter waiting: then it is the end."""
    deadline = time.monotonic() + 1.0
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                _end_now(code)
    return code


def _end_now(code: int) -> None:
    if code:
        print("durable: a step did not end in time; its run goes on elsewhere", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
