"""Failures as data: what the journal holds of an exception, and the exception that a replay raises for it."""

from __future__ import annotations

import traceback
from typing import Any

from durable.errors import ChildFailed, StepFailed, StepTimeout, StepUncertain
from durable.lanes import AttemptTimeout
from durable.redaction import everywhere

_LONGEST = 8000
_RAISED: dict[str, type[StepFailed]] = {"StepTimeout": StepTimeout, "StepUncertain": StepUncertain}


def describe(exc: BaseException) -> dict[str, Any]:
    """An exception as a JSON object: its type, message, bases and where it came from."""
    if isinstance(exc, StepFailed):
        return exc.error
    name = "StepTimeout" if isinstance(exc, AttemptTimeout) else type(exc).__name__
    return {
        "type": name,
        "message": _storable(everywhere.text(str(exc)))[:_LONGEST],
        "types": [f"{kind.__module__}.{kind.__qualname__}" for kind in type(exc).__mro__[:-2]],
        "traceback": _storable(everywhere.text("".join(traceback.format_exception(exc))))[-_LONGEST:],
    }


def raised(error: dict[str, Any]) -> StepFailed:
    """The exception that a workflow sees for a recorded failure, on the first run and on every replay."""
    if "child" in error:
        return ChildFailed(error)
    return _RAISED.get(error.get("type", ""), StepFailed)(error)


def _storable(text: str) -> str:
    """Text that PostgreSQL can hold, whatever the exception's message was."""
    return text.replace("\x00", "\\0").encode("utf-8", "backslashreplace").decode()
