"""What an expression may look at, and the interface of who evaluates it.

An evaluator must be deterministic: the same expression in the same scope gives the same value, on every
machine and on every replay. What fails on the values it meets raises `ExpressionError`.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

from interpreter.walker.frame import Frame
from interpreter.walker.states import FAILED, NAMES

MISSING: Final[Any] = object()
_CLIP: Final = 200


class Evaluator(Protocol):
    """Gives expressions their meaning; one per language."""

    def value(self, expr: Any, scope: Scope) -> Any:
        """The value of an expression or of a structure that holds some."""
        ...

    def truth(self, expr: Any, scope: Scope) -> bool:
        """Whether a condition holds."""
        ...

    def items(self, expr: Any, scope: Scope) -> list[Any]:
        """The items of a collection, in order."""
        ...


class Scope:
    """The names, states and tokens visible from one node.

    `outcome` is set while arcs are selected: status, value and error of the node that ended. What an
    evaluator reports by `saw` is kept with the decision it led to.
    """

    __slots__ = ("frame", "globals", "node", "now", "outcome", "seen")

    def __init__(self, frame: Frame, node: int, globals: dict[str, Any], now: float | None) -> None:
        self.frame = frame
        self.node = node
        self.globals = globals
        self.now = now
        self.outcome: dict[str, Any] | None = None
        self.seen: dict[str, Any] | None = None

    def lookup(self, name: str) -> Any:
        """The value of a name, or `MISSING`: innermost frame first, then what is visible everywhere."""
        frame: Frame | None = self.frame
        while frame is not None:
            if name in frame.vars:
                return frame.vars[name]
            if frame.base is not None:
                if name in frame.base:
                    return frame.base[name]
                break
            frame = frame.parent
        return self.globals.get(name, MISSING)

    def lookup_either(self, name: str, other: str) -> Any:
        """What `lookup` says of a name, or else of another: in one go where there is one frame to look at."""
        frame = self.frame
        names = frame.vars
        if frame.parent is None and other in names and name not in names and frame.base is None:
            return self.globals.get(name, names[other])
        value = self.lookup(name)
        return self.lookup(other) if value is MISSING else value

    def names(self) -> dict[str, Any]:
        """All visible names, without the ones visible everywhere."""
        return visible(self.frame)

    def saw(self, name: str, value: Any) -> None:
        """Report a value a decision depends on."""
        if self.seen is not None:
            self.seen[name] = clip(value)

    @property
    def path(self) -> str:
        return self.frame.path(self.node)

    @property
    def args(self) -> dict[str, Any]:
        """What the tokens that brought this node about carried; later ones win."""
        return merged(self.frame.args.get(self.node))

    @property
    def cause(self) -> dict[str, Any] | None:
        """The failed node that this one, or what is around it, is the callback of, with its error."""
        frame, node = self.frame, self.node
        while (found := _cause(frame, node)) is None and frame.parent is not None:
            frame, node = frame.parent, frame.owner
        return found

    @property
    def loop(self) -> dict[str, Any] | None:
        """Index and length of the nearest loop around this node."""
        frame: Frame | None = self.frame
        while frame is not None and frame.parent is not None:
            if frame.role == "slot":
                length = frame.parent.data[frame.owner].get("length")
                return {"index": frame.slot, "length": length}
            frame = frame.parent
        return None

    def state(self, node: str) -> dict[str, Any] | None:
        """State, error and progress of a node of this frame or of one around it."""
        frame: Frame | None = self.frame
        while frame is not None:
            i = frame.layout.index.get(node)
            if i is not None:
                return _view(frame, i)
            frame = frame.parent
        return None


def _cause(frame: Frame, node: int) -> dict[str, Any] | None:
    layout = frame.layout
    for edge in layout.ins[node]:
        if edge.kind == "on_failure" and frame.status[edge.source] == FAILED:
            error = frame.data.get(edge.source, {}).get("error")
            return {"node": layout.ids[edge.source], "error": error}
    # In a task of its own, the failed node is elsewhere: whoever spawned it has told.
    told: dict[str, Any] | None = frame.data.get(node, {}).get("cause")
    return told


def _view(frame: Frame, i: int) -> dict[str, Any]:
    data = frame.data.get(i, {})
    view = {"state": NAMES[frame.status[i]], "error": data.get("error")}
    if "length" in data:
        failed = len(data["errors"])
        view |= {"total": data["length"], "succeeded": data["ok"], "failed": failed}
    return view


def visible(frame: Frame) -> dict[str, Any]:
    """All names a frame sees, flat: what a branch starts from."""
    layers = []
    at: Frame | None = frame
    while at is not None:
        layers.append(at.vars)
        if at.base is not None:
            layers.append(at.base)
            break
        at = at.parent
    flat: dict[str, Any] = {}
    for layer in reversed(layers):
        flat.update(layer)
    return flat


def merged(tokens: dict[str, dict[str, Any]] | None) -> dict[str, Any]:
    """The args of several tokens as one; they are kept in the order they came."""
    args: dict[str, Any] = {}
    for token in (tokens or {}).values():
        args.update(token)
    return args


def clip(value: Any) -> Any:
    """A value short enough to be kept with a decision."""
    if isinstance(value, str) and len(value) > _CLIP:
        return value[:_CLIP] + "…"
    if isinstance(value, dict | list | tuple) and len(value) > 0:
        return f"<{type(value).__name__} of {len(value)}>"
    return value
