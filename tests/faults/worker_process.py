"""A worker as a process of its own, to be killed. Its log goes to a file."""

from __future__ import annotations

import asyncio
import os
import sys
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
    asyncio.run(_work(order))


async def _work(order: Order) -> None:
    worker = Worker(order.dsn, workload.ALL, settings=Settings(**order.settings))
    worker.stop_on_signals()
    await worker.run()
