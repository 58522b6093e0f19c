"""The worker: terms one after the other, until it is told to stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence

import structlog

from durable.codec import Codec, PlainCodec
from durable.settings import Settings
from durable.store import check_store
from durable.term import Term
from durable.versions import Catalogue
from durable.workflow import Workflow

log = structlog.get_logger("durable.worker")


class Worker:
    """Runs workflows from one database until stopped. Use it as a service: `await Worker(...).run()`.

    Without `queues`, each workflow is served on its own queue. With a `catalogue`, deployed workflows of its languages
    are served too, also those deployed while it works: on `queues`, or on "default".
    """

    def __init__(
        self,
        dsn: str,
        workflows: Sequence[Workflow],
        *,
        queues: Sequence[str] | None = None,
        settings: Settings | None = None,
        codec: Codec | None = None,
        catalogue: Catalogue | None = None,
    ):
        names = [workflow.name for workflow in workflows]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"two workflows have the same name: {', '.join(sorted(twice))}")
        self._dsn = dsn
        self._workflows = workflows
        self._queues = queues
        self._settings = settings or Settings.from_environment()
        self._codec = codec or PlainCodec()
        self._catalogue = catalogue
        self._stopping = asyncio.Event()
        self._hurry = asyncio.Event()
        self._ready = asyncio.Event()
        self.term: Term | None = None

    @property
    def dsn(self) -> str:
        """Where it works."""
        return self._dsn

    async def run(self) -> None:
        """Work until `stop()`; a lost lease begins a new term under a new id."""
        await check_store(self._dsn)
        while not self._stopping.is_set():
            self.term = Term(self._dsn, self._workflows, self._queues, self._settings, self._codec, self._catalogue)
            await self._serve(self.term)

    async def ready(self) -> None:
        """Wait until the worker has registered itself and its workflows."""
        await self._ready.wait()

    def stop(self) -> None:
        """Drain: claim nothing more, give tasks back at their next step. A second call hurries."""
        if self._stopping.is_set():
            self._hurry.set()
        self._stopping.set()

    def stop_on_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)

    async def _serve(self, term: Term) -> None:
        serving = asyncio.create_task(term.run())
        ready = asyncio.create_task(term.ready.wait())
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait([serving, ready], return_when=asyncio.FIRST_COMPLETED)
            self._ready.set()
            await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
            if not serving.done():
                await self._drain(term)
            await serving
        finally:
            ready.cancel()
            stopping.cancel()
            if not serving.done():
                serving.cancel()
                await asyncio.gather(serving, return_exceptions=True)

    async def _drain(self, term: Term) -> None:
        term.drain()
        drained = asyncio.create_task(term.drained(self._settings.drain_seconds))
        hurry = asyncio.create_task(self._hurry.wait())
        await asyncio.wait([drained, hurry], return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        if not drained.done():
            drained.cancel()
            await term.drained(0)
