"""The end of a worker process: soon after it was asked to, and never later than its parent's.

A step that neither returns nor can be cancelled must not keep a process alive: what it held goes to other workers
when the lease is over, as if the process had been killed.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable

from durablectl import exits

HURRY_SECONDS = 10.0
ASKING = (signal.SIGTERM, signal.SIGINT)
HANDLED = b"\0"
DONE = b"\xff"
GIVEN_UP = b"durable: a step did not end in time; its run goes on elsewhere\n"


class Ending:
    """Sees to it that requests to end are followed by an end.

    A thread of its own hears of signals through a pipe. The interpreter runs signal handlers only in the main
    thread, which may sleep in a step for as long as it likes while the kernel hands the signal to another.
    """

    def __init__(self, patience: float, leash: int | None = None):
        self._patience = patience
        self._leash = leash
        self._asked = 0
        self._stop: Callable[[], None] | None = None
        self._before = {number: signal.getsignal(number) for number in ASKING}
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        threading.Thread(target=self._watch, name="durable-ending", daemon=True).start()

    def on_signals(self, stop: Callable[[], None]) -> None:
        """Let SIGTERM and SIGINT ask for `stop`, which is called in another thread."""
        self._stop = stop
        for number in ASKING:
            # Also from the handler: a step may take the wakeup descriptor away from us.
            signal.signal(number, lambda *_: os.write(self._writer, HANDLED))
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)

    def done(self) -> None:
        """Leave signals to whoever had them before. Once asked, this process is about to end, and sees to that."""
        if self._asked:
            return
        for number, handler in self._before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        os.write(self._writer, DONE)

    def _watch(self) -> None:
        sources = [self._reader, *([self._leash] if self._leash is not None else [])]
        heard, deadline = b"", float("inf")
        while ready := _readable(sources, deadline):
            if self._leash in ready:
                # The process that holds the other end has ended, however it did.
                sources.remove(self._leash)
                self._ask()
            if self._reader in ready:
                heard += os.read(self._reader, 64)
            for _ in range(self._asked, _requests(heard)):
                self._ask()
            if DONE in heard:
                os.close(self._reader)
                os.close(self._writer)
                return
            if self._asked:
                patience = self._patience if self._asked == 1 else min(self._patience, HURRY_SECONDS)
                deadline = min(deadline, time.monotonic() + patience)
        # Not by print: whoever is stuck may hold its lock.
        os.write(2, GIVEN_UP)
        os._exit(exits.FAILED)

    def _ask(self) -> None:
        self._asked += 1
        if self._stop is None:
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            self._stop()


def _requests(heard: bytes) -> int:
    """How often somebody asked: each request is heard by the descriptor, by the handler, or by both."""
    return max(sum(byte in ASKING for byte in heard), heard.count(HANDLED))


def _readable(sources: list[int], deadline: float) -> list[int]:
    left = deadline - time.monotonic()
    return select.select(sources, [], [], None if left == float("inf") else max(0.0, left))[0]


def leave(code: int) -> int:
    """The exit code, unless a thread of a step would keep the interpreter waiting: then it is the end."""
    deadline = time.monotonic() + 1.0
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
    return code
