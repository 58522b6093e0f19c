"""When a store is still: every run has ended or waits, so that only time or someone outside can go on.

One statement sees it all at one moment: what is not done is ready, held, signalled or due, or it waits.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import psycopg

BUSY = """
    select exists (select from durable.ready) or exists (select from durable.held)
        or exists (select from durable.signal) or exists (select from durable.timer where wake_at <= durable.now())"""
NEXT = "select min(wake_at) - durable.now() from durable.timer"
SKIP = "select durable.skip_time(%s)"
WAITS = """
    select coalesce('event ' || quote_literal(w.name), 'children') from durable.wait w
    where w.run_id = %s and w.outcome is null order by 1"""


class Stuck(AssertionError):
    """A run waits for something that nobody in this test will do."""


class Stillness:
    """Looks at one store, and moves its clock."""

    # How long something outside (another task of the test) may take to go on before a run counts as stuck.
    PATIENCE = 1.0

    def __init__(self, dsn: str):
        self._dsn = dsn
        self._session: psycopg.AsyncConnection | None = None
        self._turn = asyncio.Lock()

    async def wait(self) -> None:
        """Return when the store is still."""
        # The condition is in the database: there is no event to wait for.
        while await self._value(BUSY):  # noqa: ASYNC110
            await asyncio.sleep(0.003)

    async def skip(self, by: timedelta) -> None:
        await self._value(SKIP, by)

    async def skip_to_next_timer(self) -> bool:
        """Move the clock to the next timer; False when there is none."""
        rest = await self._value(NEXT)
        if rest is None:
            return False
        await self.skip(max(rest, timedelta(0)))
        return True

    async def explain(self, run_id: str) -> None:
        """Raise `Stuck` with what the run waits for, unless something goes on after all."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self.PATIENCE
        while loop.time() < until:
            if await self._value(BUSY) or await self._value(NEXT) is not None:
                return
            await asyncio.sleep(0.02)
        waits = await self._column(WAITS, run_id)
        state = (await self._column("select state from durable.run where run_id = %s", run_id) or ["gone"])[0]
        if state in ("succeeded", "failed", "cancelled"):
            return
        what = ", ".join(waits) or "nothing that is known"
        raise Stuck(f"run {run_id} is {state} and waits for {what}; nothing in this test will go on with it")

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _value(self, sql: str, *params: object) -> Any:
        found = await self._column(sql, *params)
        return found[0] if found else None

    async def _column(self, sql: str, *params: object) -> list[Any]:
        async with self._turn:
            if self._session is None:
                self._session = await psycopg.AsyncConnection.connect(self._dsn, autocommit=True)
            return [row[0] for row in await (await self._session.execute(sql, params)).fetchall()]
