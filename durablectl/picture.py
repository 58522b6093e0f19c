"""A plan as an SVG picture: its root graph in layers, each node below what it follows."""

from __future__ import annotations

from collections import defaultdict
from html import escape
from typing import NamedTuple

from interpreter.plan import Edge, Graph, Plan

WIDTH, HEIGHT, GAP, LANE = 180, 40, 24, 90
_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:currentColor}.k{font-size:10px;opacity:.6}"
    "rect{fill:none;stroke:currentColor;rx:6}path{fill:none;stroke:currentColor;opacity:.6}"
    ".on_failure{stroke-dasharray:4 3}.gate{stroke-width:1.5}"
)


class Place(NamedTuple):
    """Where a node's box begins."""

    x: int
    y: int


def svg_of(plan: Plan) -> str:
    """The picture, self-contained and in the reader's own colours."""
    graph = plan.graphs[plan.root]
    places = _places(graph)
    right = max((place.x for place in places.values()), default=0) + WIDTH + GAP
    bottom = max((place.y for place in places.values()), default=0) + HEIGHT + GAP
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {right} {bottom}" width="{right}" height="{bottom}">',
        f"<title>{escape(plan.name)}</title><style>{_STYLE}</style>",
        '<defs><marker id="a" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8"/></marker></defs>',
        *(_edge(edge, places) for edge in graph.edges if edge.target is not None),
        *(_node(node.id, node.title or node.id, node.kind, places[node.id]) for node in graph.nodes),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _places(graph: Graph) -> dict[str, Place]:
    """Layer by the longest way to a node; in a layer, in plan order."""
    layers: dict[int, list[str]] = defaultdict(list)
    for node, layer in _layers(graph).items():
        layers[layer].append(node)
    return {
        node: Place(GAP + column * (WIDTH + GAP), GAP + layer * LANE)
        for layer, nodes in layers.items()
        for column, node in enumerate(nodes)
    }


def _layers(graph: Graph) -> dict[str, int]:
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


def _edge(edge: Edge, places: dict[str, Place]) -> str:
    start, end = places[edge.source], places[str(edge.target)]
    x1, y1, x2, y2 = start.x + WIDTH // 2, start.y + HEIGHT, end.x + WIDTH // 2, end.y
    middle = (y1 + y2) // 2
    label = ""
    if edge.label:
        label = f'<text class="k" x="{(x1 + x2) // 2 + 4}" y="{middle}">{escape(edge.label)}</text>'
    curve = f"M{x1} {y1}C{x1} {middle} {x2} {middle} {x2} {y2}"
    return f'<path class="{edge.kind}" marker-end="url(#a)" d="{curve}"/>{label}'


def _node(name: str, title: str, kind: str, at: Place) -> str:
    shown = title if len(title) <= 24 else f"{title[:23]}…"
    return (
        f'<g><title>{escape(name)}</title><rect x="{at.x}" y="{at.y}" width="{WIDTH}" height="{HEIGHT}"/>'
        f'<text x="{at.x + 10}" y="{at.y + 19}">{escape(shown)}</text>'
        f'<text class="k" x="{at.x + 10}" y="{at.y + 33}">{escape(kind)}</text></g>'
    )
