"""Questions to the database of a case, cheap enough to be asked while it is measured."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import psycopg

BUSY = "select exists (select from durable.ready where line = any (%(lines)s)) or exists (select from durable.held)"
LINES = "select array_agg(l.line) from durable.line l where l.workflow = any (%s)"
LAST = "select extract(epoch from max(t.finished_at)) from durable.task t where t.finished_at is not null"

WORKER_SESSIONS = """
select pid from pg_stat_activity where datname = current_database() and application_name like 'durable:%'
"""


class Probe:
    """One connection beside the measured ones."""

    POLL = 0.01

    def __init__(self, connection: psycopg.AsyncConnection):
        self._connection = connection

    @classmethod
    async def open(cls, dsn: str) -> Probe:
        return cls(await psycopg.AsyncConnection.connect(dsn, autocommit=True))

    async def __aenter__(self) -> Probe:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._connection.close()

    async def value(self, sql: str, params: Any = None) -> Any:
        row = await (await self._connection.execute(sql, params)).fetchone()
        return row and row[0]

    async def rows(self, sql: str) -> list[Any]:
        return await (await self._connection.execute(sql.encode())).fetchall()

    async def run(self, sql: str, params: Any = None) -> None:
        await self._connection.execute(sql, params)

    async def transactions(self) -> int:
        """Write transactions of the server so far: exact at once, unlike its statistics."""
        return int(await self.value("select pg_snapshot_xmax(pg_current_snapshot())::text::bigint"))

    async def server_cpu(self) -> float:
        """Seconds of CPU that the worker's sessions have used on the server; 0 if it is not on this machine.

        Noise of a shared machine moves the clock far more than this.
        """
        rows = await (await self._connection.execute(WORKER_SESSIONS)).fetchall()
        return sum(_on_cpu(int(pid)) for (pid,) in rows)

    async def drained(self, *workflows: str) -> None:
        """Return when nothing of these workflows is ready and nothing runs."""
        lines = await self.value(LINES, (list(workflows),))
        while await self.value(BUSY, {"lines": lines}):  # noqa: ASYNC110 - the condition is in the database
            await asyncio.sleep(self.POLL)

    async def last_end(self) -> float:
        """When the last task ended, by the server's clock: the beginning of its last flush."""
        return float(await self.value(LAST))

    async def parked(self, count: int) -> None:
        """Return when so many tasks are parked."""
        # The condition is in the database: there is no event to wait for.
        while await self.value("select count(*) from durable.task where state = 'parked'") < count:  # noqa: ASYNC110
            await asyncio.sleep(self.POLL)


def _on_cpu(pid: int) -> float:
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    except OSError:
        return 0.0
