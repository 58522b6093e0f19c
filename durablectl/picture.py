"""A plan as an SVG picture: self-contained, in the reader's own colours, with what is inside loops, branches and
blocks drawn inside their boxes."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Final

from durablectl.layout import CAPTION, GAP, Box, Inner, Sheet, Wire, laid_out
from interpreter.plan import Call, Choose, Node, Plan

_STYLE: Final = (
    "text{font:13px system-ui,sans-serif;fill:currentColor}.k{font-size:10px;opacity:.65}"
    "rect{fill:none;stroke:currentColor;rx:6}.o{stroke-dasharray:6 3;opacity:.6}.e{fill:currentColor;opacity:.6}"
    "path{fill:none;stroke:currentColor;opacity:.6}.on_failure,.on_success{stroke-dasharray:4 3}.gate{stroke-width:1.6}"
)
_ARROW: Final = (
    '<defs><marker id="a" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0L8 4L0 8"/></marker></defs>'
)
_LABELS: Final = {"on_failure": "if it fails", "on_success": "if it succeeds"}


def svg_of(plan: Plan) -> str:
    """The picture of a whole plan."""
    sheet = laid_out(plan)
    width, height = sheet.width + 2 * GAP, sheet.height + 2 * GAP
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f"<title>{escape(plan.name)}</title><style>{_STYLE}</style>",
        _ARROW,
        *_sheet(sheet, GAP, GAP),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _sheet(sheet: Sheet, x: int, y: int) -> Iterator[str]:
    yield f'<g transform="translate({x} {y})">'
    for wire in sheet.wires:
        yield _wire(wire, sheet.boxes[wire.edge.source], sheet.boxes[str(wire.edge.target)])
    for box in sheet.boxes.values():
        yield from _box(box)
    yield "</g>"


def _box(box: Box) -> Iterator[str]:
    name = escape(box.node.id)
    if box.is_end:
        middle = box.width // 2
        yield f'<g><title>{name}</title><circle class="e" cx="{box.x + middle}" cy="{box.y + middle}" r="4"/></g>'
        return
    shape = ' class="o"' if box.inner else ""
    room = box.width // 8
    yield f'<g transform="translate({box.x} {box.y})"><title>{name}</title>'
    yield f'<rect{shape} width="{box.width}" height="{box.height}"/>'
    yield f'<text x="10" y="18">{_short(_title(box.node), room)}</text>'
    yield f'<text class="k" x="10" y="33">{_short(_kind(box.node), room * 4 // 3)}</text>'
    for inner in box.inner:
        yield from _inner(inner)
    yield "</g>"


def _inner(inner: Inner) -> Iterator[str]:
    if inner.caption:
        room = max(inner.sheet.width, 96) // 6
        yield f'<text class="k" x="{inner.x}" y="{inner.y - CAPTION // 2}">{_short(inner.caption, room)}</text>'
    yield from _sheet(inner.sheet, inner.x, inner.y)


def _title(node: Node) -> str:
    return node.title or node.id.partition("@")[0]


def _kind(node: Node) -> str:
    """What a node is, and what it calls or for whom it stands there."""
    words = [node.kind, str(getattr(node, "event", ""))]
    if isinstance(node, Call):
        words = [node.kind, ".".join(node.target.split(".")[-2:])]
    if isinstance(node, Choose):
        words = [node.kind, str(node.on if node.on is not None else node.cases[0].when if node.cases else "")]
    _, at, owner = node.id.partition("@")
    return " ".join(filter(None, [*words, f"after {owner}" if at else ""]))


def _wire(wire: Wire, start: Box, end: Box) -> str:
    edge = wire.edge
    # To the middle of a dot, not to the room around it.
    x, y = start.x + start.width // 2, start.y + (start.height * 3 // 4 if start.is_end else start.height)
    x2, y2 = end.x + end.width // 2, end.y + (end.height // 4 if end.is_end else 0)
    line = f"M{x} {y}"
    last = x
    for bend in wire.bends:
        line += f"{_curve(last, y, bend.x, bend.top)}L{bend.x} {bend.bottom}"
        last, y = bend.x, bend.bottom
    line += _curve(last, y, x2, y2)
    said = edge.label or _LABELS.get(edge.kind, "")
    label = _label(said, x2, y2, left=x2 < last) if said else ""
    return f'<path class="{edge.kind}" marker-end="url(#a)" d="{line}"/>{label}'


def _curve(x1: int, y1: int, x2: int, y2: int) -> str:
    middle = (y1 + y2) // 2
    return f"C{x1} {middle} {x2} {middle} {x2} {y2}"


def _label(text: str, x: int, y: int, *, left: bool) -> str:
    """Beside the arrow's end, and not on the line: the ways out of one router begin at one point."""
    anchor = ' text-anchor="end"' if left else ""
    return f'<text class="k"{anchor} x="{x - 8 if left else x + 8}" y="{y - 8}">{_short(text, 24)}</text>'


def _short(text: str, room: int) -> str:
    return escape(text if len(text) <= room else f"{text[: room - 1]}…")
