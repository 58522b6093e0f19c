"""Why things ran, were skipped or wait: the walker's notes, kept with the run's log for people to read."""

from __future__ import annotations

from collections import deque
from typing import Any, Final
from uuid import UUID, uuid5

from durable import DurableContext
from interpreter.walker.commands import Note

LEVEL: Final = "why"
# On a replay only the newest notes can be missing: those of records that were committed with the last flush.
_NEWEST: Final = 64


class Notes:
    """Written along with the next flush, and never twice: the id of a note follows from what it says."""

    def __init__(self, ctx: DurableContext) -> None:
        self._ctx = ctx
        self._replayed: deque[Note] = deque(maxlen=_NEWEST)

    def keep(self, note: Note) -> None:
        if self._ctx.replaying:
            self._replayed.append(note)
            return
        self.close()
        self._write(note)

    def close(self) -> None:
        """Write what a replay came past and may not have been written."""
        while self._replayed:
            self._write(self._replayed.popleft())

    def _write(self, note: Note) -> None:
        self._ctx.say({"logs": [self._row(note)]})

    def _row(self, note: Note) -> dict[str, Any]:
        return {
            "r": self._ctx.run_id,
            "t": self._ctx.task_id,
            "i": str(uuid5(UUID(self._ctx.task_id), f"{note.path} {note.what} {note.data!r}")),
            "l": LEVEL,
            "s": note.path,
            "m": note.what,
            "f": {"data": note.data},
        }
