"""What can be known to go wrong before anything runs: every fault of a workflow at once, each with its task."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from highway_dsl import (
    BaseOperator,
    ChildWorkflowOperator,
    ConditionOperator,
    EmitEventOperator,
    ForEachOperator,
    SwitchOperator,
    TaskOperator,
    TerminateOperator,
    WaitForEventOperator,
    WhileOperator,
    Workflow,
)
from highway_dsl.check import operators
from highway_dsl.faults import Fault, Loc, Position
from interpreter.errors import TemplateError
from interpreter.expressions import Dialect
from interpreter.expressions.syntax import is_template
from interpreter.highway.evaluator import parts_as_names
from interpreter.highway.names import PART
from interpreter.highway.order import Order
from interpreter.highway.secrets import secrets_in
from interpreter.highway.visibility import Visibility

DIALECT = Dialect(rewrite=parts_as_names)
# A text that asks whether a name is there may name what is not.
_ASKS = re.compile(r"\b(default|d|defined|undefined)\b")
_DS = re.compile(r"\{\{[^}]*\bds(_date)?\b")
_HOLE = re.compile(r"\{\{.*?\}\}")


class Text(NamedTuple):
    """One text of an operator that may hold templates."""

    field: str
    text: str
    condition: bool = False


def check_templates(workflow: Workflow, positions: dict[str, Position], *, names: bool = True) -> list[Fault]:
    """Templates that do not parse, names that nothing can ever define, secrets where they would be stored.

    Without `names`, what is not defined is not judged.
    """
    known = Names(workflow)
    found: list[Fault] = []
    for loc, task in operators(workflow):
        for text in texts_of(task):
            found += _check_text(known, loc, task, text)
    found = [fault for fault in found if names or fault.kind != "undefined"]
    return [fault.at(positions.get(fault.task_id or "")) for fault in found]


def _check_text(names: Names, loc: Loc, task: BaseOperator, text: Text) -> Iterator[Fault]:
    where = (*loc, text.field)
    try:
        used = DIALECT.compile(text.text, "condition" if text.condition else "value").names
    except TemplateError as error:
        yield Fault("template", f"{text.field}: {error.message}", where, task.task_id)
        return
    for name in sorted({name.partition(PART)[0] for name in used}):
        if said := names.missing(name, task.task_id, text):
            yield Fault("undefined", f"{text.field}: {said[0]}", where, task.task_id, said[1])
    if text.field not in ("args", "kwargs") and secrets_in(text.text):
        hint = "only args and kwargs of tasks may hold secrets"
        yield Fault("secret", f"{text.field}: a secret would be stored here", where, task.task_id, hint)


class Names:
    """Which names are there for a task of one workflow."""

    def __init__(self, workflow: Workflow) -> None:
        self._visible = Visibility(workflow)
        self._order = Order(workflow)

    def missing(self, name: str, task_id: str, text: Text) -> tuple[str, str | None] | None:
        """Why a name can never be there, and what to do about it."""
        if name not in self._visible.names(task_id):
            near = self._visible.nearest(task_id, name)
            hint = f"did you mean '{near}'?" if near else "declare it in variables, or pass it as inputs.<name>"
            return f"nothing defines '{name}'", hint
        binders = sorted(self._visible.binders(name))
        if not binders or _ASKS.search(text.text):
            return None
        if not all(self._order.is_later(binder, task_id) for binder in binders):
            return None
        if binders == [task_id]:
            return f"'{name}' is not there yet: it is what this task gives", None
        later = " and ".join(f"'{binder}'" for binder in binders)
        return f"'{name}' is not there yet: it comes from {later}, and that is later", "let this task depend on it"


def texts_of(task: BaseOperator) -> Iterator[Text]:
    """Every text of an operator in which section 10.1 allows templates."""
    if isinstance(task, TaskOperator):
        yield from _in("args", task.args)
        yield from _in("kwargs", task.kwargs)
        yield from _in("idempotency_key", task.idempotency_key)
    elif isinstance(task, ConditionOperator | WhileOperator):
        yield Text("condition", task.condition, condition="{%" not in task.condition)
    elif isinstance(task, ForEachOperator):
        yield from _in("items", task.items)
    elif isinstance(task, SwitchOperator):
        yield from _in("switch_on", task.switch_on)
    elif isinstance(task, EmitEventOperator | WaitForEventOperator):
        yield from _in("event_name", task.event_name)
        yield from _in("payload", getattr(task, "payload", None))
    elif isinstance(task, ChildWorkflowOperator):
        yield from _in("children", [child.get("inputs") for child in task.children.values()])
    elif isinstance(task, TerminateOperator):
        yield from _in("result", task.result)


def _in(field: str, value: Any) -> Iterator[Text]:
    if isinstance(value, str):
        if is_template(value):
            yield Text(field, value)
    elif isinstance(value, dict):
        yield from _in(field, list(value.values()))
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _in(field, part)


def unheard_of(workflow: Workflow, others: Iterable[Workflow], positions: dict[str, Position]) -> list[Fault]:
    """Events that the workflow waits for and none of the known workflows emits. Only a warning: a program or a
    person may emit them."""
    emitted = [task.event_name for known in (workflow, *others) for task in _tasks(known) if _emits(task)]
    return [
        Fault("event", f"nobody is known to emit '{task.event_name}'", loc, task.task_id).at(
            positions.get(task.task_id)
        )
        for loc, task in operators(workflow)
        if isinstance(task, WaitForEventOperator) and not any(_may_be(task.event_name, name) for name in emitted)
    ]


def other_clocks(workflow: Workflow, others: Iterable[Workflow], positions: dict[str, Position]) -> list[Fault]:
    """Waits for an event that is named by the data interval and emitted by a workflow of another schedule: their
    intervals begin at different times, so the names hardly ever meet."""
    return [
        Fault(
            "event",
            f"'{task.event_name}' is named by ds, and '{other.name}' emits it on another schedule",
            loc,
            task.task_id,
            f"its schedule is {other.schedule!r}, this one's is {workflow.schedule!r}",
        ).at(positions.get(task.task_id))
        for other in others
        if workflow.schedule and other.schedule and other.schedule != workflow.schedule
        for loc, task in operators(workflow)
        if isinstance(task, WaitForEventOperator) and _DS.search(task.event_name)
        if any(_emits(said) and _DS.search(said.event_name) and _may_be(task.event_name, said.event_name)
               for said in _tasks(other))
    ]  # fmt: skip


def _tasks(workflow: Workflow) -> Iterator[Any]:
    return (task for _, task in operators(workflow))


def _emits(task: BaseOperator) -> bool:
    return isinstance(task, EmitEventOperator)


def _may_be(one: str, other: str) -> bool:
    """Whether two names with holes in them can be the same."""
    return bool(_pattern(one).fullmatch(_HOLE.sub("x", other)) or _pattern(other).fullmatch(_HOLE.sub("x", one)))


def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(".*".join(re.escape(part) for part in _HOLE.split(name)), re.DOTALL)
