"""Ending tasks of the event loop for sure.

A cancel can be lost: the driver may answer it with its own error about a broken connection, which a service that
tries again for ever takes for one more lost connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

_AGAIN = 0.2


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks, again and again, until all have ended. What they raise is nobody's concern any more."""
    everyone = set(tasks)
    pending = everyone
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=_AGAIN)
    await asyncio.gather(*everyone, return_exceptions=True)
