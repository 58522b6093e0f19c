"""Highway workflows on a real worker, with functions that only remember how they were called."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import psycopg

from durable import Catalogue, Durable, Settings, Start, Worker, current_step
from durable import Workflow as DurableWorkflow
from durable.runs import RunInfo
from highway_dsl import Workflow
from interpreter.driver import FunctionTable
from interpreter.highway import highway_workflow


@dataclass
class Called:
    """One call of a function."""

    step: str
    function: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    attempt: int


class Fakes:
    """Every function there could be. What `outcomes` has for a name is returned, raised, or called."""

    def __init__(self, outcomes: dict[str, Any] | None = None):
        self.outcomes = outcomes or {}
        self.calls: list[Called] = []

    def resolve(self, name: str) -> Callable[..., Any]:
        async def fake(*args: Any, **kwargs: Any) -> Any:
            info = current_step()
            self.calls.append(Called(info.name, name, args, kwargs, info.attempt))
            return await self._outcome(name, info.name, args, kwargs)

        return fake

    async def _outcome(self, name: str, step: str, args: Any, kwargs: Any) -> Any:
        outcome = self.outcomes.get(step, self.outcomes.get(name))
        if callable(outcome):
            outcome = outcome(*args, **kwargs)
        if asyncio.iscoroutine(outcome):
            outcome = await outcome
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    @property
    def steps(self) -> list[str]:
        return [call.step for call in self.calls]

    @property
    def tasks(self) -> list[str]:
        """The tasks that ran, in order, without the frames they ran in and the owners of handlers."""
        return [step.rpartition("/")[2].partition("@")[0] for step in self.steps]


@dataclass
class Ended:
    """A run that has ended."""

    info: RunInfo
    fakes: Fakes
    notes: dict[str, str] = field(default_factory=dict)

    @property
    def state(self) -> str:
        return self.info.state

    @property
    def result(self) -> Any:
        return self.info.result

    @property
    def error(self) -> dict[str, Any]:
        return self.info.error or {}

    def noted(self, *states: str) -> set[str]:
        """The nodes that the run notes as being in one of these states."""
        return {path for path, state in self.notes.items() if state in states}


class Stage:
    """One database, its client, and the workers of one test."""

    def __init__(self, dsn: str, client: Durable):
        self.dsn = dsn
        self.client = client
        self._workers: list[tuple[Worker, asyncio.Task[None]]] = []

    async def work(
        self,
        *workflows: DurableWorkflow,
        catalogue: Catalogue | None = None,
        queues: tuple[str, ...] | None = None,
        **settings: Any,
    ) -> Worker:
        worker = Worker(self.dsn, workflows, queues=queues, settings=Settings(**settings), catalogue=catalogue)
        self._workers.append((worker, asyncio.create_task(worker.run())))
        await worker.ready()
        return worker

    async def run(
        self,
        definition: Workflow,
        outcomes: dict[str, Any] | None = None,
        inputs: dict[str, Any] | None = None,
        settings: dict[str, Any] | None = None,
        **options: Any,
    ) -> Ended:
        """Run a workflow to its end."""
        fakes = Fakes(outcomes)
        flow = highway_workflow(definition, fakes, **options)
        await self.work(flow, **(settings or {}))
        return await self.end(await self.start(flow, inputs), fakes)

    async def start(self, flow: DurableWorkflow, inputs: dict[str, Any] | None = None, **options: Any) -> str:
        ids = await self.client.start_many(flow, [inputs or {}], options=Start(**options))
        return ids[0]

    async def end(self, run_id: str, fakes: Fakes) -> Ended:
        """Wait until a run has ended; times that it waits for go by at once."""
        async with asyncio.timeout(40):
            while (info := await self.client.run(run_id)).state not in ("succeeded", "failed", "cancelled"):
                if info.state in ("parked", "delayed"):
                    await self._skip_to_next_timer()
                await asyncio.sleep(0.01)
        return Ended(info, fakes, await self.notes(run_id))

    async def notes(self, run_id: str) -> dict[str, str]:
        rows = await self.sql("select step, message from durable.log where run_id = %s and level = 'why'", run_id)
        final = ("skipped", "upstream_failed", "failed", "cancelled", "exited", "expired")
        return {step: message for step, message in rows if message in final}

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(30):
            while not await holds():  # noqa: ASYNC110 - it happens in the database
                await asyncio.sleep(0.01)

    async def parked(self, run_id: str) -> None:
        async def is_parked() -> bool:
            return await self.client.state(run_id) == "parked"

        await self.until(is_parked)

    async def skip(self, seconds: float) -> None:
        await self.sql("select durable.skip_time(make_interval(secs => %s))", seconds)

    async def _skip_to_next_timer(self) -> None:
        """Move the database's clock to the next timer, if there is nothing else to wait for."""
        # What a timer has set off comes first: a deadline that fired is a signal until it is applied. So does a branch
        # that is being run: no time goes by while it works.
        rows = await self.sql(
            "select extract(epoch from min(wake_at) - durable.now())::float from durable.timer"
            " where not exists (select from durable.signal) and not exists (select from durable.ready)"
            " and not exists (select from durable.held)"
        )
        if rows[0][0] is not None and rows[0][0] > 0:
            await self.skip(rows[0][0] + 0.001)

    async def sql(self, text: str, *params: Any) -> list[Any]:
        async with await psycopg.AsyncConnection.connect(self.dsn, autocommit=True) as connection:
            cursor = await connection.execute(text.encode(), params or None)
            return await cursor.fetchall() if cursor.description else []

    async def stop(self) -> None:
        for worker, task in self._workers:
            worker.stop()
            await task
        self._workers.clear()


def table(**functions: Any) -> FunctionTable:
    """Functions by their last name."""
    return FunctionTable(functions)
