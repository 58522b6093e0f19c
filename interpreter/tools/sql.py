"""`tools.sql`: one statement with parameters, on any PostgreSQL, or in the runtime's own database exactly once."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any

import psycopg
from psycopg import sql as composing
from psycopg.rows import dict_row

from durable import NonRetryable
from interpreter.functions import in_transaction

# Rows are a step's value and live in the journal; more belongs into a table.
MOST_ROWS = 10_000
Params = Sequence[Any] | dict[str, Any] | None


class StatementRefused(NonRetryable):
    """The database understood and said no: another try would end the same."""


async def query(statement: str, params: Params = None, *, database: str) -> dict[str, Any]:
    """`{rows, count}` of one statement in a database of its own, committed before the step is recorded.

    Values go as `params`, for `%s` or `%(name)s`; a template inside the statement would be code.
    """
    async with await psycopg.AsyncConnection.connect(database, connect_timeout=10) as connection:
        return await _execute(connection, statement, params)


@in_transaction
async def transaction(connection: Any, statement: str, params: Params = None) -> dict[str, Any]:
    """The same in the runtime's own database: what it changes commits with the step's record, exactly once."""
    return await _execute(connection, statement, params)


async def _execute(connection: psycopg.AsyncConnection[Any], statement: str, params: Params) -> dict[str, Any]:
    try:
        async with connection.cursor(row_factory=dict_row) as cursor:
            await cursor.execute(composing.SQL(statement), params)
            rows = await cursor.fetchmany(MOST_ROWS + 1) if cursor.description else []
            count = cursor.rowcount
    except (psycopg.ProgrammingError, psycopg.DataError, psycopg.IntegrityError) as exc:
        raise StatementRefused(str(exc).strip()) from None
    if len(rows) > MOST_ROWS:
        raise StatementRefused(f"over {MOST_ROWS:,} rows; add a limit, or write them into a table")
    return {"rows": [{name: _plain(value) for name, value in row.items()} for row in rows], "count": count}


def _plain(value: Any) -> Any:
    """A value as JSON has it. Exact numbers become text: a float would be another number."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() and abs(value) < 2**53 else str(value)
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bytes | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, dict) or value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)
