"""A client, workers with a catalogue, and a language that needs no compiler: a plan is what a run returns."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import psycopg
import pytest

from durable import Catalogue, Deployment, Durable, DurableContext, Settings, Version, Worker, Workflow, workflow


def deployment(name: str, returns: Any, **more: Any) -> Deployment:
    """A version of the test language."""
    text = repr(returns)
    return Deployment(
        workflow=name,
        version=hashlib.sha256(text.encode()).hexdigest(),
        language=more.pop("language", "test"),
        source=text,
        plan=returns,
        **more,
    )


class TestCatalogue:
    """Runs `{"returns": x}`, after the event `{"after": name}` if there is one."""

    __test__ = False
    languages: Sequence[str] = ("test",)

    def __init__(self) -> None:
        self.made: list[str] = []

    def workflow(self, version: Version) -> Workflow:
        self.made.append(version.version)
        plan = version.plan

        @workflow(name=version.workflow)
        async def run(ctx: DurableContext, **given: Any) -> Any:
            if plan.get("broken"):
                raise AssertionError("a broken version is never run")
            if "after" in plan:
                await ctx.wait_for_event(plan["after"])
            return {"returns": plan["returns"], "given": given, "version": ctx.version}

        if plan.get("broken"):
            raise ValueError("this version cannot be made to run")
        return run


class Runtime:
    """What a deployment test acts through."""

    def __init__(self, dsn: str, client: Durable):
        self.dsn = dsn
        self.client = client
        self._workers: list[tuple[Worker, asyncio.Task[None]]] = []

    async def work(
        self,
        *workflows: Workflow,
        catalogue: Catalogue | None = None,
        queues: tuple[str, ...] | None = None,
        **settings: Any,
    ) -> Worker:
        """Start a worker; it is stopped at the end of the test."""
        worker = Worker(self.dsn, workflows, queues=queues, settings=Settings(**settings), catalogue=catalogue)
        self._workers.append((worker, asyncio.create_task(worker.run())))
        await worker.ready()
        return worker

    async def run(self, name: str, **given: Any) -> Any:
        """Start a run and wait for its result."""
        return await self.client.result(await self.client.start(name, **given), timeout=30)

    async def state_is(self, run_id: str, *states: str) -> None:
        async def holds() -> bool:
            return await self.client.state(run_id) in states

        await self.until(holds)

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(30):
            # What is waited for happens in the database or in another process.
            while not await holds():  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def sql(self, text: str, *params: Any) -> list[Any]:
        async with await psycopg.AsyncConnection.connect(self.dsn, autocommit=True) as connection:
            cursor = await connection.execute(text, params or None)
            return await cursor.fetchall() if cursor.description else []

    async def stop(self) -> None:
        for worker, task in self._workers:
            worker.stop()
            await task
        self._workers.clear()


@pytest.fixture
async def runtime(durable_dsn: str) -> AsyncIterator[Runtime]:
    async with Durable(durable_dsn) as client:
        runtime = Runtime(durable_dsn, client)
        try:
            yield runtime
        finally:
            await runtime.stop()


@pytest.fixture
def catalogue() -> TestCatalogue:
    return TestCatalogue()


@pytest.fixture
def version_of() -> Callable[..., Deployment]:
    return deployment
