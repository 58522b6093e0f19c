"""From a checked Highway workflow to a plan."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from highway_dsl import (
    ActivityOperator,
    BaseOperator,
    ForEachOperator,
    TerminateOperator,
    WaitForEventOperator,
    WhileOperator,
    Workflow,
)
from highway_dsl.faults import Fault, Position
from highway_dsl.graph import Scope, scopes, walk
from interpreter.highway.enclosure import Enclosure
from interpreter.highway.operators import Operators
from interpreter.highway.secrets import secret_names
from interpreter.highway.weaving import Weaver, writes_of
from interpreter.plan import Branch, Each, Fork, Graph, Node, Plan, Span

ROOT = "main"


class Compiler:
    """One compilation; `faults` are what only shows while the plan is made."""

    def __init__(self, workflow: Workflow, positions: dict[str, Position], limit: int) -> None:
        self.faults: list[Fault] = []
        self.start_task = workflow.start_task
        self.operators = Operators(workflow.default_retry_policy, _spans(positions), limit)
        self._workflow = workflow
        self._positions = positions
        self._enclosures = {scope.loop: Enclosure(scope) for scope in scopes(workflow.tasks)}
        self._tasks: dict[str, tuple[BaseOperator, Enclosure]] = {}
        for enclosure in self._enclosures.values():
            self._tasks |= {task_id: (task, enclosure) for task_id, task in enclosure.scope.tasks.items()}
        self._graphs: dict[str, Graph] = {}

    def plan(self) -> Plan:
        root = self._enclosures[None]
        self._graphs[ROOT] = Weaver(self, root, _own(root)).graph("local")
        own = self._workflow
        ways: dict[str, Any] = {
            "fail_fast": own.fail_fast,
            "fails_when": "unhandled" if own.accept_handled else "any",
        }
        return Plan(name=own.name, language="highway", graphs=self._graphs, root=ROOT, meta=self._meta(), **ways)

    # ---------------------------------------------------------------- for the weavers

    def node(self, task: BaseOperator, id: str) -> Node:
        """The node of an operator without members; a loop brings its body along, an activity on a queue its call."""
        node = self.operators.node(task, id)
        if isinstance(task, ActivityOperator) and task.queue is not None:
            return self._on_queue(task, node)
        if isinstance(task, ForEachOperator | WhileOperator):
            self._body(task)
            if isinstance(node, Each) and self.terminates(inner.task_id for inner in task.loop_body):
                node = node.model_copy(update={"spawn": "never"})
        return node

    def inner(self, name: str, around: Enclosure, ids: Iterable[str], whole: str | None = None) -> str:
        """A graph of some tasks of a scope; its name."""
        if name not in self._graphs:
            self._graphs[name] = Weaver(self, around, ids, whole).graph("through")
        return name

    def operator(self, task_id: str) -> BaseOperator:
        return self._tasks[task_id][0]

    def enclosure_of(self, task_id: str) -> Enclosure:
        return self._tasks[task_id][1]

    def terminates(self, ids: Iterable[str]) -> bool:
        """Whether one of these tasks, or one in their bodies, may end the run."""
        return any(isinstance(task, TerminateOperator) for task, _ in walk(self.operator(name) for name in ids))

    def fault(self, task_id: str, message: str, hint: str | None = None) -> None:
        self.faults.append(Fault("plan", message, ("tasks", task_id), task_id, hint, self._positions.get(task_id)))

    # ---------------------------------------------------------------- inside

    def _body(self, task: BaseOperator) -> None:
        if task.task_id not in self._graphs:
            # A loop may be without a body, and then has no scope either.
            around = self._enclosures.get(task.task_id) or Enclosure(Scope(task.task_id))
            self._graphs[task.task_id] = Weaver(self, around, _own(around)).graph(writes_of(task))

    def _on_queue(self, task: ActivityOperator, call: Node) -> Fork:
        """A fork of one branch, the call, that is always a task of its own. The fork binds the task's output; a
        result key is written through it."""
        body = f"{task.task_id}#0"
        inner: Any = call.model_copy(update={"id": task.task_id, "trigger": "all_success", "title": None})
        self._graphs[body] = Graph(nodes=(inner,), writes=call.bind[1:] or "local", result=call.bind[:1])
        return Fork(
            id=call.id,
            branches=(Branch(name=task.task_id, body=body),),
            spawn="always",
            queue=task.queue,
            bind=call.bind[:1],
            unpack=True,
            trigger=call.trigger,
            title=call.title,
            span=call.span,
        )

    def _meta(self) -> dict[str, Any]:
        workflow = self._workflow
        events = [name for name, (task, _) in self._tasks.items() if isinstance(task, WaitForEventOperator)]
        found = {
            "version": workflow.version,
            "description": workflow.description,
            "variables": workflow.variables,
            "events": sorted(events),
            "secrets": sorted(secret_names(task for task, _ in self._tasks.values())),
            "tags": workflow.tags,
            "deadline": workflow.deadline_seconds,
            "lenient": workflow.lenient_templates,
        }
        return {name: value for name, value in found.items() if value}


def _own(around: Enclosure) -> list[str]:
    """The tasks of a scope that have a place of their own: handlers and what belongs to them stand elsewhere."""
    handlers = around.scope.handlers
    theirs = {member for handler in handlers for member in around.members.get(handler, ())}
    return [task_id for task_id in around.scope.tasks if task_id not in handlers and task_id not in theirs]


def _spans(positions: dict[str, Position]) -> dict[str, Span]:
    return {name: Span(line=at.line, column=at.column, file=at.file) for name, at in positions.items()}
