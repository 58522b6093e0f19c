"""A frame: one execution of one graph, with its states, counters, names and the frames its nodes opened.

Nothing in a frame is ever reset; another iteration, attempt or token opens a new one.
"""

from __future__ import annotations

from typing import Any, Literal

from interpreter.walker.program import EVERYTHING, Layout
from interpreter.walker.states import DEAD, IGNORED, LIVE, PENDING, POISONED, WAITING

Role = Literal["run", "slot", "body", "handler", "call", "iteration", "token"]
Args = dict[str, Any]


class Frame:
    """The states of one execution.

    `slot` is the iteration, branch, handler or attempt it stands for. `base` cuts it off from the names of
    its parent: it sees those of `base` instead. `voids` are the records behind its failures. `data` holds
    what single nodes keep: errors, decisions, the progress of owners.
    """

    __slots__ = (
        "args",
        "base",
        "data",
        "depth",
        "edges",
        "entered",
        "exit",
        "failures",
        "glive",
        "gpending",
        "gpoisoned",
        "key",
        "kids",
        "layout",
        "leaving",
        "live",
        "open",
        "order",
        "owner",
        "parent",
        "pending",
        "poisoned",
        "prefix",
        "role",
        "slot",
        "status",
        "stop",
        "vars",
        "voids",
    )

    def __init__(self, key: str, layout: Layout, parent: Frame | None = None, owner: int = -1, slot: int = 0) -> None:
        self.key = key
        self.prefix = key + "/" if key else ""
        self.layout = layout
        self.parent = parent
        self.owner = owner
        self.slot = slot
        self.role: Role = "run"
        self.depth: int = parent.depth + 1 if parent is not None else 0
        self.order: tuple[int, ...] = (*parent.order, owner, slot) if parent is not None else ()
        size = layout.size
        self.status = [WAITING] * size
        self.edges = [PENDING] * len(layout.edges)
        self.pending = layout.pending[:]
        zeros = layout.zeros
        self.live = zeros[:]
        self.poisoned = zeros
        gates = layout.gates
        self.gpending = layout.gpending[:] if gates else zeros
        self.glive = zeros[:] if gates else zeros
        self.gpoisoned = zeros[:] if gates else zeros
        self.open = size
        self.vars: dict[str, Any] = {}
        self.base: dict[str, Any] | None = None
        self.args: dict[int, dict[str, Args]] = {}
        self.data: dict[int, dict[str, Any]] = {}
        self.entered: tuple[int, ...] = ()
        self.stop: str | None = None
        self.exit: dict[str, Any] | None = None
        self.leaving: dict[str, dict[str, Args]] | None = None
        self.failures: list[int] = []
        self.voids: list[list[Any]] = []
        self.kids: dict[int, dict[str, Frame]] = {}

    def path(self, i: int) -> str:
        """The full name of a node of this frame."""
        return self.prefix + self.layout.ids[i]

    def note(self, i: int) -> dict[str, Any]:
        """What a node keeps, made on first use."""
        return self.data.setdefault(i, {})

    def count(self, e: int, state: str) -> None:
        """An edge has its state: the counters of its target follow."""
        self.edges[e] = state
        edge = self.layout.edges[e]
        target = edge.target
        if edge.gate:
            self.gpending[target] -= 1
            if state == LIVE:
                self.glive[target] += 1
            elif state == POISONED:
                self.gpoisoned[target] += 1
        else:
            self.pending[target] -= 1
            if state == LIVE:
                self.live[target] += 1
            elif state == POISONED:
                self.poison(target)

    def poison(self, target: int) -> None:
        """An edge that broke leads to this node."""
        if self.poisoned is self.layout.zeros:
            self.poisoned = self.layout.zeros[:]
        self.poisoned[target] += 1

    def recount(self) -> None:
        """The counters follow from the edges; a snapshot leaves them out."""
        for e, state in enumerate(self.edges):
            if state in (LIVE, DEAD, POISONED, IGNORED) and self.layout.edges[e].target >= 0:
                self.count(e, state)

    def enter(self, nodes: tuple[int, ...]) -> None:
        """Give nodes the tokens that come from no edge of this frame."""
        self.entered = nodes
        for i in nodes:
            self.live[i] += 1

    def write(self, name: str, value: Any) -> None:
        """Bind a name in the scope it belongs to."""
        home = self if self.parent is None else self.home_of(name)
        home.vars[name] = value

    def home_of(self, name: str) -> Frame:
        """The frame this one writes a name to. A frame cut off from its parent keeps what it writes until it
        settles; its owner merges the patch."""
        frame = self
        while frame.base is None and frame.parent is not None and _passes(frame.layout.through, name):
            frame = frame.parent
        return frame

    def patch(self) -> dict[str, Any]:
        """What a frame cut off from its parent wrote for it."""
        through = self.layout.through
        return {name: value for name, value in self.vars.items() if _passes(through, name)}


def _passes(through: frozenset[str] | str, name: str) -> bool:
    return through is EVERYTHING or name in through
