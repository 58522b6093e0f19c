"""Faults that are kept instead of raised, so that whoever runs a program to get its workflows sees all of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from highway_dsl.faults import Fault, faults_of
from highway_dsl.mending import filled
from highway_dsl.operators import BaseOperator

if TYPE_CHECKING:
    from highway_dsl.workflow import Workflow

_faulty: ContextVar[list[Workflow] | None] = ContextVar("faulty", default=None)


@contextmanager
def faults_kept() -> Iterator[list[Workflow]]:
    """While it lasts, a builder leaves its faults with its workflow and goes on; these are the faulty ones."""
    found: list[Workflow] = []
    token = _faulty.set(found)
    try:
        yield found
    finally:
        _faulty.reset(token)


def keeping() -> bool:
    """Whether faults are kept here."""
    return _faulty.get() is not None


def settled(workflow: Workflow) -> Workflow:
    """The workflow; its faults are raised, or kept."""
    faulty = _faulty.get()
    if faulty is None:
        return workflow.check()
    if workflow.faults() and not any(workflow is known for known in faulty):
        faulty.append(workflow)
    return workflow


def made(kind: type[BaseOperator], task_id: Any, fields: dict[str, Any]) -> tuple[BaseOperator, list[Fault]]:
    """The operator of these fields; where faults are kept, what they leave of it, and the faults."""
    try:
        return kind(task_id=task_id, **fields), []
    except ValidationError as error:
        if not keeping():
            raise
        faults = [_of_task(str(task_id), fault) for fault in faults_of(error)]
        wrong = {fault.loc[2] for fault in faults if len(fault.loc) > 2}
        return filled(kind, str(task_id), {name: part for name, part in fields.items() if name not in wrong}), faults


def _of_task(task_id: str, fault: Fault) -> Fault:
    return Fault(fault.kind, fault.message, ("tasks", task_id, *fault.loc), task_id, fault.hint, value=fault.value)
