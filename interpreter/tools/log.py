"""`tools.log`: a line in the run's log and in the worker's."""

from __future__ import annotations

from typing import Any

from durable import NonRetryable, current_step

_LEVELS = ("debug", "info", "warning", "error")


async def log(message: Any, level: str = "info", **fields: Any) -> str:
    """Write a line; returns its text."""
    if level not in _LEVELS:
        raise NonRetryable(f"tools.log: there is no level {level!r}; there are {', '.join(_LEVELS)}")
    text = message if isinstance(message, str) else str(message)
    getattr(current_step().log, level)(text, **fields)
    return text


async def debug(message: Any, **fields: Any) -> str:
    return await log(message, "debug", **fields)


async def info(message: Any, **fields: Any) -> str:
    return await log(message, "info", **fields)


async def warning(message: Any, **fields: Any) -> str:
    return await log(message, "warning", **fields)


async def error(message: Any, **fields: Any) -> str:
    return await log(message, "error", **fields)
