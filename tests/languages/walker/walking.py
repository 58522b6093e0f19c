"""Plans by hand, and a driver that answers commands in any order and may crash between any two records."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from copy import copy
from itertools import pairwise
from typing import Any

from interpreter.expressions import Templates
from interpreter.plan import Call, Case, Choose, Edge, Graph, Node, Pass, Plan
from interpreter.simulate import FAIL
from interpreter.walker import Program, Walk, apply, restore, snapshot, walk_of_unit
from interpreter.walker.commands import SettleRun
from interpreter.walker.records import Fired, Opened, Record, Settled, Started, read_record


def call(id: str, **kw: Any) -> Call:
    return Call(id=id, target=kw.pop("target", id), **kw)


def calls(*ids: str) -> list[Node]:
    return [call(id) for id in ids]


def condition(id: str, when: Any, **kw: Any) -> Choose:
    return Choose(id=id, cases=(Case(label="true", when=when),), default="false", **kw)


def switch(id: str, on: Any, cases: list[str], default: str | None = None) -> Choose:
    return Choose(id=id, on=on, cases=tuple(Case(label=c, equals=c) for c in cases), default=default)


def end(start: str) -> Pass:
    """The end of the two-phase operator that begins at `start`."""
    return Pass(id=f"{start}.end", mirrors=start)


def after(source: str, target: str, *unless: str) -> Edge:
    return Edge(source=source, target=target, unless=unless)


def gate(source: str, label: str, target: str) -> Edge:
    return Edge(source=source, target=target, kind="gate", label=label)


def arc(source: str, target: str | None = None, when: Any = None, **kw: Any) -> Edge:
    return Edge(source=source, target=target, kind="arc", when=when, **kw)


def on(event: str, source: str, target: str) -> Edge:
    return Edge(source=source, target=target, kind=f"on_{event}")


def chain(*ids: str) -> list[Edge]:
    return [after(a, b) for a, b in pairwise(ids)]


def graph(nodes: list[Node], edges: list[Edge] | None = None, **kw: Any) -> Graph:
    return Graph(nodes=tuple(nodes), edges=tuple(edges or ()), **kw)


def plan(nodes: list[Node], edges: list[Edge] | None = None, bodies: dict[str, Graph] | None = None, **kw: Any) -> Plan:
    root = {key: kw.pop(key) for key in ("entries", "result") if key in kw}
    return Plan(name="test", graphs={"main": graph(nodes, edges, **root), **(bodies or {})}, **kw)


class Run:
    """Drives a walk. Records wait in a bag; `pick` says which comes next. With `crash` the walk is lost
    before every record and comes back from its snapshot, or from its records alone."""

    def __init__(
        self,
        plan: Plan,
        outcomes: dict[str, Any] | None = None,
        *,
        inputs: dict[str, Any] | None = None,
        evaluator: Any = None,
        spawn: tuple[str, int] = ("in_place", 1),
        spawn_over: int = 32,
        rng: random.Random | None = None,
        crash: Callable[[], str] = lambda: "no",
    ) -> None:
        self.program = Program(plan)
        self.evaluator = evaluator or Templates()
        self.outcomes = {} if outcomes is None else outcomes
        self.spawn = spawn
        self.started = Started(inputs or {}, now=0.0, spawn_over=spawn_over)
        self.rng = rng
        self.crash = crash
        self.states: dict[str, str] = {}
        self.records: list[Record] = []
        self.commands: list[Any] = []
        self.bag: list[Record] = []
        self.walk = self._fresh()
        self._apply(self.started)

    def _fresh(self) -> Walk:
        return Walk(self.program, self.evaluator, self._trace)

    def _trace(self, path: str, state: str) -> None:
        assert self.states.get(path, state) == state, f"{path} was {self.states[path]}, now {state}"
        self.states[path] = state

    def _apply(self, record: Record) -> list[Any]:
        self.records.append(record)
        commands = apply(self.walk, record)
        self.commands.extend(commands)
        for command in commands:
            answers = self._answers(command)  # May replace the bag: a cancel takes records out of it.
            self.bag.extend(answers)
        return commands

    def _answers(self, command: Any) -> list[Record]:
        tag = command.tag
        if tag in ("run_call", "await_event", "emit_event"):
            return [self._outcome(command.path)]
        if tag == "evaluate":
            scope = self.walk.scope(command.path)
            return [Settled(command.path, value=self.evaluator.value(command.expr, scope))]
        if tag == "set_timer" and command.timer != "timeout":
            return [Fired(command.path, command.timer)]
        if tag == "open_fork":
            return [Opened(command.path, *self.spawn)]
        if tag == "spawn":
            return [self._unit(unit) for unit in command.units]
        if tag == "cancel":
            self.bag = [record for record in self.bag if getattr(record, "path", "") != command.path]
            return [Settled(command.path, "cancelled")]
        if tag == "cancel_timer":
            self.bag = [record for record in self.bag if not _is_timer(record, command)]
        return []

    def _outcome(self, path: str) -> Record:
        value = self.outcomes.get(path, self.outcomes.get(path.rpartition("/")[2]))
        if callable(value):
            value = value(path)
        if value is FAIL or isinstance(value, Exception):
            name = type(value).__name__ if isinstance(value, Exception) else "Boom"
            return Settled(path, "failed", error={"type": name, "message": str(path), "mro": [name, "Exception"]})
        return Settled(path, value=value)

    def _unit(self, unit: Any) -> Record:
        own = f"{unit.frame}/{unit.node}" if unit.frame else unit.node
        inner = Run.__new__(Run)
        inner.__dict__.update(self.__dict__, bag=[], records=[], started=Started(now=0.0))
        inner.commands = copy(self.commands)
        inner.commands.clear()
        unit = type(unit)(**{k: v for k, v in json.loads(json.dumps(unit.to_json())).items() if k != "tag"})
        inner._fresh = lambda: walk_of_unit(self.program, self.evaluator, unit, inner._trace)  # type: ignore
        inner._trace = lambda path, state: None if path == own else self._trace(path, state)  # type: ignore
        inner.walk = inner._fresh()
        inner._apply(inner.started)
        inner.finish()
        end = inner.settled
        return Settled(unit.path, end.outcome, end.value, end.error, end.writes)

    def feed(self, record: Record) -> list[Any]:
        """Apply a record given by hand instead of the one the outcomes would give."""
        self.bag = [other for other in self.bag if getattr(other, "path", None) != getattr(record, "path", "")]
        return self._apply(record)

    def step(self) -> list[Any]:
        self._maybe_crash()
        at = self.rng.randrange(len(self.bag)) if self.rng is not None else 0
        return self._apply(self.bag.pop(at))

    def finish(self) -> Run:
        while self.bag:
            self.step()
        return self

    def _maybe_crash(self) -> None:
        how = self.crash()
        if how == "snapshot":
            form = json.loads(json.dumps(snapshot(self.walk)))
            self.walk = restore(self.program, self.evaluator, form, self._trace)
            assert json.loads(json.dumps(snapshot(self.walk))) == form
        elif how == "replay":
            self.walk = self._fresh()
            again: list[Any] = []
            for record in self.records:
                again.extend(apply(self.walk, read_record(json.loads(json.dumps(record.to_json())))))
            assert again == self.commands, "a replay must ask for the same things in the same order"

    @property
    def settled(self) -> SettleRun:
        assert self.walk.settled is not None, f"open: {self.walk.flight}, {self.walk.parked}"
        return self.walk.settled

    @property
    def outcome(self) -> str:
        return self.settled.outcome

    def named(self, *states: str) -> set[str]:
        return {path for path, state in self.states.items() if state in states}

    @property
    def order(self) -> list[str]:
        """Calls in the order they were asked for."""
        return [command.path for command in self.commands if command.tag == "run_call"]


def _is_timer(record: Record, command: Any) -> bool:
    return isinstance(record, Fired) and (record.path, record.timer) == (command.path, command.timer)


def run(plan: Plan, outcomes: dict[str, Any] | None = None, **kw: Any) -> Run:
    return Run(plan, outcomes, **kw).finish()
