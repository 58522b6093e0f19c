"""Other people's connections: run one statement inside the transaction that the caller has open."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import psycopg

from durable.errors import WrongArguments


async def execute_on(connection: Any, sql: str, params: Sequence[Any]) -> list[Any]:
    """Run `sql` on a psycopg or SQLAlchemy connection or session, sync or async; its rows."""
    if isinstance(connection, psycopg.AsyncConnection):
        return await (await connection.execute(sql, params)).fetchall()
    if isinstance(connection, psycopg.Connection):
        return connection.execute(sql, params).fetchall()
    return await _on_sqlalchemy(connection, sql, params)


async def _on_sqlalchemy(connection: Any, sql: str, params: Sequence[Any]) -> list[Any]:
    if hasattr(connection, "connection") and callable(connection.connection):
        # A session lends the connection of its transaction.
        connection = await _maybe(connection.connection())
    if not hasattr(connection, "exec_driver_sql"):
        raise WrongArguments(
            f"{type(connection).__name__} cannot carry a start; pass a psycopg or SQLAlchemy connection"
        )
    result = await _maybe(connection.exec_driver_sql(sql, tuple(params)))
    return [tuple(row) for row in result]


async def _maybe(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
