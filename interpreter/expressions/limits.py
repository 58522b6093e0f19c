"""Caps on what an expression may make. They count work, not time: a slow machine must not fail a replay
that a fast one passed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from interpreter.errors import LimitExceeded

# Characters or items handled for one step: what a loop may make in all is bounded, not only each piece of it.
_PER_STEP: Final = 64


@dataclass(frozen=True, slots=True)
class Limits:
    """Steps taken by loops, calls and operators; the size of a value or text; the bits of an integer."""

    steps: int = 100_000
    size: int = 1_000_000
    range: int = 100_000
    bits: int = 4_096


class Meter:
    """Counts the steps of one evaluation."""

    __slots__ = ("left", "limits")

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.left = limits.steps

    def tick(self, steps: int = 1) -> None:
        self.left -= steps
        if self.left < 0:
            raise LimitExceeded(f"the expression took more than {self.limits.steps} steps")

    def check_size(self, size: int) -> None:
        if size > self.limits.size:
            raise LimitExceeded(f"the expression made a value larger than {self.limits.size}")

    def make(self, size: int) -> None:
        """Something of this size is about to be made or gone through: refuse it, or count it."""
        self.check_size(size)
        self.tick(1 + size // _PER_STEP)

    def make_text(self, value: Any) -> None:
        """A value is about to be written out: look at its size without writing it out."""
        self.make(weight(value, self.limits.size))


def extent(value: Any) -> int:
    """How many parts a value has, if it has any."""
    return len(value) if isinstance(value, str | list | tuple | dict | set) else 0


def weight(value: Any, enough: int) -> int:
    """About how long a value is as text. Stops counting once it is `enough`: a list of lists of lists of
    the same list is small in memory and endless on paper."""
    total, todo = 0, [value]
    while todo and total <= enough:
        part = todo.pop()
        total += 1
        if isinstance(part, str):
            total += len(part)
        elif isinstance(part, dict):
            total += sum(len(key) if isinstance(key, str) else 1 for key in part)
            todo.extend(part.values())
        elif isinstance(part, list | tuple | set | frozenset):
            total += len(part)
            if total <= enough:
                todo.extend(part)
    return total
