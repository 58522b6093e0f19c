"""`tools.echo`, `tools.fail`, `tools.sleep`: for trying things out, and for saying no."""

from __future__ import annotations

import asyncio
from typing import Any

from durable import NonRetryable


class Failed(Exception):
    """What `tools.fail` fails with; a retry policy may try again."""


class FailedForGood(NonRetryable):
    """The same, and no policy tries again."""


async def echo(value: Any = None, **named: Any) -> Any:
    """What it was given: one value, or an object of the named ones."""
    return named if named and value is None else value


async def fail(message: str = "told to fail", retryable: bool = True) -> None:
    """Fail, with this message."""
    raise (Failed if retryable else FailedForGood)(str(message))


async def sleep(seconds: float) -> None:
    """Hold this step for some seconds. A wait operator frees the worker meanwhile and survives it; this does not."""
    await asyncio.sleep(float(seconds))
