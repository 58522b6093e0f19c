"""Log lines of a run: to the process's log and to the store, and never twice because of a replay."""

from __future__ import annotations

import contextlib
from typing import Any, Protocol

import structlog

from durable.ids import fine_uuid7
from durable.redaction import everywhere

_log = structlog.get_logger("durable.run")


class Speaker(Protocol):
    """Who has a log: a run, or one of its steps."""

    run_id: str
    task_id: str

    @property
    def replaying(self) -> bool: ...
    def say(self, effects: dict[str, list[dict[str, Any]]]) -> None: ...


class RunLog:
    """`ctx.log.info("charged", order=42)`. Nothing waits for a line to be stored."""

    __slots__ = ("_of", "_step")

    def __init__(self, of: Speaker, step: str | None = None):
        self._of = of
        self._step = step

    def debug(self, message: str, **fields: Any) -> None:
        self._write("debug", message, fields)

    def info(self, message: str, **fields: Any) -> None:
        self._write("info", message, fields)

    def warning(self, message: str, **fields: Any) -> None:
        self._write("warning", message, fields)

    def error(self, message: str, **fields: Any) -> None:
        self._write("error", message, fields)

    def _write(self, level: str, message: str, fields: dict[str, Any]) -> None:
        if self._of.replaying:
            return
        message, fields = everywhere.text(message), everywhere.value(fields)
        # A closed stream is no reason for a run to fail.
        with contextlib.suppress(OSError, ValueError):
            _log.log(_LEVELS[level], message, run=self._of.run_id, **fields)
        text = message.replace("\x00", "\\0")
        row = {
            "r": self._of.run_id,
            "t": self._of.task_id,
            "i": fine_uuid7(),
            "l": level,
            "s": self._step,
            "m": text,
            "f": _plain(fields),
        }
        self._of.say({"logs": [row]})


_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def _plain(fields: dict[str, Any]) -> dict[str, Any] | None:
    """Fields as JSON can hold them: a log line is never refused because of one."""
    if not fields:
        return None
    return {
        key: value if isinstance(value, (bool, int, type(None))) else everywhere.text(str(value)).replace("\x00", "\\0")
        for key, value in fields.items()
    }
