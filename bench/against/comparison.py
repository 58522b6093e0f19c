"""`--against`: rounds of ours and theirs, benchmark after benchmark, and the table of all budget lines."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bench.against.contest import Contest, Ours, Plays, Row
from bench.against.rivals import RIVALS, Environment, Unavailable
from bench.stage import Stage


class Comparison:
    """The rivals that take part, and why others cannot."""

    def __init__(self) -> None:
        self.versions: dict[str, str] = {}
        self._rivals: dict[str, Plays] = {}
        self._absent: dict[str, str] = {}

    async def invite(self, names: Sequence[str]) -> None:
        for name in names:
            environment = Environment(RIVALS[name])
            _note(f"setting up {name}")
            try:
                self.versions[name] = await environment.ready()
            except Unavailable as exc:
                self._absent[name] = f"{name} cannot be set up: {exc}"
            else:
                self._rivals[name] = environment.play

    async def hold(self, stage: Stage, benches: Sequence[str], ours: Ours, rounds: int) -> list[Row]:
        """Every benchmark in every round: what changes on the machine over minutes falls on all of them."""
        contests = [Contest(bench, ours, self._rivals, self._absent) for bench in benches]
        for number in range(1, rounds + 1):
            for contest in contests:
                _note(f"round {number} of {rounds}: {contest.bench}")
                await contest.round(stage)
        return [row for contest in contests for row in contest.rows]


def _note(text: str) -> None:
    """Progress, out of the way of what is printed for programs."""
    print(text, file=sys.stderr, flush=True)
