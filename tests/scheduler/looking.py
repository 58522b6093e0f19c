"""A store, a worker by hand and the parts of a scheduler, each of whose looks is written down in a test."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg

from durable.testing.protocol import HandWorker, Store
from scheduler.triggers import TriggerLooks, Triggers


class Looking:
    """What a test of triggers, backfills or deadlines acts through."""

    def __init__(self, store: Store, connection: psycopg.AsyncConnection[Any]):
        self.store = store
        self.connection = connection
        self.triggers = Triggers(store.dsn)
        self._worker: HandWorker | None = None

    @property
    def worker(self) -> HandWorker:
        self._worker = self._worker or self.store.worker()
        return self._worker

    def register(self, name: str, *required: str, optional: tuple[str, ...] = (), **options: Any) -> None:
        """A workflow that declares its parameters."""
        self.store.register(name, params={"required": required, "optional": optional, "open": False}, **options)

    def pass_on(self) -> None:
        """Let a worker apply all that waits for a pass."""
        while self.worker.apply().more or self.store.value("select count(*) from durable.signal"):
            pass

    async def fire(self) -> int:
        """Pass, and look at triggers until there is nothing to do; how many looks there were."""
        self.pass_on()
        return await look_at_all(TriggerLooks(), self.connection)

    def inputs(self, workflow: str) -> list[Any]:
        """The inputs of a workflow's runs, in the order of their making."""
        return self.store.column(
            "select input from durable.run where workflow = %s order by created_at, run_id", workflow
        )

    def notes(self, workflow: str, kind: str) -> list[str]:
        return self.store.column(
            "select note from durable.schedule_note where workflow = %s and kind = %s order by at, id", workflow, kind
        )

    def set_clock(self, instant: str) -> None:
        """Let the store's clock show this instant."""
        self.store.run("select durable.skip_time(%s::timestamptz - durable.now())", instant)

    def emit(self, name: str, payload: Any = None) -> str:
        return self.store.emit(name, payload)


async def look_at_all(looks: Any, connection: psycopg.AsyncConnection[Any]) -> int:
    total = 0
    while found := await looks.run_once(connection):
        total += found
    return total


@asynccontextmanager
async def looking(dsn: str) -> AsyncIterator[Looking]:
    with Store(dsn) as store:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
            yield Looking(store, connection)


def as_json(value: Any) -> str:
    return json.dumps(value)
