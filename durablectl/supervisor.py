"""Several processes under one parent: it starts them, starts crashed ones again, and ends with them.

The children hold the reading end of a pipe that only the parent can write to. When the parent is gone, killed or
not, the pipe ends and so do they.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

import structlog

from durablectl import exits
from durablectl.ending import HURRY_SECONDS

log = structlog.get_logger("durable.supervisor")

GLANCE = 1.0
FIRST_REST = 0.5
LONGEST_REST = 30.0
# A child that worked for so long is not in a crash loop.
STEADY_SECONDS = 60.0


class Place(NamedTuple):
    """One of the children, alive or resting until it is started again."""

    command: Sequence[str]
    child: subprocess.Popen[bytes] | None
    since: float
    rest: float


class Supervisor:
    """Keeps a child of each verb of `durable` alive until it is told to stop."""

    def __init__(self, verbs: Sequence[Sequence[str]], patience: float):
        self._patience = patience
        self._places = [Place(verb, None, 0.0, 0.0) for verb in verbs]
        self._leash, self._held = os.pipe()
        self._asked = 0
        self._told: dict[int, int] = {}
        self._deadline = float("inf")
        self._unclean = False

    def run(self) -> int:
        """Supervise until all children have ended because they were told to; the exit code."""
        signals = self._listen()
        while not self._asked or self._alive():
            self._places = [self._tended(place) for place in self._places]
            self._pass_on()
            if time.monotonic() > self._deadline:
                self._kill()
            select.select([signals], [], [], GLANCE if not self._asked else 0.1)
            _emptied(signals)
        return exits.FAILED if self._unclean else exits.OK

    def _listen(self) -> int:
        """A descriptor that is readable as soon as someone asks us to stop or a child has ended."""
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        return reader

    def _ask(self, *_: object) -> None:
        self._asked += 1
        patience = self._patience if self._asked == 1 else min(self._patience, HURRY_SECONDS)
        self._deadline = min(self._deadline, time.monotonic() + patience + 5)

    def _pass_on(self) -> None:
        """Every child hears every request: the first drains it, the second hurries it."""
        for child in self._alive():
            if self._told.get(child.pid, 0) < self._asked:
                self._told[child.pid] = self._told.get(child.pid, 0) + 1
                child.send_signal(signal.SIGTERM)

    def _alive(self) -> list[subprocess.Popen[bytes]]:
        return [place.child for place in self._places if place.child is not None]

    def _tended(self, place: Place) -> Place:
        now = time.monotonic()
        if place.child is None:
            return self._started(place) if now >= place.since + place.rest and not self._asked else place
        if (code := place.child.poll()) is None:
            return place
        if self._asked:
            # One that had no handler yet was ended by the request itself.
            self._unclean |= code not in (exits.OK, -signal.SIGTERM)
            return place._replace(child=None, since=now, rest=0.0)
        steady = now - place.since > STEADY_SECONDS
        rest = FIRST_REST if steady or not place.rest else min(place.rest * 2, LONGEST_REST)
        what = f"a {place.command[0]} process ended, starting another"
        log.warning(what, ended=place.child.pid, code=code, rest=rest)
        return place._replace(child=None, since=now, rest=rest)

    def _started(self, place: Place) -> Place:
        # A session of its own: Ctrl-C in the terminal comes to us once, and we pass it on once.
        command = [sys.executable, "-m", "durablectl", *place.command, "--leash", str(self._leash)]
        child = subprocess.Popen(command, pass_fds=[self._leash], start_new_session=True)
        log.info(f"a {place.command[0]} process was started", child=child.pid)
        return place._replace(child=child, since=time.monotonic())

    def _kill(self) -> None:
        for child in self._alive():
            log.error("a process did not end in time and is killed", child=child.pid)
            child.kill()


def _emptied(descriptor: int) -> None:
    try:
        while os.read(descriptor, 64):
            pass
    except BlockingIOError:
        pass
