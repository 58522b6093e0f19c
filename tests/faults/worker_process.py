"""A worker as a process of its own: `python -m tests.faults.worker_process DSN`; settings come from the environment.

It prints "ready" once it has registered itself.
"""

from __future__ import annotations

import asyncio
import sys

import structlog

from durable import Worker
from tests.faults import workload


async def main(dsn: str) -> None:
    worker = Worker(dsn, workload.ALL)
    worker.stop_on_signals()
    running = asyncio.create_task(worker.run())
    ready = asyncio.create_task(worker.ready())
    await asyncio.wait([running, ready], return_when=asyncio.FIRST_COMPLETED)
    print("ready", flush=True)
    await running


if __name__ == "__main__":
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    asyncio.run(main(sys.argv[1]))
