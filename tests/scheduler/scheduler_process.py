"""A scheduler as a process of its own, to be killed."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import threading
from typing import NamedTuple

from durable import faults
from scheduler.service import Scheduler

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(["tests.scheduler.scheduler_process"])


class Order(NamedTuple):
    """What a scheduler process is to do."""

    dsn: str
    log: str
    fault: str | None
    fallback: float


class SchedulerProcess:
    """One scheduler."""

    def __init__(self, order: Order):
        self._process = _forks.Process(target=serve, args=(order,), daemon=True)
        self._process.start()

    def kill(self) -> None:
        """-9, and wait until it is gone."""
        self._process.kill()
        self._process.join()

    def await_end(self, within: float) -> int | None:
        """How it ended: 0 of its own will, -9 killed; None when it did not."""
        self._process.join(within)
        return self._process.exitcode


def serve(order: Order) -> None:
    """The process's main function."""
    os.dup2(os.open(order.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    os.dup2(2, 1)
    faults.arm(order.fault)
    threading.Thread(target=_end_with_the_test, daemon=True).start()
    asyncio.run(_serve(order))


async def _serve(order: Order) -> None:
    scheduler = Scheduler(order.dsn, fallback=order.fallback)
    scheduler.stop_on_signals()
    await scheduler.run()


def _end_with_the_test() -> None:
    """A test run that is itself killed must not leave schedulers behind."""
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)
