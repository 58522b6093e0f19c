"""One worker in this process, from its first claim to its drained end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import structlog

from durable import Catalogue, Settings, Worker, Workflow, process
from durablectl.database import VARIABLE
from durablectl.ending import Ending

log = structlog.get_logger("durable.worker")

# Closing sessions and leaving the store come after the drain.
CLOSING_SECONDS = 20.0

Meanwhile = Callable[[Worker], Awaitable[None]]


@dataclass(frozen=True)
class Service:
    """What a worker serves, and on which terms."""

    url: str
    workflows: Sequence[Workflow]
    queues: Sequence[str]
    settings: Settings
    catalogue: Catalogue | None = None

    @classmethod
    def of(
        cls,
        url: str,
        workflows: Sequence[Workflow],
        queues: Sequence[str] | None,
        settings: Settings,
        catalogue: Catalogue | None = None,
    ) -> Service:
        """Without queues named: those that the workflows want to run on."""
        own = sorted({"default", *(workflow.queue for workflow in workflows)})
        return cls(url, workflows, list(queues or own), settings, catalogue)

    @property
    def patience(self) -> float:
        """After so long a worker that was asked to end has ended, or something is stuck."""
        return self.settings.drain_seconds + CLOSING_SECONDS


def serve(service: Service, *, meanwhile: Meanwhile | None = None, leash: int | None = None) -> None:
    """Work until told to stop by a signal, by the end of the leash, or by `meanwhile`, which runs beside it."""
    # Steps and workflows of the user find the store here, whoever has chosen it.
    os.environ[VARIABLE] = service.url
    ending = Ending(service.patience, leash)
    try:
        process.run(_serve(service, ending, meanwhile or _announce))
    finally:
        ending.done()


async def _serve(service: Service, ending: Ending, meanwhile: Meanwhile) -> None:
    worker = Worker(
        service.url,
        service.workflows,
        queues=service.queues,
        settings=service.settings,
        catalogue=service.catalogue,
    )
    loop = asyncio.get_running_loop()
    ending.on_signals(lambda: _ask(loop, worker))
    serving = asyncio.create_task(worker.run())
    beside = asyncio.create_task(_once_ready(worker, meanwhile))
    await asyncio.wait([serving, beside], return_when=asyncio.FIRST_COMPLETED)
    if beside.done() and beside.exception() is not None:
        worker.stop()
    try:
        await serving
    finally:
        beside.cancel()
        await asyncio.gather(beside, return_exceptions=True)
    if not beside.cancelled():
        beside.result()


def _ask(loop: asyncio.AbstractEventLoop, worker: Worker) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(worker.stop)


async def _once_ready(worker: Worker, meanwhile: Meanwhile) -> None:
    await worker.ready()
    if worker.term is not None and worker.term.ready.is_set():
        await meanwhile(worker)


async def _announce(worker: Worker) -> None:
    assert worker.term is not None
    log.info("the worker is ready", worker=worker.term.worker_id)
