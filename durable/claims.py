"""The claim desk: how many tasks to ask for, from which lines, and where the last claim began.

Slots roll: every task that ends or parks frees its own, and the next flush may fill it. A worker with one slot whose
tasks are brisk asks for one more than it can run: the next task is at hand when one ends, and its first record goes
with that end. Only lines that were seen or hinted to have work are asked; all of them once in a while, because a hint
can be lost.
"""

from __future__ import annotations

import time
from operator import itemgetter
from typing import Any, NamedTuple

import orjson

from durable.workflow import Workflow

MOST_AT_ONCE = 500
_SOLO_TRY = 10.0
# So many lines may be asked by every pass: each costs one look into an index.
_FEW_LINES = 32
_SOLO_REST = 50.0
# So many tasks in a row gave up their slots within so many seconds: the next one will not wait for long.
_BRISK_TASKS = 8
_BRISK_SECONDS = 0.01


class Claimed(NamedTuple):
    """One claimed task, by the position of its fields in the store's answer; the last ones may be left out."""

    task_id: str
    from_line: int
    epoch: int
    prio: int
    ready_at: float
    input: Any
    of_run: str | None = None
    parent_id: str | None = None
    wakes: int = 0
    stop: str | None = None
    waits: list[Any] | None = None
    version: str | None = None

    @property
    def run_id(self) -> str:
        return self.of_run or self.task_id

    @property
    def line(self) -> int:
        """Where it was started. It is claimed from the negated line to run alone."""
        return abs(self.from_line)


_BEST_FIRST = itemgetter(3, 4, 0)


def best_first(rows: list[Any] | None) -> list[Claimed]:
    """Claimed tasks by priority, then by age; the store gives them in any order."""
    return [Claimed(*row) for row in sorted(rows, key=_BEST_FIRST)] if rows else []


class Served(NamedTuple):
    """What stands behind a line: a workflow, on a queue. Of a deployed one only the name is known before a claim."""

    workflow: Workflow
    queue: str
    deployed: bool = False


class Want(NamedTuple):
    """One claim to be sent: how many tasks, from which lines (JSON), whether the one will run alone, and which hints
    it follows."""

    number: int
    lines: bytes | None
    alone: bool
    hints: int = 0


NOTHING = Want(0, None, False)


class ClaimDesk:
    """Decides about claims for one worker. Pure: it only counts."""

    def __init__(self, slots: int, writers: int = 1):
        self._slots = slots
        # Each writer asks for its share only: what it gets is worked on here while the store works for the next one.
        self._most = min(-(-slots // writers), MOST_AT_ONCE)
        self._lines: dict[int, Served] = {}
        self._hot: set[int] = set()
        self._hints = 0
        self._hinted: dict[int, int] = {}  # the number of the last hint about a line
        self._horizon: dict[int, tuple[int, float, str]] = {}
        self._asked = 0
        self._asked_alone = False
        self._brisk = 0
        self._solo_since: float | None = None
        self._solo_rest_until = 0.0
        self.running = 0
        self.alone = False
        self.open = True

    def serve(self, lines: dict[int, Served]) -> None:
        """The lines of the workflows that this worker can run: it never asks for others."""
        self._lines = lines
        self.heat_all()

    def learn(self, lines: dict[int, Served]) -> bool:
        """More lines, found while working; true if one of them is new."""
        new = lines.keys() - self._lines.keys()
        self._lines |= {line: lines[line] for line in new}
        return self.heat(new)

    def served(self, line: int) -> Served | None:
        return self._lines.get(line)

    @property
    def lines(self) -> list[int]:
        return list(self._lines)

    @property
    def free(self) -> int:
        return self._slots - self.running - self._asked

    def heat(self, lines: set[int]) -> bool:
        """These lines have work; true if one of them is ours."""
        ours = {line for line in lines if line in self._lines}
        self._hints += 1
        for line in ours:
            self._horizon.pop(line, None)
            self._hinted[line] = self._hints
        self._hot |= ours
        solo = any(-line in self._lines for line in lines)
        if solo:
            self.solo_waits()
        return solo or bool(ours)

    def heat_all(self) -> None:
        self.heat(set(self._lines))

    def solo_waits(self) -> None:
        """A task that must run alone is ready: stop filling slots for a while."""
        if self._solo_since is None and time.monotonic() >= self._solo_rest_until:
            self._solo_since = time.monotonic()

    def wanted(self, passing: bool = False) -> Want:
        """The claim to send along now. A pass may make any line ready, so it asks for all if they are few."""
        if not self.open or self.alone or self._asked_alone:
            return NOTHING
        if self._solo_since is not None:
            solo = self._want_solo(self._solo_since)
            if solo is not None:
                return solo
        wanted = min(self.free + self._ahead, self._most)
        lines = self._lines if passing and len(self._lines) <= _FEW_LINES else self._hot
        if wanted <= 0 or not lines:
            return NOTHING
        self._asked += wanted
        return Want(wanted, orjson.dumps([self._start_of(line) for line in lines]), False, self._hints)

    def answered(self, want: Want, rows: list[Any] | None) -> list[Claimed]:
        """Take in the answer to a claim."""
        claimed = best_first(rows)
        self.running += len(claimed)
        if want.alone:
            self._asked_alone = False
            self.alone = bool(claimed)
            # Where one was, more may wait: the next goes when this one has left.
            self._solo_since = time.monotonic() if claimed else None
            return claimed
        self._asked -= want.number
        if len(claimed) < want.number:
            # What was hinted while the claim was on its way is not answered by it.
            self._hot = {line for line in self._hot if self._hinted[line] > want.hints}
            self._horizon.clear()
            return claimed
        for task in reversed(claimed):
            self._horizon[task.from_line] = (task.prio, task.ready_at, task.task_id)
        return claimed

    def left(self, seconds: float = 0.0) -> None:
        """A task gave its slot up, after so many seconds: it ended or parked."""
        self.running -= 1
        self._brisk = self._brisk + 1 if seconds < _BRISK_SECONDS else 0
        if self.alone and self.running == 0:
            self.alone = False

    @property
    def _ahead(self) -> int:
        """How many tasks may be held beside those that run. With several slots, other tasks speak while one ends."""
        return 1 if self._slots == 1 and self._brisk >= _BRISK_TASKS else 0

    def _want_solo(self, since: float) -> Want | None:
        """Run dry, then claim one task of the lines that run alone. None: go on as always."""
        if self.running == 0 and self._asked == 0:
            self._asked_alone = True
            return Want(1, orjson.dumps([{"line": -line} for line in self._lines]), True)
        if time.monotonic() - since > _SOLO_TRY:
            self._solo_since = None
            self._solo_rest_until = time.monotonic() + _SOLO_REST
            return None
        return NOTHING

    def _start_of(self, line: int) -> dict[str, Any]:
        if line not in self._horizon:
            return {"line": line}
        prio, at, task_id = self._horizon[line]
        return {"line": line, "prio": prio, "at": at, "id": task_id}
