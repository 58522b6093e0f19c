"""A store with a clock that a test sets, a scheduler that looks when it is told, and a worker played by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Self

import psycopg

from durable.link import connect
from durable.testing.protocol import HandWorker, Store
from scheduler.definition import Schedule
from scheduler.info import NoteInfo
from scheduler.schedules import Schedules
from scheduler.store import TickLooks

Connection = psycopg.AsyncConnection[Any]


def june(day: int, hour: int = 0, minute: int = 0, second: int = 0) -> datetime:
    """An instant of June 2026, or so many days after its first."""
    return datetime(2026, 6, 1, hour, minute, second, tzinfo=UTC) + timedelta(days=day - 1)


class Stage:
    """One store. `w` is the workflow that most tests need."""

    def __init__(self, dsn: str, store: Store, connection: Connection):
        self.dsn = dsn
        self.store = store
        self.connection = connection
        self.schedules = Schedules(dsn)
        self.looks = TickLooks()
        self._worker: HandWorker | None = None

    @classmethod
    async def open(cls, dsn: str) -> Self:
        return cls(dsn, Store(dsn), await connect(dsn, "test-scheduler"))

    async def close(self) -> None:
        self.store.connection.close()
        await self.connection.close()

    @property
    def worker(self) -> HandWorker:
        """Enlisted when it is first needed."""
        self._worker = self._worker or self.store.worker()
        return self._worker

    # ---------------------------------------------------------------- moves

    def now_is(self, moment: datetime) -> None:
        """Move the database's clock, forward or back; it goes on from there."""
        self.store.run("select durable.skip_time(%s - durable.now())", moment)

    def workflow(self, *names: str, **options: Any) -> None:
        self.store.register(*(names or ("w",)), **options)

    async def set(self, cron: str | None = "0 0 * * *", workflow: str = "w", **terms: Any) -> bool:
        """Give a workflow its schedule, from the fields of a definition."""
        return await self.schedules.set(workflow, Schedule.of(workflow, schedule=cron, **terms), by="ann")

    async def look(self) -> None:
        """Look until nothing is due."""
        for _ in range(10_000):
            if not await self.looks.run_once(self.connection):
                return
        raise AssertionError("looks that never end")

    async def look_at(self, moment: datetime) -> list[datetime]:
        """Move the clock, look, and say which ticks were made by it."""
        before = set(self.ticks())
        self.now_is(moment)
        await self.look()
        return sorted(set(self.ticks()) - before)

    def settle(self) -> None:
        """Let the passes of workers do what there is to do."""
        for _ in range(200):
            passed = self.worker.apply()
            if not passed.signalled and not passed.more:
                return
        raise AssertionError("signals that never end")

    def end_one(self, state: str = "succeeded") -> str:
        """A worker claims a run and ends it; which run."""
        self.settle()
        task = self.worker.claim_one()
        self.worker.end(task, state)
        self.settle()
        return str(task.run_id)

    # ---------------------------------------------------------------- looking

    def ticks(self, workflow: str = "w") -> list[datetime]:
        """The ticks that have a run, in order."""
        return self.store.column("select tick from durable.tick where workflow = %s order by tick, attempt", workflow)

    def run_at(self, tick: datetime, workflow: str = "w") -> str:
        sql = "select run_id::text from durable.tick where workflow = %s and tick = %s order by attempt desc limit 1"
        return str(self.store.value(sql, workflow, tick))

    def unfinished(self, workflow: str = "w") -> int:
        sql = "select count(*) from durable.run where workflow = %s and finished_at is null"
        return int(self.store.value(sql, workflow))

    def row(self, workflow: str = "w") -> dict[str, Any]:
        [found] = self.store.column("select to_json(s) from durable.schedule s where s.workflow = %s", workflow)
        return dict(found)

    async def notes(self, kind: str | None = None, workflow: str = "w") -> list[NoteInfo]:
        """The history, oldest first."""
        found = await self.schedules.history(workflow, 1000)
        return [note for note in reversed(found) if kind is None or note.kind == kind]

    async def skips(self, workflow: str = "w") -> list[tuple[str, int | None]]:
        return [(note.note, note.ticks) for note in await self.notes("skipped", workflow)]
