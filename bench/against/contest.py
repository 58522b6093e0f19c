"""One benchmark, ours and theirs in turns on one server: what else the machine does then falls on all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

from psycopg.conninfo import conninfo_to_dict

from bench.against.lines import LINES, Line, Play
from bench.against.rivals import Unavailable
from bench.result import Result
from bench.stage import Stage

# The slowest rivals take a minute for what others do in a second: their number of the first round must do.
REPEATED_UNDER = 25.0
# Our cases on full tables come after these two, and no rival is asked for them.
CASES = {"W2": 2}

Ours = Callable[[str, Stage, int | None], Awaitable[list[Result]]]
Plays = Callable[[str, str, dict[str, Any]], Awaitable[dict[str, float]]]


@dataclass
class Row:
    """A line with the numbers of every round, or with the reason why there are none of theirs."""

    line: Line
    case: str = ""
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)
    reason: str = ""

    @property
    def ratio(self) -> float | None:
        if not self.theirs:
            return None
        return statistics.median(self.ours) / statistics.median(self.theirs)

    @property
    def reached(self) -> bool | None:
        if self.ratio is None or self.line.goal is None:
            return None
        return self.line.goal.reached(self.ratio)

    def note_ours(self, results: Sequence[Result]) -> None:
        """The last case that has the line's words in its name counts: a longer past follows a shorter one."""
        result = next((result for result in reversed(results) if self.line.case in result.case), None)
        if result is None:
            self.reason = f"we have no case with “{self.line.case.strip()}” at this size"
            return
        self.case = result.case
        self.ours.append(result.values[self.line.ours])
        if self.line.play is None:
            assert result.limits is not None
            self.theirs.append(result.limits.as_json()[self.line.theirs])

    def as_json(self) -> dict[str, Any]:
        return {
            "bench": self.line.bench,
            "case": self.case,
            "what": self.line.ours,
            "rival": self.line.rival,
            "note": self.line.note,
            "ours": self.ours,
            "theirs": self.theirs,
            "ratio": self.ratio,
            "goal": self.line.goal and str(self.line.goal),
            "reached": self.reached,
            "reason": self.reason,
        }


class Contest:
    """The lines of one benchmark whose rivals take part. `absent` gives the reason for each rival that cannot."""

    def __init__(self, bench: str, ours: Ours, rivals: Mapping[str, Plays], absent: Mapping[str, str]):
        self.bench = bench
        self._ours = ours
        self._rivals = rivals
        self._slow: set[tuple[str, Play]] = set()
        self.rows = [Row(line) for line in lines_of(bench, [*rivals, *absent])]
        for row in self.rows:
            row.reason = absent.get(row.line.rival, "")

    async def round(self, stage: Stage) -> None:
        """Ours once, and each play of theirs once."""
        results = await self._ours(self.bench, stage, CASES.get(self.bench))
        for row in self.rows:
            row.note_ours(results)
        for rival, play in self._plays():
            await self._play(stage, rival, play)

    def _plays(self) -> list[tuple[str, Play]]:
        """Those still to be played; several lines may be of one play."""
        due = [(row.line.rival, row.line.play) for row in self.rows if row.line.play and not row.reason]
        return [pair for pair in dict.fromkeys(due) if pair not in self._slow]

    async def _play(self, stage: Stage, rival: str, play: Play) -> None:
        rows = [row for row in self.rows if (row.line.rival, row.line.play) == (rival, play)]
        began = time.perf_counter()
        try:
            async with stage.empty_database() as dsn:
                found = await self._rivals[rival](as_url(dsn), play.name, play.given(stage.sizes))
        except Unavailable as exc:
            for row in rows:
                row.reason = str(exc)
            return
        if time.perf_counter() - began > REPEATED_UNDER:
            self._slow.add((rival, play))
        for row in rows:
            row.theirs.append(found[row.line.theirs])


def lines_of(bench: str, rivals: Sequence[str]) -> list[Line]:
    return [line for line in LINES if line.bench == bench and (line.play is None or line.rival in rivals)]


def as_url(dsn: str) -> str:
    """The form that every client understands: the host may be the folder of a socket."""
    parts = {name: str(value) for name, value in conninfo_to_dict(dsn).items() if value is not None}
    user, password, name = (quote(parts.pop(key, ""), safe="") for key in ("user", "password", "dbname"))
    who = f"{user}:{password}" if password else user
    return f"postgresql://{who}@/{name}?{urlencode(parts)}"
