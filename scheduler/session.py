"""Where the client side of the scheduler speaks to the store: through a connection of its own, or the caller's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from psycopg.rows import dict_row

from durable.link import connect
from durable.reads import refusal


class Session:
    """One statement at a time: on a fresh connection with a DSN, inside the caller's transaction with a connection."""

    def __init__(self, on: str | psycopg.AsyncConnection[Any]):
        self._on = on

    async def value(self, sql: str, params: Sequence[Any] = ()) -> Any:
        """The first column of the first row."""
        rows = await self.rows(sql, params)
        return next(iter(rows[0].values())) if rows else None

    async def rows(self, sql: str, params: Sequence[Any] = ()) -> list[dict[str, Any]]:
        async with self.open() as connection, connection.cursor(row_factory=dict_row) as cursor:
            try:
                await cursor.execute(sql.encode(), params)
                return await cursor.fetchall()
            except psycopg.Error as exc:
                raise refusal(exc) from None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        if not isinstance(self._on, str):
            yield self._on
            return
        connection = await connect(self._on, "durable-schedules")
        try:
            yield connection
        finally:
            await connection.close()
