"""Worker processes that a test starts, stalls and kills. Whatever a test leaves alive is killed at its end.

They are forked from a server process that has everything imported: real processes, without a second of start-up each.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from tests.faults.worker_process import Order, serve

LEASE = 1.5

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(["tests.faults.worker_process"])


class WorkerProcess:
    """One worker."""

    def __init__(self, order: Order):
        self._process = _forks.Process(target=serve, args=(order,), daemon=True)
        self._process.start()
        self.pid = self._process.pid or 0
        self._log = Path(order.log)

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    def says(self, text: str) -> bool:
        """Whether this stands in its log."""
        return text in self._log.read_text()

    def send(self, number: signal.Signals) -> None:
        if self.alive:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """-9, and wait until it is gone."""
        self._process.kill()
        self._process.join()

    def await_end(self, within: float) -> int | None:
        """How it ended: 0 of its own will, -9 killed; None when it did not."""
        self._process.join(within)
        return self._process.exitcode


class Fleet:
    """The workers of one test, on one database."""

    def __init__(self, dsn: str, logs: Path):
        self._dsn = dsn
        self._logs = logs
        self.workers: list[WorkerProcess] = []
        self.stalled: set[int] = set()

    def start(
        self, fault: str | None = None, *, dsn: str | None = None, lease: float = LEASE, **options: object
    ) -> WorkerProcess:
        settings = {"lease_seconds": lease, "poll_seconds": 0.2, "idle_poll_seconds": 0.5, "slots": 50, **options}
        log = self._logs / f"worker{len(self.workers)}.log"
        worker = WorkerProcess(Order(dsn or self._dsn, self._dsn, str(log), fault, settings))
        self.workers.append(worker)
        return worker

    def stall(self, worker: WorkerProcess) -> None:
        """Stop the process where it stands. What it then does late is its own zombie's."""
        self.stalled.add(worker.pid)
        worker.send(signal.SIGSTOP)

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()

    def ask(self) -> None:
        """Let each worker log what its tasks wait for."""
        for worker in self.workers:
            worker.send(signal.SIGUSR1)
        time.sleep(1)

    def told(self) -> str:
        """What the workers logged."""
        return "\n".join(f"--- {log.name}\n{log.read_text()[-12000:]}" for log in sorted(self._logs.glob("*.log")))


def eventually(condition: Callable[[], bool], what: str, within: float = 30.0) -> None:
    """Wait for a condition, with a deadline that only a fault in the runtime can reach."""
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, f"after {within:g} s still not: {what}"
        time.sleep(0.02)
