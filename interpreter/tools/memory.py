"""`tools.memory`: values that outlive a run. Each change commits with the record of its step, so it happens once."""

from __future__ import annotations

from typing import Any

from durable import memory
from interpreter.functions import in_transaction

SHARED = "shared"


@in_transaction
async def put(connection: Any, key: str, value: Any = None, scope: str = SHARED) -> Any:
    """Remember a value under a key; returns it. `scope` keeps keys apart, for example `{{ run.id }}`."""
    await memory.put(connection, scope, key, value)
    return value


@in_transaction
async def get(connection: Any, key: str, default: Any = None, scope: str = SHARED) -> Any:
    """The value under a key, or the default."""
    return await memory.get(connection, scope, key, default)


@in_transaction
async def increment(connection: Any, key: str, by: float = 1, scope: str = SHARED) -> float:
    """Add to a number that begins at 0; returns the sum."""
    return await memory.increment(connection, scope, key, by)
