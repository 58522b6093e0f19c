"""Pictures of workflows: everything that may run is in them, inside of what runs it."""

from __future__ import annotations

import re
from itertools import combinations
from xml.etree import ElementTree

import pytest

from durablectl.layout import Box, Sheet, laid_out
from durablectl.picture import svg_of
from examples.highway import approval, bank_batch, etl, order_router
from highway_dsl import Workflow, WorkflowBuilder
from highway_dsl.check import operators
from interpreter.highway import compile_workflow


def nested() -> Workflow:
    builder = (
        WorkflowBuilder("nested")
        .task("start", "f")
        .parallel(
            "par",
            branches={
                "left <1>": lambda b: b.task("l1", "f").task("l2", "f"),
                "right": lambda b: b.foreach("each", items="{{inputs.all}}", loop_body=_body),
            },
        )
        .while_loop("again", condition="{{start}} < 3", loop_body=lambda b: b.task("work", "f").on_failure("cure"))
        .task("cure", "f")
    )
    return builder.build()


def _body(builder: WorkflowBuilder) -> WorkflowBuilder:
    return builder.condition(
        "cc",
        condition="{{item}}",
        if_true=lambda b: b.task("ct", "f").task("ct2", "f"),
        if_false=lambda b: b.parallel("deep", branches={"x": lambda c: c.task("dx", "f")}),
    )


ALL = [nested(), etl.build(), order_router.build(), approval.build(), bank_batch.build()]
ids = [workflow.name for workflow in ALL]


@pytest.mark.parametrize("workflow", ALL, ids=ids)
def test_every_task_is_in_the_picture(workflow: Workflow) -> None:
    """Also those of loop bodies, branches and callbacks; the picture is well-formed."""
    root = ElementTree.fromstring(svg_of(compile_workflow(workflow)))
    titles = {(each.text or "").partition("@")[0] for each in root.iter() if each.tag.endswith("title")}
    assert {task.task_id for _, task in operators(workflow)} <= titles


@pytest.mark.parametrize("workflow", ALL, ids=ids)
def test_boxes_lie_apart_and_inside_their_owners(workflow: Workflow) -> None:
    """No two nodes of a graph overlap, no line passes through one, and what a node opens fits into its box."""
    todo = [laid_out(compile_workflow(workflow))]
    for sheet in todo:
        for one, other in combinations(sheet.boxes.values(), 2):
            assert not _overlap(one, other), (one.node.id, other.node.id)
        _assert_free_lines(sheet)
        for box in sheet.boxes.values():
            assert box.x + box.width <= sheet.width
            assert box.y + box.height <= sheet.height
            for inner in box.inner:
                assert inner.x + inner.sheet.width <= box.width
                assert inner.y + inner.sheet.height <= box.height
                todo.append(inner.sheet)


def _overlap(one: Box, other: Box) -> bool:
    apart = one.x + one.width <= other.x or other.x + other.width <= one.x
    return not apart and not (one.y + one.height <= other.y or other.y + other.height <= one.y)


def _assert_free_lines(sheet: Sheet) -> None:
    for wire in sheet.wires:
        for bend in wire.bends:
            for box in sheet.boxes.values():
                beside = bend.x < box.x or bend.x > box.x + box.width
                assert beside or bend.bottom <= box.y or bend.top >= box.y + box.height


def test_a_flowchart_has_boxes_for_loops_and_branches() -> None:
    """Names are kept apart from Mermaid's own, and no line leads from a box to what is inside it."""
    lines = [line.strip() for line in nested().to_mermaid().splitlines()]
    boxes = [line for line in lines if line.startswith("subgraph")]
    assert boxes == [
        'subgraph t_par["par (parallel)"]',
        'subgraph b0_par["left &lt;1&gt;"]',
        'subgraph b1_par["right"]',
        'subgraph t_each["each (foreach)"]',
        'subgraph t_deep["deep (parallel)"]',
        'subgraph b0_deep["x"]',
        'subgraph t_again["again (while)"]',
    ]
    assert lines.count("end") == len(boxes)
    inside = {"t_par": {"t_l1", "t_l2", "t_each"}, "t_deep": {"t_dx"}}
    edges = [match.groups() for line in lines if (match := re.fullmatch(r"(\w+) -.*-> (\w+)", line))]
    assert ("t_start", "t_par") in edges
    assert ("t_work", "t_cure") in edges
    assert not [edge for edge in edges if edge[1] in inside.get(edge[0], ())]


def test_a_task_of_two_branches_stands_outside_of_both() -> None:
    """It would have to be in two boxes at once."""
    workflow = WorkflowBuilder("w").parallel(
        "p", branches={"a": lambda b: b.task("one", "f"), "b": lambda b: b.task("two", "f")}
    )
    built = workflow.build()
    built.tasks["p"].branches = {"a": ["one", "two"], "b": ["two"]}  # type: ignore[union-attr]
    chart = built.to_mermaid()
    assert '    t_two["two"]\n    t_p --> t_two' in chart
    assert 'subgraph b0_p["a"]\n            t_one' in chart
