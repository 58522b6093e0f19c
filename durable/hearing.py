"""What steps in processes of their own say, heard by the worker that sent them there.

Each thing said is one datagram: a process that is killed in the middle of a sentence leaves no half of one behind and
no lock that others wait for.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
from collections.abc import Callable
from typing import Any

import orjson

Effects = dict[str, list[dict[str, Any]]]
Tell = Callable[[Effects], None]

# All that a step may say from there; anything else it would do to the store is not heard.
_HEARD = ("logs", "progress")
_LARGEST = 1 << 20
_CLIPPED = 1000


class Ears:
    """The worker's end. `mouth` goes to every process of the pool."""

    def __init__(self) -> None:
        self._ear, self.mouth = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._ear.setblocking(False)
        self._tells: dict[int, Tell] = {}
        self._numbers = itertools.count(1)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._ear, self.hear)

    def expect(self, tell: Tell) -> int:
        """A number for somebody who is about to speak."""
        number = next(self._numbers)
        self._tells[number] = tell
        return number

    def dismiss(self, number: int) -> None:
        """Whoever has this number says no more; what was said is heard first."""
        self.hear()
        self._tells.pop(number, None)

    def hear(self) -> None:
        """Pass on everything that was said so far."""
        # Blocking: nothing more to hear. Anything else: an ear that was closed.
        with contextlib.suppress(OSError):
            while True:
                number, effects = orjson.loads(self._ear.recv(_LARGEST))
                if (tell := self._tells.get(number)) is not None:
                    tell({kind: effects[kind] for kind in _HEARD if kind in effects})

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop_listening)
        self.mouth.close()

    def _stop_listening(self) -> None:
        self._loop.remove_reader(self._ear)
        self._ear.close()


class Mouth:
    """The process's end, for one attempt of one step."""

    def __init__(self, to: socket.socket, number: int):
        self._to = to
        self._number = number

    def __call__(self, effects: Effects) -> None:
        # A worker that is gone is no reason for a step to fail.
        with contextlib.suppress(OSError):
            try:
                self._to.send(orjson.dumps([self._number, effects]))
            except OSError:
                # Too long for one datagram: rather its beginning than nothing.
                self._to.send(orjson.dumps([self._number, _clipped(effects)]))


def _clipped(effects: Effects) -> Effects:
    return {
        kind: [{name: _clip(value) for name, value in row.items() if name != "f"} for row in rows]
        for kind, rows in effects.items()
    }


def _clip(value: Any) -> Any:
    return f"{value[:_CLIPPED]}…" if isinstance(value, str) and len(value) > _CLIPPED else value
