"""A worker as a process of its own, to be killed. Its log goes to a file."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sys
import threading
from typing import Any, NamedTuple

import structlog

from durable import Settings, Worker, faults
from tests.faults import workload


class Order(NamedTuple):
    """What a worker process is to do."""

    dsn: str
    world: str
    log: str
    fault: str | None
    settings: dict[str, Any]


def serve(order: Order) -> None:
    """The process's main function."""
    os.dup2(os.open(order.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    os.dup2(2, 1)
    os.environ["FAULTS_WORLD"] = order.world
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    faults.arm(order.fault)
    threading.Thread(target=_end_with_the_test, daemon=True).start()
    asyncio.run(_work(order))


async def _work(order: Order) -> None:
    worker = Worker(order.dsn, workload.ALL, settings=Settings(**order.settings))
    worker.stop_on_signals()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, _tell_where_everyone_is)
    await worker.run()


def _tell_where_everyone_is() -> None:
    """For a test that has failed: what each task of the loop waits for."""
    for task in asyncio.all_tasks():
        task.print_stack(limit=4, file=sys.stderr)


def _end_with_the_test() -> None:
    """A test run that is itself killed must not leave workers behind."""
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)
