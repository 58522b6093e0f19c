"""Worker processes that a test starts, stalls and kills. Whatever a test leaves alive is killed at its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
LEASE = 1.5


class WorkerProcess:
    """One worker. Its log goes to a file that a failing test shows."""

    def __init__(self, dsn: str, world: str, log: Path, fault: str | None, lease: float, options: dict[str, object]):
        settings = {"lease_seconds": lease, "poll_seconds": 0.2, "idle_poll_seconds": 0.5, "slots": 50, **options}
        env = {**os.environ, "FAULTS_WORLD": world, "PYTHONUNBUFFERED": "1"}
        env |= {f"DURABLE_{name.upper()}": str(value) for name, value in settings.items()}
        env.pop("DURABLE_FAULT", None)
        if fault is not None:
            env["DURABLE_FAULT"] = fault
        self._log = log.open("w")
        command = [sys.executable, "-m", "tests.faults.worker_process", dsn]
        self._process = subprocess.Popen(
            command, cwd=REPOSITORY, env=env, stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        self.pid = self._process.pid

    def await_ready(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n", "the worker ended before it was ready"

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        if self.alive:
            self._process.send_signal(number)

    def kill(self) -> None:
        """-9, and wait until it is gone."""
        self.send(signal.SIGKILL)
        self._process.wait()

    def await_end(self, within: float) -> int:
        return self._process.wait(within)

    def close(self) -> None:
        self.kill()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()


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
        log = self._logs / f"worker{len(self.workers)}.log"
        worker = WorkerProcess(dsn or self._dsn, self._dsn, log, fault, lease, options)
        self.workers.append(worker)
        return worker

    def stall(self, worker: WorkerProcess) -> None:
        """Stop the process where it stands. What it then does late is its own zombie's."""
        self.stalled.add(worker.pid)
        worker.send(signal.SIGSTOP)

    def close(self) -> None:
        for worker in self.workers:
            worker.close()

    def told(self) -> str:
        """What the workers logged."""
        return "\n".join(f"--- {log.name}\n{log.read_text()[-6000:]}" for log in sorted(self._logs.glob("*.log")))


def eventually(condition: Callable[[], bool], what: str, within: float = 30.0) -> None:
    """Wait for a condition, with a deadline that only a fault in the runtime can reach."""
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, f"after {within:g} s still not: {what}"
        time.sleep(0.02)
