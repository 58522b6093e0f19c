"""Walk a plan without a database: given what each task comes to, say what would run, what not, and why.

The same reducer as in production; only the outcomes are made up.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from interpreter.expressions import Templates
from interpreter.plan import Plan
from interpreter.walker import Program, Walk, apply, walk_of_unit, why
from interpreter.walker.commands import (
    Cancel,
    CancelTimer,
    Command,
    EmitEvent,
    Evaluate,
    Note,
    OpenFork,
    RunCall,
    SetTimer,
    SettleRun,
    Spawn,
    Unit,
    WaitForEvent,
)
from interpreter.walker.records import Fired, Opened, Record, Settled, Started
from interpreter.walker.scope import Evaluator

FAIL: Final = object()
Outcomes = dict[str, Any]
Trace = Callable[[str, str], None]


@dataclass(slots=True)
class Step:
    """One node that became final: its full name, its state, and why it is in it."""

    path: str
    state: str
    reason: str = ""


@dataclass(slots=True)
class Report:
    """What a simulated run came to, its nodes in the order they ended."""

    settled: SettleRun
    steps: list[Step] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    def paths(self, *states: str) -> list[str]:
        """The nodes that ended in one of these states."""
        return [step.path for step in self.steps if step.state in states]

    @property
    def ran(self) -> list[str]:
        return self.paths("succeeded", "failed", "exited")

    @property
    def skipped(self) -> list[str]:
        return self.paths("skipped", "upstream_failed", "expired")

    def __str__(self) -> str:
        lines = [f"{step.state:<16} {step.path}  ({step.reason})" for step in self.steps]
        error = self.settled.error or {}
        tail = f": {error.get('message', error.get('type', ''))}" if error else ""
        return "\n".join([*lines, f"the run {self.settled.outcome}{tail}"])


def read_outcomes(texts: Iterable[str]) -> Outcomes:
    """`task=fail` makes a task fail; `task=JSON` (or plain text) is what it returns."""
    outcomes: Outcomes = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"{text!r} is not of the form task=fail or task=value")
        outcomes[name.strip()] = FAIL if value.strip() == "fail" else _json_or_text(value.strip())
    return outcomes


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def simulate(
    plan: Plan,
    outcomes: Outcomes | None = None,
    *,
    inputs: dict[str, Any] | None = None,
    globals: dict[str, Any] | None = None,
    evaluator: Evaluator | None = None,
) -> Report:
    """Walk a plan to its end. An outcome is looked up by full name, then by node id; else a task returns
    null. Events come at once and timers are due at once, except timeouts."""
    return _Simulation(plan, {} if outcomes is None else outcomes, evaluator or Templates()).run(
        inputs or {}, globals or {}
    )


class _Simulation:
    def __init__(self, plan: Plan, outcomes: Outcomes, evaluator: Evaluator) -> None:
        self.program = Program(plan)
        self.outcomes = outcomes
        self.evaluator = evaluator
        self.globals: dict[str, Any] = {}
        self.steps: list[Step] = []
        self.notes: list[Note] = []

    def run(self, inputs: dict[str, Any], globals: dict[str, Any]) -> Report:
        self.globals = globals
        walk = Walk(self.program, self.evaluator)
        walk.trace = self._tracer(walk)
        settled = self._drive(walk, Started(inputs, globals, now=0.0))
        return Report(settled, self.steps, self.notes)

    def _tracer(self, walk: Walk) -> Trace:
        def trace(path: str, state: str) -> None:
            self.steps.append(Step(path, state, why(walk, path).reason))

        return trace

    def _drive(self, walk: Walk, first: Record) -> SettleRun:
        queue: deque[Record] = deque([first])
        while queue:
            for command in apply(walk, queue.popleft()):
                queue.extend(self._answers(walk, command))
        assert walk.settled is not None
        return walk.settled

    def _answers(self, walk: Walk, command: Command) -> list[Record]:
        match command:
            case RunCall(path=path, node=node):
                return [self._outcome(path, node)]
            case WaitForEvent(path=path) | EmitEvent(path=path):
                return [self._outcome(path, path.rpartition("/")[2])]
            case Evaluate(path=path, expr=expr):
                return [Settled(path, value=self.evaluator.value(expr, walk.scope(path)))]
            case SetTimer(path=path, timer=timer) if timer != "timeout":
                return [Fired(path, timer)]
            case OpenFork(path=path):
                return [Opened(path)]
            case Spawn(units=units):
                return [self._unit(unit) for unit in units]
            case Cancel(path=path):
                return [Settled(path, "cancelled")]
            case Note():
                self.notes.append(command)
            case SetTimer() | CancelTimer() | SettleRun():
                pass
        return []

    def _outcome(self, path: str, node: str) -> Settled:
        value = self.outcomes.get(path, self.outcomes.get(node))
        if value is FAIL:
            error = {"type": "Simulated", "message": f"{node} fails", "mro": ["Simulated", "Exception"]}
            return Settled(path, "failed", error=error)
        return Settled(path, value=value)

    def _unit(self, unit: Unit) -> Settled:
        walk = walk_of_unit(self.program, self.evaluator, unit)
        own = f"{unit.frame}/{unit.node}" if unit.frame else unit.node
        trace = self._tracer(walk)
        walk.trace = lambda path, state: None if path == own else trace(path, state)
        end = self._drive(walk, Started(globals=self.globals, now=0.0))
        return Settled(unit.path, end.outcome, end.value, end.error, end.writes)
