"""Where everything of a plan's picture stands: graphs in layers, each node below what it follows, bodies inside
the node that opens them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from interpreter.plan import Each, Edge, Fork, Graph, Node, Pass, Plan, Repeat

WIDTH: Final = 190
HEIGHT: Final = 42
END: Final = 14  # the end of a two-phase operator is only a dot
GAP: Final = 24
LANE: Final = 46
HEAD: Final = 44  # name and kind above the bodies of a node
CAPTION: Final = 18
LINE: Final = 10  # the room of a line that passes a layer

Slot: TypeAlias = str | int


@dataclass(frozen=True)
class Box:
    """One node: where it stands in its graph, how large it is, and what is inside."""

    node: Node
    x: int
    y: int
    width: int
    height: int
    inner: tuple[Inner, ...] = ()

    @property
    def is_end(self) -> bool:
        return isinstance(self.node, Pass) and self.node.mirrors is not None


@dataclass(frozen=True)
class Bend:
    """Where a line passes a layer: straight down, in a gap of its own."""

    x: int
    top: int
    bottom: int


@dataclass(frozen=True)
class Wire:
    """One edge, and how it gets past the layers between its ends."""

    edge: Edge
    bends: tuple[Bend, ...] = ()


@dataclass(frozen=True)
class Sheet:
    """One graph, laid out from its own corner."""

    boxes: dict[str, Box]
    wires: tuple[Wire, ...]
    width: int
    height: int


@dataclass(frozen=True)
class Inner:
    """A body inside a node, from the node's own corner."""

    caption: str
    sheet: Sheet
    x: int
    y: int


def laid_out(plan: Plan, name: str | None = None) -> Sheet:
    """A graph of the plan (its root if none is named) with everything inside it."""
    graph = plan.graphs[plan.root if name is None else name]
    edges = [edge for edge in graph.edges if edge.target is not None and not _goes_without_saying(edge, graph)]
    return _Layers(graph, edges, {node.id: _box(plan, node) for node in graph.nodes}).sheet()


class _Layers:
    """The nodes of a graph by the longest way to each, with room in between for lines that go further.

    A `slot` of a layer is a node's id, or the number of an edge that passes by.
    """

    def __init__(self, graph: Graph, edges: list[Edge], boxes: dict[str, Box]):
        self._graph = graph
        self._edges = edges
        self._boxes = boxes
        self._level = _levels(graph)
        self._layers: list[list[Slot]] = [[] for _ in range(max(self._level.values(), default=-1) + 1)]
        for node in graph.nodes:
            self._layers[self._level[node.id]].append(node.id)
        for number, edge in enumerate(edges):
            for level in range(self._level[edge.source] + 1, self._level[str(edge.target)]):
                self._layers[level].append(number)
        self._sort()

    def sheet(self) -> Sheet:
        widths = [sum(map(self._width, layer)) + GAP * (len(layer) - 1) for layer in self._layers]
        whole, y = max(widths, default=0), 0
        placed: dict[str, Box] = {}
        bends: dict[int, list[Bend]] = defaultdict(list)
        for layer, width in zip(self._layers, widths, strict=True):
            x, height = (whole - width) // 2, max(self._height(slot) for slot in layer)
            for slot in layer:
                if isinstance(slot, str):
                    placed[slot] = self._placed(slot, x, y, height)
                else:
                    bends[slot].append(Bend(x + LINE // 2, y, y + height))
                x += self._width(slot) + GAP
            y += height + LANE
        wires = tuple(Wire(edge, tuple(bends[number])) for number, edge in enumerate(self._edges))
        return Sheet({node.id: placed[node.id] for node in self._graph.nodes}, wires, whole, max(0, y - LANE))

    def _placed(self, slot: str, x: int, y: int, height: int) -> Box:
        box = self._boxes[slot]
        return replace(box, x=x, y=y + (height - box.height) // 2 if box.is_end else y)

    def _sort(self) -> None:
        """Each layer in the order of what its slots follow, so that few lines cross."""
        place: dict[tuple[Slot, int], float] = {}
        for level, layer in enumerate(self._layers):
            layer.sort(key=lambda slot: self._middle(slot, level, place))
            place |= {(slot, level): (index + 0.5) / len(layer) for index, slot in enumerate(layer)}

    def _middle(self, slot: Slot, level: int, place: dict[tuple[Slot, int], float]) -> float:
        if isinstance(slot, int):
            above = [self._above(slot, level)]
        else:
            coming = [number for number, edge in enumerate(self._edges) if edge.target == slot and not edge.back]
            above = [self._above(number, level) for number in coming]
        return sum(place[one] for one in above) / len(above) if above else 0.5

    def _above(self, number: int, level: int) -> tuple[Slot, int]:
        """Where an edge comes from, one layer up."""
        source = self._edges[number].source
        return (source if self._level[source] == level - 1 else number), level - 1

    def _width(self, slot: Slot) -> int:
        return self._boxes[slot].width if isinstance(slot, str) else LINE

    def _height(self, slot: Slot) -> int:
        return self._boxes[slot].height if isinstance(slot, str) else 0


def _goes_without_saying(edge: Edge, graph: Graph) -> bool:
    """A way to the end of an operator, where a longer one leads there too."""
    end = next(node for node in graph.nodes if node.id == edge.target)
    if not isinstance(end, Pass) or end.mirrors is None:
        return False
    others = {other.source for other in graph.edges if other.target == edge.target} - {edge.source}
    return any(other.source == edge.source and other.target in others for other in graph.edges)


def _box(plan: Plan, node: Node) -> Box:
    inner, x, tallest = [], GAP // 2, 0
    for caption, body in _bodies(node):
        sheet = laid_out(plan, body)
        inner.append(Inner(caption, sheet, x, HEAD + CAPTION))
        x += max(sheet.width, WIDTH // 2) + GAP
        tallest = max(tallest, sheet.height)
    if inner:
        return Box(node, 0, 0, max(WIDTH, x - GAP // 2), HEAD + CAPTION + tallest + GAP // 2, tuple(inner))
    end = isinstance(node, Pass) and node.mirrors is not None
    return Box(node, 0, 0, END if end else WIDTH, END if end else HEIGHT)


def _bodies(node: Node) -> list[tuple[str, str]]:
    """The bodies of a node, each with what is to be said about it."""
    if isinstance(node, Fork) and node.queue is not None:
        return [(f"on queue {node.queue}", body) for body in node.bodies()]
    if isinstance(node, Fork):
        return [(branch.name, branch.body) for branch in node.branches]
    if isinstance(node, Each):
        return [(f"for each of {node.items}", node.body)]
    if isinstance(node, Repeat):
        return [(f"while {node.when}", node.body)]
    return [("", body) for body in node.bodies()]


def _levels(graph: Graph) -> dict[str, int]:
    before: dict[str, list[str]] = defaultdict(list)
    for edge in graph.edges:
        if edge.target is not None and not edge.back:
            before[edge.target].append(edge.source)
    found: dict[str, int] = {}
    for node in graph.nodes:
        _depth(node.id, before, found)
    return {node.id: found[node.id] for node in graph.nodes}


def _depth(node: str, before: dict[str, list[str]], found: dict[str, int]) -> None:
    """Without recursion: a plan may be thousands of nodes deep. It has no cycle but by back-edges."""
    stack = [node]
    while stack:
        waiting = [other for other in before[stack[-1]] if other not in found]
        if waiting:
            stack.extend(waiting)
        else:
            at = stack.pop()
            found[at] = max((found[other] + 1 for other in before[at]), default=0)
