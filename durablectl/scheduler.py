"""`durable scheduler`: the service that makes the runs of schedules. Any number of them may run beside each other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

import structlog

from durable.store import check_store
from durablectl import database, exits, logs
from durablectl.ending import Ending, leave
from durablectl.scheduling import grace
from durablectl.worker import chosen_database
from scheduler.service import Scheduler, all_parts

log = structlog.get_logger("durable.scheduler")

# A look is one short transaction; what takes longer is stuck.
PATIENCE = 20.0


def schedule(database_url: str | None, leash: int | None) -> int:
    """Be a scheduler until told to stop."""
    logs.to_standard_error(with_pid=leash is not None)
    with ExitStack() as until_end:
        url = chosen_database(database_url, until_end)
        if leash is None:
            asyncio.run(check_store(url))
            log.info("starting", database=database.where(url))
        asyncio.run(_serve(url, Ending(PATIENCE, leash)))
    return leave(exits.OK)


@asynccontextmanager
async def scheduling(url: str) -> AsyncIterator[None]:
    """A scheduler beside what else this process does."""
    service = Scheduler(url, all_parts(grace()))
    serving = asyncio.create_task(service.run())
    try:
        yield
    finally:
        service.stop()
        await serving


async def _serve(url: str, ending: Ending) -> None:
    service, loop = Scheduler(url, all_parts(grace())), asyncio.get_running_loop()
    ending.on_signals(lambda: None if loop.is_closed() else _ask(loop, service))
    serving = asyncio.create_task(service.run())
    ready = asyncio.create_task(service.ready())
    await asyncio.wait([serving, ready], return_when=asyncio.FIRST_COMPLETED)
    if ready.done():
        log.info("the scheduler is ready")
    ready.cancel()
    await serving


def _ask(loop: asyncio.AbstractEventLoop, service: Scheduler) -> None:
    loop.call_soon_threadsafe(service.stop)
