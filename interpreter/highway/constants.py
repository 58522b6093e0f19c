"""Expressions that mean the same in every run, and the tasks that can therefore never run."""

from __future__ import annotations

from typing import Any

from highway_dsl.faults import Fault, Position
from interpreter.errors import ExpressionError, TemplateError
from interpreter.expressions.context import NOT_FOUND
from interpreter.expressions.evaluator import is_true
from interpreter.expressions.syntax import is_template
from interpreter.highway.check import DIALECT
from interpreter.highway.names import task_of
from interpreter.plan import Plan
from interpreter.possible import UNKNOWN, Never, never


def constant(expr: Any, condition: bool) -> Any:
    """The value of an expression without names, or whether a condition without names holds; else `UNKNOWN`."""
    value = expr
    if isinstance(expr, str) and (condition or is_template(expr)):
        try:
            compiled = DIALECT.compile(expr, "condition" if condition and "{%" not in expr else "value")
            value = UNKNOWN if compiled.names else compiled.evaluate(lambda name: NOT_FOUND)
        except (TemplateError, ExpressionError):
            value = UNKNOWN
    return is_true(value) if condition and value is not UNKNOWN else value


def idle_tasks(plan: Plan, positions: dict[str, Position]) -> list[Fault]:
    """Tasks that no run can come to, however its tasks end. Warnings: someone may have switched them off."""
    found = never(plan, constant)
    idle = {one.node.id for one in found if not one.inside}
    # A handler stands beside each task that calls it back: it is idle if it is everywhere.
    nodes = [node for graph in plan.graphs.values() for node in graph.nodes if getattr(node, "mirrors", None) is None]
    busy = {task_of(node.id) for node in nodes if node.id not in idle}
    told: dict[str, Fault] = {}
    for one in found:
        task = task_of(one.node.id)
        if one.inside or task not in busy:
            told.setdefault(task, _said(one, task, positions.get(task)))
    return list(told.values())


def _said(one: Never, task: str, position: Position | None) -> Fault:
    what = "what is inside it can never run" if one.inside else "can never run"
    reason = one.reason.replace(".end'", "'")
    return Fault("never_runs", f"{what}: {reason}", ("tasks", task), task, position=position)
