"""Memory: values by scope and key that outlive a run. Written on a transaction step's connection, each change once."""

from __future__ import annotations

from typing import Any

import psycopg

from durable import codec
from durable.reads import refusal

Connection = psycopg.AsyncConnection[Any]


async def put(connection: Connection, scope: str, key: str, value: Any) -> None:
    """Remember a value."""
    await _call(connection, "select durable.remember(%s, %s, %s::json)", (scope, key, codec.encode(value).decode()))


async def get(connection: Connection, scope: str, key: str, default: Any = None) -> Any:
    """What is remembered, or the default."""
    found = await connection.execute("select value from durable.memory where scope = %s and key = %s", (scope, key))
    row = await found.fetchone()
    return default if row is None else row[0]


async def increment(connection: Connection, scope: str, key: str, by: float = 1) -> float:
    """Add to a number that begins at 0; the sum."""
    total = await _call(connection, "select durable.increment(%s, %s, %s::numeric)", (scope, key, str(by)))
    return int(total) if total == int(total) else float(total)


async def _call(connection: Connection, sql: str, params: tuple[Any, ...]) -> Any:
    try:
        row = await (await connection.execute(sql, params)).fetchone()
    except psycopg.Error as exc:
        raise refusal(exc) from None
    return None if row is None else row[0]
