"""What can be wrong with a program, and what can go wrong while its expressions are evaluated.

    ProgramError              the author's fault; says where and what to do
    ├── PlanError             a plan that cannot be walked; holds every fault found
    └── TemplateError         an expression that does not parse
    ExpressionError           an expression that failed on the values it met
    ├── UndefinedName         a name nobody bound
    └── LimitExceeded         a cap on size, steps or numbers
    WalkError                 the walker was misused: a foreign snapshot, a record before the start

An `ExpressionError` fails the node it belongs to and can be caught by a workflow under its `type`;
the others never reach a workflow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a source something stands; 1-based."""

    file: str | None = None
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        parts = (self.file or "<source>", self.line, self.column)
        return ":".join(str(part) for part in parts if part is not None)


class ProgramError(Exception):
    """The author's fault: a message, a place and a hint."""

    def __init__(self, message: str, *, place: Place | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.place = place
        self.hint = hint

    def __str__(self) -> str:
        head = f"{self.place}: {self.message}" if self.place else self.message
        return f"{head} ({self.hint})" if self.hint else head


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong with a plan: what, on which node, and where its source stands."""

    message: str
    node: str | None = None
    place: Place | None = None

    def __str__(self) -> str:
        return f"{self.place}: {self.message}" if self.place else self.message


class PlanError(ProgramError):
    """A plan with structural faults; all of them at once."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(str(fault) for fault in faults))


class TemplateError(ProgramError):
    """An expression that does not parse."""


class ExpressionError(Exception):
    """An expression failed on the values it met; `type` is the name a handler can catch it by."""

    def __init__(self, message: str, *, type: str = "ExpressionError") -> None:
        super().__init__(message)
        self.message = message
        self.type = type

    def as_error(self) -> dict[str, Any]:
        """The error as a workflow sees it."""
        mro = [self.type, "ExpressionError", "Exception"]
        return {"type": self.type, "message": self.message, "mro": mro}


class UndefinedName(ExpressionError):
    """A name nobody bound; says which name is nearest to it."""

    def __init__(self, message: str, *, name: str, nearest: str | None = None) -> None:
        super().__init__(message, type="UndefinedName")
        self.name = name
        self.nearest = nearest


class LimitExceeded(ExpressionError):
    """A cap on size, steps or numbers was reached."""

    def __init__(self, message: str) -> None:
        super().__init__(message, type="LimitExceeded")


class WalkError(Exception):
    """The walker was misused: a snapshot of another plan, a record before the start."""
