"""Takes data for a workflow as far as it can be taken, with everything that is wrong on the way."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from highway_dsl.check import check
from highway_dsl.faults import Fault, Loc, faults_of
from highway_dsl.mending import mended

if TYPE_CHECKING:
    from highway_dsl.workflow import Workflow

W = TypeVar("W", bound="Workflow")


def examine(model: type[W], data: Any) -> tuple[W | None, list[Fault]]:
    """The workflow in `data`, and all its faults; with faults, only what they leave of it."""
    try:
        workflow = model.model_validate(data)
    except ValidationError as error:
        faults = [replace(fault, task_id=_owner(data, fault)) for fault in faults_of(error)]
        rest = mended(model, data, faults)
        return rest, [*faults, *(_news(check(rest), faults) if rest else ())]
    return workflow, check(workflow)


def _owner(data: Any, fault: Fault) -> str | None:
    """The id of the innermost task a fault is in."""
    owner = fault.task_id
    for part in fault.loc:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            break
        if isinstance(data, dict) and isinstance(data.get("task_id"), str):
            owner = data["task_id"]
    return owner


def _news(found: list[Fault], before: list[Fault]) -> list[Fault]:
    """What is not said already: a field that was taken out is not also missing."""
    said = [fault.loc for fault in before if len(fault.loc) > 2]
    return [fault for fault in found if not any(_around(fault.loc, loc) for loc in said)]


def _around(one: Loc, other: Loc) -> bool:
    shared = min(len(one), len(other))
    return shared > 2 and one[:shared] == other[:shared]
