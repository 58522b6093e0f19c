"""A plan made ready to walk: ids turned into positions, edges into lists, once per version.

Everything here is read-only after it was built and shared by all walks of the plan.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Final

from interpreter.plan import Call, Each, Edge, Fork, Graph, Names, Node, Pass, Plan
from interpreter.walker.states import EDGE_TABLE, FINAL

EVERYTHING: Final = "*"
_UNIT: Final = ":unit"
# An edge by its position, the state it gets, the node it leads to, and whether that node waits for all its edges.
Way = tuple[int, str, int, bool]


class EdgeInfo:
    """An edge by positions. `pick` is what its source must have chosen for it to be live."""

    __slots__ = (
        "args",
        "back",
        "direct",
        "entry",
        "exit",
        "gate",
        "index",
        "kind",
        "label",
        "pick",
        "source",
        "table",
        "target",
        "unless",
        "when",
    )

    def __init__(self, index: int, edge: Edge, positions: dict[str, int]) -> None:
        self.index = index
        self.kind = edge.kind
        self.gate = edge.kind == "gate"
        self.source = positions[edge.source]
        # Back-edges and exits leave the frame: no node of this frame waits for them.
        stays = edge.target is not None and not edge.back and edge.exit is None
        self.target = positions[edge.target] if stays and edge.target is not None else -1
        self.table = EDGE_TABLE[edge.kind]
        self.label = edge.label
        self.pick: str | int | None = edge.label if self.gate else index
        self.when = edge.when
        self.args = edge.args
        self.unless = tuple(positions[handler] for handler in edge.unless)
        self.back = edge.target if edge.back else None
        self.exit = edge.exit
        self.entry = edge.entry
        # Most edges are of this sort: their state follows from the table alone.
        self.direct = edge.kind in ("after", "on_success", "on_failure") and not edge.unless


class Layout:
    """One graph by positions, with the counters a fresh frame starts from."""

    __slots__ = (
        "arcs",
        "args",
        "begins",
        "binds",
        "carried",
        "edges",
        "entries",
        "final",
        "gated",
        "gates",
        "gpending",
        "guarded",
        "handlers",
        "ids",
        "index",
        "ins",
        "kinds",
        "leaves",
        "mirrors",
        "name",
        "nodes",
        "outs",
        "owners",
        "pending",
        "plain",
        "result",
        "rules",
        "size",
        "through",
        "unless_of",
        "unpacks",
        "watched",
        "ways",
        "zeros",
    )

    def __init__(self, name: str, graph: Graph, final: str | None = None) -> None:
        self.name = name
        self.nodes: tuple[Node, ...] = graph.nodes
        self.size = len(graph.nodes)
        self.ids = [node.id for node in graph.nodes]
        self.index = {node.id: position for position, node in enumerate(graph.nodes)}
        self.edges = [EdgeInfo(position, edge, self.index) for position, edge in enumerate(graph.edges)]
        self.result: Names = graph.result
        self.through = _through(graph)
        # Read at every firing; a list is three times as quick as an attribute of a model.
        self.kinds = [node.kind for node in graph.nodes]
        self.owners = [node.owner for node in graph.nodes]
        self.leaves = [not node.owner and node.kind != "wait" for node in graph.nodes]
        self.binds = [node.bind for node in graph.nodes]
        self.unpacks = [node.unpack for node in graph.nodes]
        self.args = [node.args if isinstance(node, Call) else None for node in graph.nodes]
        self.guarded = [node.guard is not None for node in graph.nodes]
        self.rules = [rule_of(node) for node in graph.nodes]
        self.mirrors = [self._mirrored(node) for node in graph.nodes]
        self.final = self.index[final] if final is not None else -1
        self._wire()
        self.entries = self._entries(graph)
        self.begins = self.looked_at_first(self.entries)

    def _mirrored(self, node: Node) -> int:
        if isinstance(node, Pass) and node.mirrors is not None:
            return self.index[node.mirrors]
        return -1

    def _wire(self) -> None:
        outs, ins = self._by_end()
        # Targets in plan order: what one record makes ready is asked for in the order of the plan.
        self.outs = [tuple(sorted(edges, key=lambda edge: (edge.target, edge.index))) for edges in outs]
        self.ins = [tuple(edges) for edges in ins]
        self.pending = [sum(not edge.gate for edge in edges) for edges in self.ins]
        self.gpending = [sum(edge.gate for edge in edges) for edges in self.ins]
        self.gated = [count > 0 for count in self.gpending]
        self.gates = any(self.gated)
        # What frames count from; one that never counts a gate or a failure shares it and keeps no list of its own.
        self.zeros = [0] * self.size
        self.plain = [self._is_plain(i) for i in range(self.size)]
        self.arcs = [tuple(edge for edge in edges if edge.kind == "arc") for edges in outs]
        self.handlers = [any(edge.kind in ("on_success", "on_failure") for edge in edges) for edges in self.ins]
        self.watched = [any(edge.kind == "on_failure" for edge in edges) for edges in outs]
        self.carried = [any(self._ends_operator(edge) for edge in edges) for edges in outs]
        self.unless_of: dict[int, list[EdgeInfo]] = {}
        for edge in self.edges:
            for handler in edge.unless:
                self.unless_of.setdefault(handler, []).append(edge)
        self.ways = [self._ways(i) for i in range(self.size)]

    def _ways(self, i: int) -> dict[str, tuple[Way, ...]] | None:
        """What the end of a node does to its edges, by its state; none where it depends on more than that."""
        if i in self.unless_of or not all(edge.direct for edge in self.outs[i]):
            return None
        return {status: tuple(self._way(edge, status) for edge in self.outs[i]) for status in FINAL}

    def _way(self, edge: EdgeInfo, status: str) -> Way:
        # A join that waits for all is not looked at before its last edge: nothing could come of it.
        return edge.index, edge.table[status], edge.target, self.rules[edge.target] in ("all", "mirror")

    def _is_plain(self, i: int) -> bool:
        """Most nodes are: they start when all their edges are there, and nothing else is to be looked at."""
        return self.rules[i] == "all" and not (self.gated[i] or self.guarded[i] or self.owners[i])

    def _by_end(self) -> tuple[list[list[EdgeInfo]], list[list[EdgeInfo]]]:
        outs: list[list[EdgeInfo]] = [[] for _ in self.nodes]
        ins: list[list[EdgeInfo]] = [[] for _ in self.nodes]
        for edge in self.edges:
            outs[edge.source].append(edge)
            if edge.target >= 0:
                ins[edge.target].append(edge)
        return outs, ins

    def _ends_operator(self, edge: EdgeInfo) -> bool:
        return edge.target >= 0 and self.mirrors[edge.target] >= 0

    def _entries(self, graph: Graph) -> tuple[int, ...]:
        if graph.entries is not None:
            return tuple(sorted(self.index[entry] for entry in graph.entries))
        return tuple(i for i in range(self.size) if not self.ins[i] and i != self.final)

    def looked_at_first(self, entered: tuple[int, ...]) -> tuple[int, ...]:
        """The nodes that a frame looks at when it begins: those that wait for no edge, and those given a token."""
        given = set(entered)
        first = (i for i in range(self.size) if not self.pending[i] or i in given)
        return tuple(i for i in first if not self.gated[i] and i != self.final)


class Program:
    """A plan and the layouts of its graphs."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.layouts = {name: self._layout(name) for name in plan.graphs}
        self.root = self.layouts[plan.root]
        self._solos: dict[tuple[str, int], Layout] = {}

    def _layout(self, name: str) -> Layout:
        final = self.plan.final_step if name == self.plan.root else None
        return Layout(name, self.plan.graphs[name], final)

    def layout(self, name: str) -> Layout:
        """The layout of a graph, or of one node standing alone (`graph:position`, `graph:position:unit`)."""
        if name in self.layouts:
            return self.layouts[name]
        graph, _, position = name.removesuffix(_UNIT).rpartition(":")
        alone = self.solo(graph, int(position))
        return self.unit(alone) if name.endswith(_UNIT) else alone

    def solo(self, graph: str, position: int) -> Layout:
        """The node alone: what a single token of a `join: each` node walks. Its arcs are exits, named by
        their positions in the whole graph."""
        key = (graph, position)
        if key not in self._solos:
            self._solos[key] = self._alone(graph, position)
        return self._solos[key]

    def _alone(self, graph: str, position: int) -> Layout:
        whole = self.layout(graph)
        node = whole.nodes[position].model_copy(update={"join": "all", "trigger": "all_success"})
        edges = self.plan.graphs[graph].edges
        arcs = [(arc.index, edges[arc.index]) for arc in whole.arcs[position]]
        exits = tuple(Edge(source=node.id, kind="arc", when=arc.when, args=arc.args, exit=str(at)) for at, arc in arcs)
        alone = Graph.model_construct(nodes=(node,), edges=exits, entries=(node.id,), writes="through", result=())
        return Layout(f"{graph}:{position}", alone)

    def unit(self, alone: Layout) -> Layout:
        """The owner alone in a spawned unit: its policies and its value belong to whoever spawned it."""
        bare = {"retry": (), "timeout": None, "bind": (), "guard": None}
        node = alone.nodes[0].model_copy(update=bare)
        graph = Graph.model_construct(nodes=(node,), edges=(), entries=(), writes="through", result=())
        return Layout(alone.name + _UNIT, graph)

    @cached_property
    def waiting_graphs(self) -> frozenset[str]:
        """The graphs that may wait for a time or an event: in one task, an item would hold up the next."""
        found: set[str] = set()
        while True:
            more = {name for name, layout in self.layouts.items() if _may_wait(layout, found)} - found
            if not more:
                return frozenset(found)
            found |= more

    def may_wait(self, bodies: Iterable[str]) -> bool:
        """Whether any of these bodies may wait."""
        return any(body in self.waiting_graphs for body in bodies)


def _may_wait(layout: Layout, known: set[str]) -> bool:
    return any(_node_may_wait(node, known) for node in layout.nodes)


def _node_may_wait(node: Node, known: set[str]) -> bool:
    if node.kind in ("wait", "await_event"):
        return True
    child = node.kind == "call" and getattr(node, "via", "") == "workflow"
    elsewhere = isinstance(node, Each | Fork) and node.queue is not None
    return child or elsewhere or any(body in known for body in node.bodies())


def _through(graph: Graph) -> frozenset[str] | str:
    if graph.writes == "through":
        return EVERYTHING
    return frozenset() if graph.writes == "local" else frozenset(graph.writes)


def rule_of(node: Node) -> str:
    if isinstance(node, Pass) and node.mirrors is not None:
        return "mirror"
    if node.join == "each":
        return "each"
    if node.trigger != "all_success":
        return "first" if node.trigger == "one_success" else node.trigger
    return node.join
