"""A laboratory for workflows: a real store, a worker in the test's own loop, a clock that skips, and crashes.

    async def test_an_order_is_charged_once(durable_lab):
        async with durable_lab(order) as lab:
            lab.crash_after("charge")                    # its code has run, its record is not committed
            run = await lab.start(order, 42)
            assert await lab.result(run) == "shipped"    # through a thirty-day sleep, at once
            assert lab.ran(run) == ["charge", "charge", "ship"]

Nothing here is simulated but time: the store is PostgreSQL, and the worker is the one that runs in production. Only
timers and deadlines see the skipped time; leases do not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Self

import psycopg

from durable import faults
from durable.client import Durable
from durable.errors import Evicted
from durable.lanes import StepInfo
from durable.settings import Settings
from durable.testing.stillness import Stillness
from durable.worker import Worker
from durable.workflow import Workflow

# A test may stall for seconds on a busy machine, and looks often: nothing of that is worth a setting.
SETTINGS: dict[str, Any] = {
    "lease_seconds": 60.0,
    "poll_seconds": 0.1,
    "idle_poll_seconds": 0.1,
    "prune_seconds": 1e9,
    "flushers": 1,
}
BURY = "select durable.bury(w.worker_id, w.beat) from durable.worker w where w.worker_id = %s"


class Lab:
    """One store with one worker, until the block ends."""

    def __init__(self, dsn: str, workflows: Sequence[Workflow], **settings: Any):
        self.dsn = dsn
        self.client = Durable(dsn, workflows=workflows, settings=Settings(**SETTINGS | settings))
        self.crashes = 0
        self._workflows = workflows
        self._settings = Settings(**SETTINGS | settings)
        self._worker: Worker | None = None
        self._working: asyncio.Task[None] | None = None
        self._crashing: set[asyncio.Task[None]] = set()
        self._crash_points: list[tuple[str, str]] = []
        self._ran: list[StepInfo] = []
        self._stillness = Stillness(dsn)

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        await self.client.__aenter__()
        await self.start_worker()
        faults.watch(self._watch)
        return self

    async def __aexit__(self, *_: object) -> None:
        faults.unwatch(self._watch)
        await asyncio.gather(*self._crashing)
        await self.stop_worker()
        await self._stillness.close()
        await self.client.__aexit__()

    # ---------------------------------------------------------------- runs

    async def start(self, workflow: Workflow | str, *args: Any, **kwargs: Any) -> str:
        """Start a run; its id."""
        return await self.client.start(workflow, *args, **kwargs)

    async def run(self, workflow: Workflow | str, *args: Any, **kwargs: Any) -> Any:
        """Start a run and wait for its result, skipping all the time that it sleeps."""
        return await self.result(await self.start(workflow, *args, **kwargs))

    async def result(self, run_id: str, *, timeout: float = 30.0) -> Any:
        """The result of a run. Whenever everything waits, time is skipped to the next timer.

        A run that waits for something that nobody will do fails the test at once, and says what it waits for.
        """
        async with asyncio.timeout(timeout):
            while not (await self.client.run(run_id)).final:
                await self.settled()
                if not (await self.client.run(run_id)).final and not await self._stillness.skip_to_next_timer():
                    await self._stillness.explain(run_id)
        return await self.client.result(run_id)

    async def emit(self, name: str, payload: Any = None) -> None:
        """Emit an event."""
        await self.client.emit(name, payload)

    def ran(self, run_id: str) -> list[str]:
        """The steps of a run that were executed, one entry for each attempt, in the order in which they began.

        What was only replayed from the journal is not in it.
        """
        return [info.name for info in self._ran if info.run_id == str(run_id)]

    # ---------------------------------------------------------------- time

    async def skip(self, *, settle: bool = True, **time: float) -> None:
        """Move the clock, `skip(days=30)`, and wait until everything that became due has been done.

        What is under way is done before, so that a sleep begins before its time is skipped; with `settle=False` the
        clock moves now, in the middle of whatever runs.
        """
        if settle:
            await self.settled()
        await self._stillness.skip(timedelta(**time))
        if settle:
            await self.settled()

    async def settled(self, timeout: float = 30.0) -> None:
        """Return when every run has ended or waits: for a later time, an event, a child or a slot."""
        async with asyncio.timeout(timeout):
            await self._stillness.wait()

    # ---------------------------------------------------------------- workers

    def crash_before(self, step: str) -> None:
        """Crash the worker when this step is about to begin."""
        self._crash_points.append(("before", step))

    def crash_after(self, step: str) -> None:
        """Crash the worker when this step's code has run and its record is not committed."""
        self._crash_points.append(("after", step))

    async def crash_worker(self, *, restart: bool = True) -> None:
        """End the worker as kill -9 would, declare it dead, and let a new one take over."""
        worker, working = self._worker, self._working
        if worker is None or working is None:
            raise RuntimeError("there is no worker to crash; begin one with start_worker()")
        self._worker = self._working = None
        self.crashes += 1
        term = worker.term
        assert term is not None
        term.cut()
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        async with await psycopg.AsyncConnection.connect(self.dsn, autocommit=True) as session:
            await session.execute(BURY, (term.worker_id,))
        if restart:
            await self.start_worker()

    async def start_worker(self) -> None:
        self._worker = Worker(self.dsn, self._workflows, settings=self._settings)
        self._working = asyncio.create_task(self._worker.run())
        await self._worker.ready()

    async def stop_worker(self) -> None:
        """Let the worker leave in peace: it gives its tasks back at their next step."""
        if self._worker is not None and self._working is not None:
            self._worker.stop()
            await self._working
        self._worker = self._working = None

    # ---------------------------------------------------------------- inside

    def _watch(self, point: str, about: StepInfo | None) -> None:
        """A step of some worker of this process has come to a marked point."""
        if about is None or not self._runs(about):
            return
        if point == "step.before":
            self._meet("before", about)
            self._ran.append(about)
        elif point in ("step.after", "transaction.before"):
            self._meet("after", about)

    def _runs(self, about: StepInfo) -> bool:
        term = self._worker and self._worker.term
        return bool(term and term.runs(about.task_id))

    def _meet(self, moment: str, about: StepInfo) -> None:
        """Crash here if a test asked for it: nothing of what follows may reach the store."""
        if (moment, about.name) in self._crash_points:
            self._crash_points.remove((moment, about.name))
            self._loop.call_soon_threadsafe(self._crash_soon)
            if self._worker is not None and self._worker.term is not None:
                self._worker.term.cut()
            raise Evicted(f"the worker was crashed {moment} step {about.name!r}")

    def _crash_soon(self) -> None:
        crash = self._loop.create_task(self.crash_worker())
        self._crashing.add(crash)
        crash.add_done_callback(self._crashing.discard)
