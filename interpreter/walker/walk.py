"""A walk: the whole state of one run of a plan, as one private object.

Only `apply` changes it, and only by records. Between two records it is a value: `snapshot` gives it as JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from interpreter.walker.commands import Command, Note, SettleRun
from interpreter.walker.frame import Frame, Role
from interpreter.walker.program import Layout, Program
from interpreter.walker.scope import Evaluator, Scope
from interpreter.walker.states import NAMES

# Positions that stand for the frame itself in the queue of things to look at.
SETTLE: Final = -1
HALT: Final = -2

Trace = Callable[[str, str], None]


class Walk:
    """Frames, what is in flight, and the queue of the record being applied.

    `flight` maps the path of each unanswered command to its node. `strays` are the errors of handlers that
    failed inside an operator: they fail the run only; `voids` are the records behind them. `trace`, if set, is
    called with path and state of every node that becomes final.
    """

    __slots__ = (
        "evaluator",
        "expired",
        "flight",
        "frames",
        "globals",
        "handled",
        "now",
        "out",
        "parked",
        "program",
        "root",
        "settled",
        "spawn_over",
        "strays",
        "todo",
        "trace",
        "unit",
        "voids",
    )

    def __init__(self, program: Program, evaluator: Evaluator, trace: Trace | None = None) -> None:
        self.program = program
        self.evaluator = evaluator
        self.trace = trace
        self.frames: dict[str, Frame] = {}
        self.root: Frame | None = None
        self.flight: dict[str, tuple[Frame, int]] = {}
        self.parked: list[tuple[Frame, int]] = []
        self.globals: dict[str, Any] = {}
        self.now: float | None = None
        self.spawn_over = 32
        self.handled: list[str] = []
        self.expired: list[str] = []
        self.strays: list[dict[str, Any]] = []
        self.voids: list[list[Any]] = []
        self.settled: SettleRun | None = None
        self.unit: dict[str, Any] | None = None
        self.todo: list[tuple[Frame, int]] = []
        self.out: list[Command] = []

    def scope(self, path: str) -> Scope:
        """What an expression of this node sees; for a driver that performs `Evaluate`."""
        frame, i = self.flight[path]
        return self.scope_of(frame, i)

    def scope_of(self, frame: Frame, i: int) -> Scope:
        return Scope(frame, i, self.globals, self.now)

    def watching(self, frame: Frame, i: int) -> Scope:
        """A scope that keeps what a decision saw."""
        scope = Scope(frame, i, self.globals, self.now)
        scope.seen = {}
        return scope

    def fly(self, frame: Frame, i: int, command: Command) -> None:
        """Send a command whose answer this node waits for."""
        self.flight[frame.prefix + frame.layout.ids[i]] = (frame, i)
        self.out.append(command)

    def tell(self, frame: Frame, i: int, what: str, data: Any = None) -> None:
        """Note a derived fact about a node."""
        self.out.append(Note(frame.prefix + frame.layout.ids[i], what, data))

    def final(self, frame: Frame, i: int, status: str) -> None:
        """Tell the tracer a node became final."""
        if self.trace is not None:
            self.trace(frame.path(i), NAMES[status])

    def open_frame(self, parent: Frame | None, owner: int, layout: Layout, key: str, slot: int, role: Role) -> Frame:
        """A fresh frame; its nodes are looked at once the caller gave it names and called `begin`."""
        frame = Frame(key, layout, parent, owner, slot)
        frame.role = role
        self.frames[key] = frame
        if parent is not None:
            parent.kids.setdefault(owner, {})[key] = frame
        return frame

    def begin(self, frame: Frame, tokens: dict[str, dict[str, Any]] | None = None) -> None:
        """Hand out the first tokens and look at every node that waits for no edge."""
        layout = frame.layout
        if tokens is None:
            entries, first = layout.entries, layout.begins
        else:
            entries = tuple(layout.index[node] for node in tokens)
            first = layout.looked_at_first(entries)
            for i, args in zip(entries, tokens.values(), strict=True):
                frame.args.setdefault(i, {})["entry"] = args
        frame.enter(entries)
        for i in first:
            self.todo.append((frame, i))
        if not layout.size:
            self.todo.append((frame, SETTLE))

    def drop_frame(self, frame: Frame) -> None:
        """Forget a settled frame: a walk must not grow with its history."""
        del self.frames[frame.key]
        if frame.parent is not None:
            frame.parent.kids[frame.owner].pop(frame.key)
