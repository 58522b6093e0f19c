"""Why things ran, were skipped or wait: the walker's notes, kept with the run's log for people to read.

They follow from records alone, so a replay makes them again. Each is compared with what was written the first time:
a walk that decides otherwise than it did stops there, before it does anything.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from hashlib import blake2b
from typing import Any, Final
from uuid import UUID

import orjson

from durable import DurableContext
from durable.errors import Diverged
from interpreter.walker.commands import Note

LEVEL: Final = "why"
Key = tuple[str, str]


class Notes:
    """Written along with the next flush, once. `_stored` is what a replay has still to come to, by path and kind."""

    __slots__ = ("_ctx", "_missing", "_stored", "_written", "comparing")

    def __init__(self, ctx: DurableContext) -> None:
        self.comparing = False  # the walk goes through its past again
        self._ctx = ctx
        self._stored: dict[Key, list[Any]] | None = None
        self._missing: list[Note] = []
        self._written = 0

    async def load(self) -> None:
        """Read what was written about the part of the past that is about to happen again."""
        stored = defaultdict[Key, list[Any]](list)
        first, last = _id(self._ctx.task_id, self._ctx.snapshot_pos + 1), _id(self._ctx.task_id, 2**32 - 1)
        for path, what, fields in await self._ctx.logged(LEVEL, first, last):
            stored[path, what].append(fields["data"])
        self._stored = dict(stored)
        self.comparing = True

    def keep(self, note: Note) -> None:
        if self._stored is None:
            self._write(note)
        elif not self._known(self._stored, note):
            # Of the newest records the notes may have been lost with the worker.
            self._missing.append(note)

    def fed(self) -> None:
        """The walker has taken a record in. After the last of the past, nothing may be left that it did not come to."""
        if self._stored is None or self._ctx.replaying:
            return
        left, self._stored, self.comparing = self._stored, None, False
        for (path, what), written in left.items():
            if written:
                raise self._diverged(path, f"{_said(what, written[0])}, but now it is nothing of that kind")
        self.close()

    def close(self) -> None:
        """Write what a replay came past and was not written."""
        for note in self._missing:
            self._write(note)
        self._missing.clear()

    def _known(self, stored: dict[Key, list[Any]], note: Note) -> bool:
        written = stored.get((note.path, note.what))
        if not written:
            return False
        data = orjson.loads(orjson.dumps(note.data))
        if data not in written:
            said, now = _said(note.what, written[0]), _said(note.what, data)
            raise self._diverged(note.path, f"{said}, but now it is {now}")
        written.remove(data)
        return True

    def _diverged(self, path: str, how: str) -> Diverged:
        return Diverged(
            f"run {self._ctx.run_id}: it was written down that {path!r} is {how}. The plan, or what its expressions"
            " mean, has changed since this run began. Put the old one back and retry the run, or fork it from a step"
            " before this one."
        )

    def _write(self, note: Note) -> None:
        pos, data = self._ctx.position, orjson.dumps([note.path, note.what, note.data])
        # Lines of one position are told apart by what they say, and stand in the order in which they were made.
        tail = (self._written % 2**16).to_bytes(2, "big") + blake2b(data, digest_size=4).digest()
        self._written += 1
        row = {
            "r": self._ctx.run_id,
            "t": self._ctx.task_id,
            "i": str(_id(self._ctx.task_id, pos, tail)),
            "l": LEVEL,
            "s": note.path,
            "m": note.what,
            "f": {"data": note.data, "pos": pos},
        }
        self._ctx.say({"logs": [row]})


def _id(task_id: str, pos: int, tail: bytes = bytes(6)) -> UUID:
    """The id of a note. Those of one task stand together, behind all other lines and in the order of the journal, so
    that what follows a snapshot is read without what came before it."""
    return UUID(bytes=b"\xff\xff" + zlib.crc32(task_id.encode()).to_bytes(4, "big") + pos.to_bytes(4, "big") + tail)


def _said(what: str, data: Any) -> str:
    return what if data is None else f"{what} {orjson.dumps(data).decode()}"
