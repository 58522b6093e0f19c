"""`durable graph`: a workflow file as a Mermaid flowchart or an SVG picture."""

from __future__ import annotations

from durablectl import exits
from durablectl.documents import sound
from durablectl.exits import WrongUse
from durablectl.picture import svg_of


def draw_file(file: str, *, mermaid: bool, svg: bool) -> int:
    if mermaid and svg:
        raise WrongUse("one of --mermaid and --svg, not both")
    loaded = sound([file])
    if svg and len(loaded) > 1:
        raise WrongUse(f"{file} builds {len(loaded)} workflows, and an SVG picture shows one; use --mermaid")
    for each in loaded:
        print(svg_of(each.plan) if svg else each.workflow.to_mermaid(), end="")
    return exits.OK
