"""The time limit of a function that writes in its step's transaction.

Only the function is limited, never the commit: a step that has its record has not taken too long. An async function is
cancelled; of a plain one the server cancels the statement that takes too long. Either way all it wrote is rolled back.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import time
from collections.abc import Callable
from typing import Any

import psycopg

from durable.lanes import AttemptTimeout

# Both hold for the transaction only.
_SET = "select set_config('statement_timeout', %s, true)"
_RESET = "set local statement_timeout to default"


def limited(write: Callable[[Any], Any], seconds: float | None) -> Callable[[Any], Any]:
    """A function of a connection that raises `AttemptTimeout` when its time is over; async or not, as it is."""
    if seconds is None:
        return write
    return _cancelled(write, seconds) if inspect.iscoroutinefunction(write) else _interrupted(write, seconds)


def _cancelled(write: Callable[[Any], Any], seconds: float) -> Callable[[Any], Any]:
    async def in_time(connection: psycopg.AsyncConnection) -> Any:
        try:
            async with asyncio.timeout(seconds) as limit:
                return await write(connection)
        except TimeoutError:
            # A TimeoutError of the function's own is an ordinary failure.
            if limit.expired():
                raise _over(seconds) from None
            raise

    return in_time


def _interrupted(write: Callable[[Any], Any], seconds: float) -> Callable[[Any], Any]:
    def in_time(connection: psycopg.Connection) -> Any:
        began = time.monotonic()
        connection.execute(_SET, (f"{math.ceil(seconds * 1000)}ms",))
        try:
            value = write(connection)
        except psycopg.errors.QueryCanceled:
            if time.monotonic() - began >= seconds:
                raise _over(seconds) from None
            raise
        if time.monotonic() - began >= seconds:
            raise _over(seconds)
        connection.execute(_RESET)
        return value

    return in_time


def _over(seconds: float) -> AttemptTimeout:
    return AttemptTimeout(f"took longer than {seconds:g} s, and its transaction was rolled back")
