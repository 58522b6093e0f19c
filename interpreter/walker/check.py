"""Structural faults of a plan: what no walk could get right, all at once.

A language's own checks come first and speak in its own words; these are the last line, for plans made by
hand and compilers gone wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from interpreter.errors import Fault, Place, PlanError
from interpreter.plan import Choose, Each, Edge, Fork, Graph, Node, Owner, Pass, Plan, Region, Return, Wait

# These make the names of frames; in an id they would make two nodes share a path.
_RESERVED: Final = re.compile(r"[/\[\]#!~()]")


def check_plan(plan: Plan) -> list[Fault]:
    """Every structural fault of a plan; an empty list means it can be walked."""
    faults = list(_graphs_exist(plan))
    if faults:
        return faults
    regions = {node.body for node in _all_nodes(plan) if isinstance(node, Region)}
    for name, graph in plan.graphs.items():
        final = plan.final_step if name == plan.root else None
        ends = list(_check_ends(graph))
        faults += [*_check_ids(graph), *ends]
        if not ends:
            faults += _check_graph(plan, graph, name in regions, final)
    faults += [*_check_final(plan), *_check_recursion(plan)]
    return faults or list(_check_exits(plan))


def require_sound(plan: Plan) -> None:
    """Raise `PlanError` with every fault, if there is one."""
    faults = check_plan(plan)
    if faults:
        raise PlanError(faults)


def _fault(message: str, node: Node | None = None) -> Fault:
    if node is None:
        return Fault(message)
    span = node.span
    place = Place(span.file, span.line, span.column) if span is not None else None
    return Fault(message, node.id, place)


def _all_nodes(plan: Plan) -> Iterator[Node]:
    for graph in plan.graphs.values():
        yield from graph.nodes


def _graphs_exist(plan: Plan) -> Iterator[Fault]:
    if plan.root not in plan.graphs:
        yield _fault(f"the root graph {plan.root!r} does not exist")
    used = {plan.root}
    for node in _all_nodes(plan):
        used.update(node.bodies())
        for body in node.bodies():
            if body not in plan.graphs:
                yield _fault(f"{node.id}: its body {body!r} does not exist", node)
    for name in plan.graphs:
        if name not in used:
            yield _fault(f"the graph {name!r} is used by no node")
        if ":" in name:
            yield _fault(f"{name!r} cannot name a graph: a colon names a node standing alone")


def _check_ids(graph: Graph) -> Iterator[Fault]:
    seen: set[str] = set()
    for node in graph.nodes:
        if node.id in seen:
            yield _fault(f"two nodes are called {node.id!r}", node)
        seen.add(node.id)
        if not node.id or _RESERVED.search(node.id):
            yield _fault(f"{node.id!r} cannot be an id: it is empty or holds one of / [ ] # ! ~ ( )", node)


def _check_ends(graph: Graph) -> Iterator[Fault]:
    """Everything a graph names must be in it."""
    known = {node.id for node in graph.nodes}
    for edge in graph.edges:
        for end in (edge.source, edge.target, *edge.unless):
            if end is not None and end not in known:
                yield _fault(f"an edge from {edge.source!r} names {end!r}, which does not exist")
    for entry in graph.entries or ():
        if entry not in known:
            yield _fault(f"the entry {entry!r} does not exist")
    for node in graph.nodes:
        if isinstance(node, Pass) and node.mirrors is not None and node.mirrors not in known:
            yield _fault(f"{node.id} mirrors {node.mirrors!r}, which does not exist", node)


def _check_graph(plan: Plan, graph: Graph, in_region: bool, final: str | None) -> Iterator[Fault]:
    nodes: dict[str, Node] = {node.id: node for node in graph.nodes}
    for edge in graph.edges:
        yield from _check_edge(plan, edge, nodes, in_region)
    for node in graph.nodes:
        yield from _check_node(node)
    cycle = _cycle(graph)
    if cycle:
        yield _fault("these wait for each other for ever: " + " -> ".join(cycle), nodes[cycle[0]])
    else:
        yield from _check_reach(graph, nodes, in_region, final)


def _check_edge(plan: Plan, edge: Edge, nodes: dict[str, Node], in_region: bool) -> Iterator[Fault]:
    source, name = nodes[edge.source], f"the edge {edge.source} -> {edge.target or edge.exit}"
    if (edge.target is None) == (edge.exit is None):
        yield _fault(f"{name} needs either a target or an exit", source)
    if edge.kind == "gate" and not _is_label(source, edge.label):
        yield _fault(f"{name} is a gate for {edge.label!r}, which {source.id} never chooses", source)
    if edge.kind != "arc" and (edge.when is not None or edge.args is not None):
        yield _fault(f"{name} has a condition or args, but only arcs may", source)
    if edge.unless and edge.kind != "after":
        yield _fault(f"{name} has `unless`, but only `after` edges may", source)
    if (edge.back or edge.exit is not None) and not (in_region and edge.kind == "arc"):
        yield _fault(f"{name} goes back or out, but only arcs inside a region may", source)
    if edge.entry is not None:
        yield from _check_entry(plan, edge, nodes, name)


def _is_label(source: Node, label: str | None) -> bool:
    if not isinstance(source, Choose):
        return False
    return label is not None and (label == source.default or any(case.label == label for case in source.cases))


def _check_entry(plan: Plan, edge: Edge, nodes: dict[str, Node], name: str) -> Iterator[Fault]:
    region = nodes.get(edge.target or "")
    if not isinstance(region, Region):
        yield _fault(f"{name} has an entry, but does not lead to a region", nodes[edge.source])
    elif all(node.id != edge.entry for node in plan.graphs[region.body].nodes):
        yield _fault(f"{name} enters at {edge.entry!r}, which is not in the region", nodes[edge.source])


def _check_node(node: Node) -> Iterator[Fault]:
    if isinstance(node, Wait) and (node.seconds is None) == (node.until is None):
        yield _fault(f"{node.id} must wait either for seconds or until a moment", node)
    if isinstance(node, Choose):
        for case in node.cases:
            if (case.when is None) == (case.equals is None):
                yield _fault(f"{node.id}: the case {case.label!r} needs either `when` or `equals`", node)
    if isinstance(node, Each) and not node.item:
        yield _fault(f"{node.id} gives its item no name", node)
    if isinstance(node, Each | Fork) and node.queue is not None and not _always_spawns(node):
        yield _fault(f"{node.id} names a queue, but what it opens may run in place", node)


def _always_spawns(node: Each | Fork) -> bool:
    return node.spawn == "always" and (isinstance(node, Fork) or node.mode == "parallel")


def _waits(graph: Graph) -> dict[str, set[str]]:
    """Who waits for whom inside one frame. What follows a handler waits for the handler, too."""
    waits: dict[str, set[str]] = {node.id: set() for node in graph.nodes}
    for edge in graph.edges:
        if edge.target is not None and not edge.back:
            waits[edge.target].update((edge.source, *edge.unless))
    for node in graph.nodes:
        if isinstance(node, Pass) and node.mirrors is not None:
            waits[node.id].add(node.mirrors)
    return waits


def _cycle(graph: Graph) -> list[str]:
    """One cycle of waiting nodes, or nothing."""
    waits = _waits(graph)
    free = _freed(waits)
    stuck = [node for node in waits if node not in free]
    if not stuck:
        return []
    trail = [stuck[0]]
    while True:
        before = min(node for node in waits[trail[-1]] if node not in free)
        if before in trail:
            return [*reversed(trail[trail.index(before) :]), trail[-1]]
        trail.append(before)


def _freed(waits: dict[str, set[str]]) -> set[str]:
    left = {node: len(sources) for node, sources in waits.items()}
    followers: dict[str, list[str]] = {node: [] for node in waits}
    for node, sources in waits.items():
        for source in sources:
            followers[source].append(node)
    ready = [node for node, count in left.items() if not count]
    freed: set[str] = set()
    while ready:
        node = ready.pop()
        freed.add(node)
        for follower in followers[node]:
            left[follower] -= 1
            if not left[follower]:
                ready.append(follower)
    return freed


def _check_reach(graph: Graph, nodes: dict[str, Node], in_region: bool, final: str | None) -> Iterator[Fault]:
    starts: set[str] = set(_starts(graph, final))
    if in_region:
        # Any node of a region may be where a token comes in or comes back.
        starts |= {edge.target for edge in graph.edges if edge.back and edge.target is not None}
        starts = starts or set(nodes)
    reached, todo = set(starts), list(starts)
    follows: dict[str, list[str]] = {}
    for edge in graph.edges:
        if edge.target is not None:
            follows.setdefault(edge.source, []).append(edge.target)
    while todo:
        fresh = [node for node in follows.get(todo.pop(), ()) if node not in reached]
        reached.update(fresh)
        todo.extend(fresh)
    for name, node in nodes.items():
        if name not in reached and name != final and not in_region:
            yield _fault(f"{name} can never run: nothing leads to it", node)


def _starts(graph: Graph, final: str | None) -> Iterable[str]:
    if graph.entries is not None:
        return graph.entries
    targets = {edge.target for edge in graph.edges if not edge.back}
    return [node.id for node in graph.nodes if node.id not in targets and node.id != final]


def _check_final(plan: Plan) -> Iterator[Fault]:
    if plan.final_step is None:
        return
    root = plan.graphs[plan.root]
    if all(node.id != plan.final_step for node in root.nodes):
        yield _fault(f"the final step {plan.final_step!r} does not exist")
    if any(plan.final_step in (edge.source, edge.target) for edge in root.edges):
        yield _fault(f"the final step {plan.final_step!r} must stand alone: it runs when all else has ended")


def _check_recursion(plan: Plan) -> Iterator[Fault]:
    bodies = {name: {body for node in graph.nodes for body in node.bodies()} for name, graph in plan.graphs.items()}
    stuck = [name for name in bodies if name not in _freed(bodies)]
    if stuck:
        yield _fault("these graphs open frames of themselves: " + ", ".join(stuck))


class _Around(NamedTuple):
    """What forbids each kind of exit at some place; `None` where it is allowed."""

    leave: str | None = None
    break_: str | None = "it is not inside a loop"
    continue_: str | None = "it is not inside a loop"
    terminate: str | None = None

    def inside(self, owner: Owner) -> _Around:
        terminate = self.terminate
        if getattr(owner, "spawn", "never") != "never":
            terminate = f"the branches of {owner.id} may be spawned"
        if owner.kind == "function":
            return _Around(terminate=terminate)
        leave, break_, continue_ = self.leave, self.break_, self.continue_
        if isinstance(owner, Fork) or (isinstance(owner, Each) and owner.mode == "parallel"):
            leave = break_ = continue_ = f"it would leave the parallel {owner.id}"
        elif owner.kind in ("each", "repeat"):
            break_ = None
        if owner.kind in ("each", "repeat"):
            continue_ = None
        return _Around(leave, break_, continue_, terminate)

    def forbids(self, exit: str) -> str | None:
        ways = {"return": self.leave, "break": self.break_, "continue": self.continue_}
        return ways.get(exit, self.terminate)


def _check_exits(plan: Plan) -> Iterator[Fault]:
    """Every kind of place every graph stands in: a function may be called from many."""
    todo: list[tuple[str, _Around]] = [(plan.root, _Around())]
    seen = set(todo)
    while todo:
        name, around = todo.pop()
        for node in plan.graphs[name].nodes:
            if isinstance(node, Return) and (reason := around.forbids(node.exit)):
                yield _fault(f"{node.id} cannot {node.exit} here: {reason}", node)
            if isinstance(node, Owner):
                places = {(body, around.inside(node)) for body in node.bodies()} - seen
                seen |= places
                todo.extend(sorted(places, key=str))
