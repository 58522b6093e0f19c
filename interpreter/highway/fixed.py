"""Names in a definition: section 10.1 allows no templates in them, and some belong to the language."""

from __future__ import annotations

from collections.abc import Iterator

from highway_dsl import (
    BaseOperator,
    ChildWorkflowOperator,
    EmitEventOperator,
    TaskOperator,
    WaitForEventOperator,
    Workflow,
)
from highway_dsl.check import operators
from highway_dsl.faults import Fault, Loc
from interpreter.expressions.syntax import is_template
from interpreter.highway.names import RESERVED


def name_faults(workflow: Workflow) -> list[Fault]:
    """Names that are no names: those that would be rendered anew in every run, and those of nothing."""
    return [
        Fault("fixed_name", f"{field}: {wrong}", (*loc, field), task.task_id, hint)
        for loc, task in operators(workflow)
        for field, wrong, hint in (*_rendered(task), *_unnamed(task))
    ]


def name_doubts(workflow: Workflow) -> list[Fault]:
    """Names that templates never find, because the language has them, and variables that stay as they are written."""
    found = [_hidden(loc, task) for loc, task in operators(workflow) if task.result_key in RESERVED]
    for name, value in workflow.variables.items():
        if name in RESERVED:
            message = f"variable '{name}' is never found: {{{{{name}}}}} is reserved"
            found.append(Fault("reserved", message, ("variables", name), None, "give it another name"))
        if isinstance(value, str) and is_template(value):
            message = f"variable '{name}' holds a template, which is not rendered: it stays this text"
            found.append(Fault("plain_variable", message, ("variables", name)))
    return found


def _hidden(loc: Loc, task: BaseOperator) -> Fault:
    message = f"result_key '{task.result_key}' is never found: {{{{{task.result_key}}}}} is reserved"
    return Fault(
        "reserved", message, (*loc, "result_key"), task.task_id, f"take another, or use {{{{{task.task_id}}}}}"
    )


def _rendered(task: BaseOperator) -> Iterator[tuple[str, str, str | None]]:
    named = {"result_key": task.result_key}
    if isinstance(task, TaskOperator):
        named["function"] = task.function
    if isinstance(task, ChildWorkflowOperator):
        named |= {f"children.{name}": str(child.get("workflow_name")) for name, child in task.children.items()}
    for field, name in named.items():
        if name is not None and is_template(name):
            hint = "choose among tasks with a condition or a switch" if field != "result_key" else None
            yield field.partition(".")[0], f"'{name}' is a template, and this name is fixed", hint


def _unnamed(task: BaseOperator) -> Iterator[tuple[str, str, str | None]]:
    if isinstance(task, EmitEventOperator | WaitForEventOperator) and not task.event_name.strip():
        yield "event_name", "names no event", None
