"""Which inputs a workflow cannot do without: those that tasks read which run whenever nothing fails."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from interpreter.plan import Each, Edge, Fork, Graph, Node, Pass, Plan, Return

# What a schedule gives every run; `ds` is made of it.
INTERVAL: Final = ("data_interval_end", "data_interval_start")
# Only a plain reference: anything more may have a default, or may not be looked at.
_PLAIN: Final = re.compile(r"\{\{\s*inputs\.(\w+)(?:\.\w+)*\s*\}\}")
_NAMED: Final = re.compile(r"\binputs\.(\w+)")
_WHOLE: Final = re.compile(r"\binputs\b(?!\.\w)")


def needed_inputs(plan: Plan) -> list[str]:
    """Without these no run can succeed."""
    if plan.meta.get("lenient") or any(
        isinstance(node, Return) for graph in plan.graphs.values() for node in graph.nodes
    ):
        return []
    found = {name for node in _sure(plan, plan.root) for text in _texts(node) for name in _PLAIN.findall(text)}
    return sorted(found)


def read_inputs(plan: Plan) -> list[str] | None:
    """Every input that is named anywhere, also by `ds`; None if some text takes them as a whole."""
    texts = [text for graph in plan.graphs.values() for node in graph.nodes for text in _all_texts(node.model_dump())]
    if any(_WHOLE.search(text) for text in texts):
        return None
    return sorted({*INTERVAL, *(name for text in texts for name in _NAMED.findall(text))})


def _sure(plan: Plan, name: str) -> Iterator[Node]:
    """The nodes of a graph that run if nothing fails, and those of branches that then run too."""
    graph = plan.graphs[name]
    unsure = _unsure(graph)
    for node in graph.nodes:
        if node.id not in unsure:
            yield node
            if isinstance(node, Fork):
                for branch in node.branches:
                    yield from _sure(plan, branch.body)


def _unsure(graph: Graph) -> set[str]:
    """What something decides about, and what follows it."""
    coming: dict[str, list[Edge]] = {node.id: [] for node in graph.nodes}
    for edge in graph.edges:
        if edge.target is not None:
            coming[edge.target].append(edge)
    found: set[str] = set()
    # In the order of the plan, each node comes after what it follows.
    for node in graph.nodes:
        edges = coming[node.id]
        if isinstance(node, Pass) and node.mirrors is not None:
            edges = [edge for edge in edges if edge.source == node.mirrors]
        decided = node.guard is not None or any(edge.kind != "after" for edge in edges)
        if decided or any(edge.source in found for edge in edges):
            found.add(node.id)
    return found


def _texts(node: Node) -> Iterator[str]:
    """The texts that a node renders whenever it runs. Not its conditions: those may stop half way."""
    for field in ("args", "event", "payload", "on", "items"):
        if field != "items" or isinstance(node, Each):
            yield from _all_texts(getattr(node, field, None))


def _all_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _all_texts(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _all_texts(part)
