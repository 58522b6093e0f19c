"""A worker and a client in the test's own loop, on a database of the test's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import psycopg
import pytest

from durable import Durable, Settings, Worker, Workflow


class Runtime:
    """What a runtime test acts through."""

    def __init__(self, dsn: str, client: Durable):
        self.dsn = dsn
        self.client = client
        self._workers: list[tuple[Worker, asyncio.Task[None]]] = []

    async def work(self, *workflows: Workflow, queues: tuple[str, ...] | None = None, **settings: Any) -> Worker:
        """Start a worker; it is stopped at the end of the test."""
        worker = Worker(self.dsn, workflows, queues=queues, settings=Settings(**settings))
        self._workers.append((worker, asyncio.create_task(worker.run())))
        await worker.ready()
        return worker

    async def run(self, workflow: Workflow, *args: Any, **kwargs: Any) -> Any:
        """Start a run and wait for its result."""
        return await self.client.result(await self.client.start(workflow, *args, **kwargs), timeout=30)

    async def run_skipping(self, workflow: Workflow, *args: Any) -> Any:
        """Start a run and skip an hour whenever it waits: every sleep really parks, however slow the machine."""
        run_id = await self.client.start(workflow, *args)
        while True:
            await self.state_is(run_id, "parked", "succeeded", "failed", "cancelled")
            if (await self.client.run(run_id)).final:
                return await self.client.result(run_id)
            await self.skip(3600)

    async def state_is(self, run_id: str, *states: str) -> None:
        """Wait until a run is in one of these states."""
        await self.until(lambda: self._is(run_id, states))

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(30):
            # What is waited for happens in the database or in another process.
            while not await holds():  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def sql(self, text: str, *params: Any) -> list[Any]:
        async with await psycopg.AsyncConnection.connect(self.dsn, autocommit=True) as connection:
            cursor = await connection.execute(text, params or None)
            return await cursor.fetchall() if cursor.description else []

    async def skip(self, seconds: float) -> None:
        await self.sql("select durable.skip_time(make_interval(secs => %s))", seconds)

    async def names(self, run_id: str) -> list[str]:
        """The names of a run's records, in order."""
        return [step.name for step in await self.client.steps(run_id)]

    async def stop(self) -> None:
        for worker, task in self._workers:
            worker.stop()
            await task
        self._workers.clear()

    async def _is(self, run_id: str, states: tuple[str, ...]) -> bool:
        return await self.client.state(run_id) in states


@pytest.fixture
async def runtime(durable_dsn: str) -> AsyncIterator[Runtime]:
    async with Durable(durable_dsn) as client:
        runtime = Runtime(durable_dsn, client)
        try:
            yield runtime
        finally:
            await runtime.stop()
