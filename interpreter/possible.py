"""What the nodes of a plan could ever come to, whatever its tasks do.

Every node gets the states it might end in, a few too many rather than one too few: what is said to be impossible
is so. Edges are taken one by one, each with every state that its source might give it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from interpreter.plan import Choose, Each, Edge, Graph, Node, Pass, Plan, Repeat, Return, Wait
from interpreter.walker.leaves import texts
from interpreter.walker.program import rule_of
from interpreter.walker.states import (
    DEAD,
    EDGE_TABLE,
    EXITED,
    FAILED,
    IGNORED,
    LIVE,
    POISONED,
    RAN,
    SELECTED,
    SKIPPED,
    SUCCEEDED,
    UPSTREAM_FAILED,
)

UNKNOWN: Final = object()
States = frozenset[str]
# The value of an expression that is the same in every run, else UNKNOWN; of a condition, whether it holds.
Constant = Callable[[Any, bool], Any]

_STARTED: Final = RAN | {EXITED}
_ANY: Final = frozenset((SUCCEEDED, FAILED))


class Never(NamedTuple):
    """A node that cannot do what it is there for."""

    node: Node
    reason: str
    inside: bool = False  # it runs, but what is inside it does not


def never(plan: Plan, constant: Constant) -> list[Never]:
    """The nodes that can never run, and those whose bodies cannot; what is inside of either is not listed too."""
    found: list[Never] = []
    todo, seen = [plan.root], {plan.root}
    for name in todo:
        possible = Possible(plan, plan.graphs[name], constant)
        found += possible.never()
        fresh = [body for body in possible.opened() if body not in seen]
        seen.update(fresh)
        todo += fresh
    return found


class Possible:
    """The states that the nodes of one graph might end in."""

    def __init__(self, plan: Plan, graph: Graph, constant: Constant):
        self._plan = plan
        self._constant = constant
        self._nodes: dict[str, Node] = {node.id: node for node in graph.nodes}
        self._ins: dict[str, list[Edge]] = {node.id: [] for node in graph.nodes}
        for edge in graph.edges:
            if edge.target is not None:
                self._ins[edge.target].append(edge)
        self._labels = {node.id: self._chosen(node) for node in graph.nodes if isinstance(node, Choose)}
        # Back-edges and arcs depend on outcomes: nothing is certain behind them.
        self._open = graph.entries is not None or any(edge.kind == "arc" for edge in graph.edges)
        self.states: dict[str, States] = {}
        if not self._open:
            for node_id in _in_order(graph):
                self.states[node_id] = self._ends(self._nodes[node_id])

    def never(self) -> Iterator[Never]:
        for node_id, states in self.states.items():
            node = self._nodes[node_id]
            if isinstance(node, Pass) and node.mirrors is not None:
                continue
            if not states & _STARTED:
                yield Never(node, self._reason(node))
            elif hollow := self._hollow(node):
                yield Never(node, hollow, inside=True)

    def opened(self) -> Iterator[str]:
        """The bodies of nodes that might run."""
        for node in self._nodes.values():
            if self._open or (self.states[node.id] & _STARTED and not self._hollow(node)):
                yield from node.bodies()

    # ---------------------------------------------------------------- states

    def _ends(self, node: Node) -> States:
        edges = {index: self._edge(edge) for index, edge in enumerate(self._ins[node.id])}
        gates = [states for index, states in edges.items() if self._ins[node.id][index].kind == "gate"]
        waits = [states for index, states in edges.items() if self._ins[node.id][index].kind != "gate"]
        if isinstance(node, Pass) and node.mirrors is not None:
            return self._mirrored(self.states[node.mirrors], waits)
        ends = self._not_run(gates, waits) | ({SKIPPED} if node.guard is not None else set())
        return ends | self._outcomes(node) if self._admits(rule_of(node), gates, waits) else ends

    def _edge(self, edge: Edge) -> States:
        found = set[str]()
        for end in self.states[edge.source]:
            state = EDGE_TABLE[edge.kind][end]
            found |= self._selected(edge) if state == SELECTED else {state}
        if any(self.states[handler] & RAN for handler in edge.unless):
            found.add(IGNORED)
        return frozenset(found)

    def _selected(self, edge: Edge) -> set[str]:
        labels = self._labels.get(edge.source)
        if labels is None:
            return {LIVE, DEAD}
        return {LIVE} if edge.label in labels else {DEAD}

    def _admits(self, rule: str, gates: list[States], waits: list[States]) -> bool:
        if gates and not any(LIVE in states for states in gates):
            return False
        token = bool(gates) or any(LIVE in states for states in waits) or not waits
        broken = any(POISONED in states for states in waits)
        if rule == "all_done":
            return True
        if rule in ("first", "each", "one_done"):
            return token or (rule == "one_done" and broken)
        whole = all(states - {POISONED} for states in waits)
        return whole and (token or rule == "none_failed")

    def _not_run(self, gates: list[States], waits: list[States]) -> States:
        found = set[str]()
        if any(POISONED in states for states in (*gates, *waits)):
            found.add(UPSTREAM_FAILED)
        if (gates or waits) and all(states & {DEAD, IGNORED} for states in gates or waits):
            found.add(SKIPPED)
        return frozenset(found)

    def _mirrored(self, start: States, members: list[States]) -> States:
        found = set(start - {SUCCEEDED})
        if SUCCEEDED in start and all(states - {POISONED} for states in members):
            found.add(SUCCEEDED)
        if start & RAN and any(POISONED in states for states in members):
            found.add(FAILED)
        return frozenset(found)

    def _outcomes(self, node: Node) -> States:
        """How a node that started might end."""
        if isinstance(node, Return):
            return frozenset((EXITED,))
        if isinstance(node, Pass) or self._labels.get(node.id) is not None or _is_sure(node):
            return frozenset((SUCCEEDED,))
        if isinstance(node, Repeat) and self._constant(node.when, True) is True and not self._leaves(node):
            return frozenset((FAILED,))
        return _ANY | {EXITED} if self._leaves(node) else _ANY

    def _leaves(self, node: Node) -> bool:
        """Whether something inside a node may leave it."""
        todo, seen = list(node.bodies()), set(node.bodies())
        for name in todo:
            inner = self._plan.graphs[name].nodes
            if any(isinstance(each, Return) for each in inner):
                return True
            fresh = {body for each in inner for body in each.bodies()} - seen
            seen |= fresh
            todo += sorted(fresh)
        return False

    # ---------------------------------------------------------------- constants

    def _chosen(self, node: Choose) -> frozenset[str] | None:
        """The labels that a router always chooses, or nothing certain."""
        on = self._constant(node.on, False)
        labels = []
        for case in node.cases:
            holds = self._constant(case.when, True) if case.equals is None else self._equal(on, case.equals)
            if holds is UNKNOWN:
                return None
            if holds:
                labels.append(case.label)
                if not node.many:
                    break
        return frozenset(labels or ([node.default] if node.default is not None else []))

    def _equal(self, on: Any, text: str) -> Any:
        return UNKNOWN if on is UNKNOWN else text in texts(on)

    def _hollow(self, node: Node) -> str:
        """Why the body of a node never runs, if it does not."""
        if isinstance(node, Repeat) and node.test_first and self._constant(node.when, True) is False:
            return "its condition is always false"
        if isinstance(node, Each) and self._constant(node.items, False) in ([], {}, None):
            return "it has no items"
        return ""

    # ---------------------------------------------------------------- words

    def _reason(self, node: Node) -> str:
        ins = self._ins[node.id]
        gates = [edge for edge in ins if edge.kind == "gate"]
        if gates and not any(LIVE in self._edge(edge) for edge in gates):
            return "; ".join(dict.fromkeys(self._why_dead(edge) for edge in gates))
        broken = [edge for edge in ins if not self._edge(edge) - {POISONED}]
        return "; ".join(dict.fromkeys(self._why_dead(edge) for edge in broken or ins))

    def _why_dead(self, edge: Edge) -> str:
        source = self.states[edge.source]
        if not source & _STARTED:
            return f"'{edge.source}' can never run"
        if edge.kind == "gate":
            labels = sorted(self._labels.get(edge.source) or ())
            return f"'{edge.source}' always chooses {' and '.join(map(repr, labels)) or 'nothing'}"
        if edge.kind == "on_failure":
            return f"'{edge.source}' cannot fail"
        if EXITED in source and not source & RAN:
            return f"'{edge.source}' ends the run"
        return f"'{edge.source}' can never succeed"


def _is_sure(node: Node) -> bool:
    """A wait for a number of seconds cannot fail."""
    return isinstance(node, Wait) and isinstance(node.seconds, int | float)


def _in_order(graph: Graph) -> Iterator[str]:
    """The nodes, each after what it waits for; the plan has no circle."""
    before: dict[str, set[str]] = {node.id: set() for node in graph.nodes}
    for edge in graph.edges:
        if edge.target is not None:
            before[edge.target].update((edge.source, *edge.unless))
    for node in graph.nodes:
        if isinstance(node, Pass) and node.mirrors is not None:
            before[node.id].add(node.mirrors)
    done: set[str] = set()
    for node in graph.nodes:
        todo = [node.id]
        while todo:
            waits = [name for name in before[todo[-1]] if name not in done]
            if waits:
                todo += waits
            elif (name := todo.pop()) not in done:
                done.add(name)
                yield name
