"""A plan as a workflow of the runtime: what a worker registers, claims and runs like any other."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from durable import DurableContext, Workflow
from durable.workflow import Params
from interpreter.driver import units
from interpreter.driver.drive import Drive
from interpreter.driver.failure import of_run
from interpreter.driver.functions_protocol import Functions
from interpreter.driver.saving import Resumed
from interpreter.plan import Plan
from interpreter.walker import Evaluator, Program, Walk, require_sound, walk_of_unit
from interpreter.walker.commands import Unit
from interpreter.walker.records import Started


def plan_workflow(
    plan: Plan,
    functions: Functions,
    evaluator: Evaluator,
    *,
    name: str | None = None,
    spawn_over: int = 32,
    **options: Any,
) -> Workflow:
    """The workflow that walks a plan. Its input is the run's `inputs`, its result the plan's.

    `options` are those of a workflow in code: queue, caps, deadline, cleanup.
    """
    require_sound(plan)
    own = name or plan.name
    run = Runner(plan, functions, evaluator, own, spawn_over).run
    return Workflow(own, run, Params.of(run, own), **options)


class Runner:
    """What all runs of one plan share in this process."""

    def __init__(self, plan: Plan, functions: Functions, evaluator: Evaluator, name: str, spawn_over: int):
        self._program = Program(plan)
        self._functions = functions
        self._evaluator = evaluator
        self._name = name
        self._spawn_over = spawn_over
        self._variables = plan.meta.get("variables") or {}
        self._calls: dict[Any, Any] = {}

    async def run(self, ctx: DurableContext, /, **given: Any) -> Any:
        """The body of the workflow."""
        drive, first = self.begin(ctx, given)
        end = await drive.run(first)
        if drive.walk.unit is not None:
            return units.answer(end)
        if end.outcome == "cancelled":
            ctx.cancel((end.error or {}).get("message") or "the run was stopped")
        if end.outcome == "failed":
            raise of_run(end)
        return end.value

    def begin(self, ctx: DurableContext, given: dict[str, Any]) -> tuple[Drive, Any]:
        """The drive of a task that was started with this, and what moves it first."""
        unit = units.unit_in(given)
        inputs = given if unit is None else given[units.INPUTS]
        walk, first = self._begin(ctx, unit, inputs)
        drive = Drive(ctx, walk, self._functions, self._name, self._calls)
        drive.inputs = inputs
        return drive, first

    def _begin(self, ctx: DurableContext, unit: Unit | None, inputs: dict[str, Any]) -> tuple[Walk, Any]:
        """Where the walk stands, and what moves it first: its start, or what a snapshot left open."""
        if ctx.snapshot is not None:
            saved = Resumed(self._program, self._evaluator, ctx.snapshot)
            return saved.walk, saved
        return self._walk(unit), Started({}, self._globals(ctx, inputs), spawn_over=self._spawn_over)

    def _walk(self, unit: Unit | None) -> Walk:
        if unit is None:
            return Walk(self._program, self._evaluator)
        return walk_of_unit(self._program, self._evaluator, unit)

    def _globals(self, ctx: DurableContext, inputs: dict[str, Any]) -> dict[str, Any]:
        """What is visible everywhere. All of it follows from the run itself, so a replay makes the same."""
        run = {
            "id": ctx.run_id,
            "workflow": self._name,
            "status": "running",
            "started_at": _created(ctx.run_id),
        }
        return {"inputs": inputs, "run": run, "variables": self._variables}


def _created(run_id: str) -> str:
    """When a run was created, to the millisecond: the time in its id."""
    seconds, rest = divmod(int(run_id[:8] + run_id[9:13], 16), 1000)
    return f"{_second(seconds)}.{rest:03}+00:00"


@lru_cache(maxsize=16)
def _second(seconds: int) -> str:
    # Runs come in crowds: most of a second's are told the same, and a date takes longer to spell than a node to walk.
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
