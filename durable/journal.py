"""Replay: the recorded past of a task, delivered again in its one recorded order.

A record is handed to whoever asks for it by name, but never before the records in front of it: concurrent branches
of a workflow then see the same interleaving as the first time. Nothing new starts before the past is used up.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple

from durable.errors import Diverged

# How long the workflow may stay silent before a record that nobody asks for counts as a divergence. Only ever
# waited for in that case: deterministic code asks at once.
PATIENCE = 1.0
# Looked at so often in that time: a process that was stalled finds all of it gone by at its first look.
_LOOKS = 4


class Record(NamedTuple):
    """One journal row."""

    pos: int
    kind: str
    name: str
    body: Any


_kind_of = itemgetter(1)


def holds(records: list[Record], kind: str) -> bool:
    """Whether a record is of this kind; of a long past, nearly always none."""
    return kind in map(_kind_of, records)


class Replay:
    """Records of a task, to be asked for by name."""

    def __init__(self, run_id: str, records: list[Record]):
        self._run_id = run_id
        self._records, self._optional = _without_voided(records)
        self._next = 0
        self._asking: dict[str, asyncio.Future[Record | None]] = {}
        self._asked = 0
        self._on_their_way: set[asyncio.Future[Record | None]] = set()  # records given, whose takers have not run yet
        self._forgotten: set[str] = set()  # names whose records concern nobody any more
        self._handing = False  # a record was given to a branch whose code has not run yet
        self._watch: asyncio.TimerHandle | None = None
        self.reading = 0  # branches that wait for the store, and not for their turn

    @property
    def over(self) -> bool:
        """Nothing is left that could be asked for."""
        return self._next >= len(self._records) and not self._on_their_way and not self._optional

    @property
    def caught_up(self) -> bool:
        """Every record that must be asked for was, and whoever asked has it."""
        return self._next >= len(self._records) and not self._on_their_way

    async def take(self, name: str) -> Record | None:
        """The next record of this name, when its turn has come; None when the past does not hold one."""
        self._asked += 1
        if name in self._optional:
            return self._take_optional(name)
        if self._next >= len(self._records):
            return None
        if self._records[self._next].name == name and not self._handing:
            return self._advance()
        turn: asyncio.Future[Record | None] = asyncio.get_running_loop().create_future()
        self._asking[name] = turn
        self._start_watch()
        try:
            return await turn
        finally:
            self._on_their_way.discard(turn)

    def step_at_hand(self, name: str) -> Record | None:
        """As `take`, where the very next record is that of this step's success; None: ask by `take`."""
        at = self._next
        if self._optional or self._handing or at >= len(self._records):
            return None
        record = self._records[at]
        if record.name != name or record.kind != "step":
            return None
        self._asked += 1
        self._next = at + 1
        if self._asking or self._forgotten:
            self._let_next_go()
        return record

    def comes_first(self, name: str, others: str) -> bool:
        """Whether a record of `name` is still to come, before any whose name begins with `others`."""
        if name in self._optional:
            return True
        ahead = (r.name for r in islice(self._records, self._next, None) if r.name not in self._forgotten)
        return next((at for at in ahead if at == name or at.startswith(others)), None) == name

    def forget(self, name: str) -> None:
        """The workflow cancelled this operation: what is still recorded of it concerns nobody."""
        self._forgotten.add(name)
        self._optional.pop(name, None)
        self._asking.pop(name, None)
        self._let_next_go()

    def finish(self) -> None:
        """The workflow has returned: every record must have been asked for."""
        if self._next < len(self._records):
            raise self._divergence("returned")

    def _advance(self) -> Record:
        record = self._records[self._next]
        self._next += 1
        self._let_next_go()
        return record

    def _let_next_go(self) -> None:
        self._handing = False
        while self._forgotten and self._next < len(self._records) and self._records[self._next].name in self._forgotten:
            self._next += 1
        if self._next >= len(self._records):
            for turn in self._asking.values():
                _resolve(turn, None)
            self._asking.clear()
            return
        name = self._records[self._next].name
        if name in self._asking:
            # One at a time: the next record goes out after the code that takes this one has run.
            turn = self._asking.pop(name)
            if not turn.done():
                self._on_their_way.add(turn)
            _resolve(turn, self._records[self._next])
            self._next += 1
            self._handing = True
            asyncio.get_running_loop().call_soon(self._let_next_go)

    def _take_optional(self, name: str) -> Record:
        waiting = self._optional[name]
        record = waiting.popleft()
        if not waiting:
            del self._optional[name]
        return record

    def _start_watch(self, seen: int = 0) -> None:
        if self._watch is None:
            loop = asyncio.get_running_loop()
            self._watch = loop.call_later(PATIENCE / _LOOKS, self._look, self._asked, self._next, seen + 1)

    def _look(self, asked: int, at: int, seen: int) -> None:
        self._watch = None
        if not self._asking:
            return
        if self.reading or (asked, at) != (self._asked, self._next):
            self._start_watch()
            return
        if seen < _LOOKS:
            self._start_watch(seen)
            return
        for turn in self._asking.values():
            if not turn.done():
                turn.set_exception(self._divergence("asked for " + " and ".join(map(repr, self._asking))))
        self._asking.clear()

    def _divergence(self, did: str) -> Diverged:
        held = self._records[self._next]
        return Diverged(
            f"run {self._run_id}: the journal holds {held.kind} {held.name!r} at position {held.pos}, but the workflow"
            f" {did}. The code has changed since this run began, or decides by something that is not recorded."
            " Put the old code back and retry the run, or fork it from a step before this one."
        )


def _resolve(turn: asyncio.Future[Record | None], record: Record | None) -> None:
    if not turn.done():
        turn.set_result(record)


def _without_voided(records: list[Record]) -> tuple[list[Record], dict[str, deque[Record]]]:
    """Apply `retry` records: the failures that each names are gone with their attempts; what was recorded after the
    first of them is given to whoever still asks for it, and demanded from nobody."""
    if not holds(records, "retry"):
        return list(records), {}
    kept: list[Record] = []
    optional: dict[str, deque[Record]] = defaultdict(deque)
    for record in records:
        if record.kind != "retry":
            kept.append(record)
            continue
        voids = set(record.body.get("voids") or [record.body.get("void")])
        offered = [r for waiting in optional.values() for r in waiting]
        for name in {r.name for r in (*kept, *offered) if r.pos in voids}:
            optional.pop(name, None)
        first = min((r.pos for r in kept if r.pos in voids), default=record.pos)
        failed = {r.name for r in kept if r.pos in voids}
        for later in kept:
            if later.pos > first and later.name not in failed:
                optional[later.name].append(later)
        kept = [r for r in kept if r.pos < first and r.name not in failed]
    return kept, dict(optional)
