"""One thing of several, done apart: what cannot be done must not stop the others."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, TypeVar

import psycopg

T = TypeVar("T")


class Trouble(str):
    """What was wrong."""


async def attempt(connection: psycopg.AsyncConnection[Any], what: Awaitable[T]) -> T | Trouble:
    """Do it, all or nothing, inside the transaction that is open; what it gave, or what was wrong with it. A store that
    does not answer is everybody's trouble, and raised."""
    try:
        async with connection.transaction():
            return await what
    except psycopg.OperationalError:
        raise
    except (ValueError, KeyError, psycopg.DatabaseError) as exc:
        return Trouble(str(exc) or type(exc).__name__)
