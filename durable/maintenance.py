"""Retention: what ended long ago is pruned, in batches so small that nobody notices.

Every worker looks once in a while, at a moment of its own; the store lets one of them at it at a time.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import NamedTuple

import psycopg
import structlog

from durable.errors import StoreUnavailable
from durable.link import connect
from durable.settings import Settings

log = structlog.get_logger("durable.maintenance")

# One batch: answers how many went, and where the next begins; null when nothing is left or another worker is at it.
RUNS = "select pruned, reached from durable.prune_runs(durable.now() - make_interval(secs => %s), %s, %s)"
EVENTS = "select pruned, reached from durable.prune_events(durable.now() - make_interval(secs => %s), %s, %s)"
HISTORY = "select pruned, reached from durable.prune_history(durable.now() - make_interval(secs => %s), %s, %s)"
ACCESSES = "select pruned, reached from durable.prune_secret_access(durable.now() - make_interval(secs => %s), %s, %s)"


class Pruned(NamedTuple):
    """What one look of the pruner has removed. `history`: of what schedulers leave behind, the most of one kind."""

    runs: int
    events: int
    history: int = 0
    accesses: int = 0


class Pruner:
    """Removes finished runs, events, the history of schedules and audit rows of secrets that are older than the
    retention setting."""

    MOST = 500
    # A batch that takes longer is halved: its runs have many children or records.
    LONGEST = 0.5

    def __init__(self, dsn: str, settings: Settings):
        self._dsn = dsn
        self._age = settings.retention_days * 86400
        self._every = settings.prune_seconds
        self._batch = self.MOST

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._every * random.uniform(0.5, 1.5))
            try:
                await self.run_once()
            except (StoreUnavailable, psycopg.Error) as exc:
                # Retention can wait; the worker it runs in cannot.
                log.warning("retention failed and will be tried again", error=str(exc).strip())

    async def run_once(self) -> Pruned:
        """Prune all that is old enough."""
        session = await connect(self._dsn, "durable-prune")
        try:
            pruned = Pruned(*[await self._prune(session, what) for what in (RUNS, EVENTS, HISTORY, ACCESSES)])
        finally:
            await session.close()
        if any(pruned):
            log.info("pruned", **pruned._asdict())
        return pruned

    async def _prune(self, session: psycopg.AsyncConnection, sql: str) -> int:
        total, after = 0, None
        while True:
            size, began = self._batch, time.monotonic()
            cursor = await session.execute(sql, (self._age, size, after))
            pruned, reached = await cursor.fetchone() or (None, None)
            total += pruned or 0
            took = time.monotonic() - began
            self._batch = max(1, size // 2) if took > self.LONGEST else min(self.MOST, size * 2)
            if reached is None:
                return total
            after = reached
            # As long a rest as the work took: retention leaves at least half of the server's attention to others.
            await asyncio.sleep(took)
