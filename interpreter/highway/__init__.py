"""Highway workflows on plans.

compile_workflow    a workflow (or a document with places) as a plan; all its faults at once otherwise
check_workflow      those faults, and warnings, without a plan
HighwayTemplates    the evaluator of a compiled plan
highway_workflow    a workflow as one that a `durable.Worker` runs
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import durable
from highway_dsl import Document, Workflow
from highway_dsl.document import located
from highway_dsl.faults import Fault, Position
from highway_dsl.mending import connected, hides_names
from interpreter.driver import Functions, plan_workflow
from interpreter.errors import ProgramError
from interpreter.highway.check import check_templates, other_clocks, unheard_of
from interpreter.highway.compiler import Compiler
from interpreter.highway.constants import idle_tasks
from interpreter.highway.evaluator import HighwayTemplates
from interpreter.highway.fixed import name_doubts, name_faults
from interpreter.plan import Plan
from interpreter.walker import check_plan

__all__ = [
    "Findings",
    "HighwayError",
    "HighwayTemplates",
    "check_workflow",
    "compile_workflow",
    "highway_workflow",
]

ITERATIONS = 10_000
# Without an order among tasks that can be told apart there is no plan to speak of.
_TANGLED: Final = frozenset(("circle", "duplicate_id", "task_id"))


class HighwayError(ProgramError):
    """A workflow that cannot be deployed; `faults` are all that is wrong with it."""

    def __init__(self, name: str, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__(f"workflow '{name}' cannot be deployed:\n" + "\n".join(f"  {fault}" for fault in self.faults))


@dataclass(frozen=True, slots=True)
class Findings:
    """What a check found: the plan is there exactly if there are no faults."""

    plan: Plan | None
    faults: tuple[Fault, ...]
    warnings: tuple[Fault, ...]


def check_workflow(
    source: Workflow | Document[Workflow], *, others: Iterable[Workflow] = (), iterations: int = ITERATIONS
) -> Findings:
    """All that is wrong or doubtful. `others` are the workflows it shares events with.

    A faulty workflow is checked as far as it can be understood: its author shall see everything at once.
    """
    workflow, positions, faults = _examined(source)
    if workflow is None:
        return Findings(None, _in_order(source, faults), ())
    vague = any(hides_names(fault) for fault in faults)
    found = [*check_templates(workflow, positions, names=not vague), *name_faults(workflow)]
    forgiven = "undefined" if workflow.lenient_templates else None
    doubts = [fault for fault in found if fault.kind == forgiven]
    faults += [fault for fault in found if fault.kind != forgiven]
    plan, idle = None, list[Fault]()
    if _TANGLED.isdisjoint(fault.kind for fault in faults):
        compiler = Compiler(connected(workflow) if faults else workflow, positions, iterations)
        plan = compiler.plan()
        broken = [*compiler.faults, *_faults_of(plan)]
        faults += broken
        idle = [] if broken else idle_tasks(plan, positions)
    lint = source.lint() if isinstance(source, Document) else workflow.lint()
    known = tuple(others)
    heard = (*unheard_of(workflow, known, positions), *other_clocks(workflow, known, positions))
    doubts += name_doubts(workflow)
    warnings = _in_order(source, (*lint, *doubts, *idle, *heard))
    return Findings(None if faults else plan, _in_order(source, faults), warnings)


def compile_workflow(source: Workflow | Document[Workflow], *, iterations: int = ITERATIONS) -> Plan:
    """The plan of a workflow. `iterations` is the limit of its while loops."""
    found = check_workflow(source, iterations=iterations)
    if found.plan is None:
        raise HighwayError(_read(source)[0].name, found.faults)
    return found.plan


def highway_workflow(
    source: Workflow | Document[Workflow],
    functions: Functions,
    *,
    strict: bool | None = None,
    iterations: int = ITERATIONS,
    fail_fast: bool | None = None,
    accept_handled: bool | None = None,
    **options: Any,
) -> durable.Workflow:
    """The workflow for a worker. `options` are those of `plan_workflow`; caps and deadline, `fail_fast`,
    `accept_handled` and whether templates are `strict` are the definition's own unless they say otherwise.
    `iterations` is the limit of while loops that have none."""
    own = _read(source)[0]
    plan = compile_workflow(source, iterations=iterations).model_copy(update=_ways(fail_fast, accept_handled))
    given = {
        "deadline": plan.meta.get("deadline"),
        "deadline_action": own.deadline_action,
        "max_active_runs": own.max_active_runs,
        "max_active_excludes_waiting": own.max_active_excludes_waiting,
        **options,
    }
    return plan_workflow(plan, functions, HighwayTemplates(plan, strict=strict), **given)


def _ways(fail_fast: bool | None, accept_handled: bool | None) -> dict[str, Any]:
    """What a program says about failures, as fields of a plan."""
    fails_when = None if accept_handled is None else "unhandled" if accept_handled else "any"
    said = {"fail_fast": fail_fast, "fails_when": fails_when}
    return {name: value for name, value in said.items() if value is not None}


def _examined(source: Workflow | Document[Workflow]) -> tuple[Workflow | None, dict[str, Position], list[Fault]]:
    """What there is to check, where it stands, and what is wrong with it already."""
    if isinstance(source, Workflow):
        workflow, faults = source.examined()
        return (workflow if faults else source), {}, faults
    return source.workflow, source.source.tasks, list(source.faults)


def _in_order(source: Workflow | Document[Workflow], faults: Iterable[Fault]) -> tuple[Fault, ...]:
    """In the order of the document or program, as far as they have places in it."""
    placed = [fault if fault.position else _placed(source, fault) for fault in faults]
    return tuple(sorted(placed, key=lambda f: (f.position.line, f.position.column) if f.position else (0, 0)))


def _placed(source: Workflow | Document[Workflow], fault: Fault) -> Fault:
    # Lines of a program stand in no plan: its spans are places in the document that is deployed.
    return source.origin.placed(fault) if isinstance(source, Workflow) else located(source.source, fault)


def _read(source: Workflow | Document[Workflow]) -> tuple[Workflow, dict[str, Position]]:
    if isinstance(source, Workflow):
        return source, {}
    return source.workflow, source.source.tasks


def _faults_of(plan: Plan) -> list[Fault]:
    return [_as_highway(fault) for fault in check_plan(plan)]


def _as_highway(fault: Any) -> Fault:
    place = fault.place
    at = Position(place.line, place.column or 1, place.file) if place is not None and place.line else None
    return Fault("plan", fault.message, (), fault.node, position=at)
