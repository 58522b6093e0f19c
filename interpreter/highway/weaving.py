"""The tasks of one scope, or of one operator in it, as one graph of a plan.

An operator with members is a start and an end around them in the same graph; a parallel whose branches are closed
is a fork of frames instead, and an operator with a timeout or retries of its own a block. Handlers of callbacks
are clones beside each owner. Nodes stand in an order that follows from the graph alone, so that a workflow
compiles to the same plan whatever order its document lists tasks in.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from highway_dsl import (
    BaseOperator,
    ConditionOperator,
    ForEachOperator,
    ParallelOperator,
    SwitchOperator,
    WaitOperator,
    WhileOperator,
)
from highway_dsl.graph import callbacks_of
from interpreter.highway.enclosure import Enclosure
from interpreter.highway.names import end_of, output_name
from interpreter.highway.operators import Spawn, default_label, spawn_of
from interpreter.plan import AnyNode, Block, Branch, Edge, Fork, Graph, Node, Pass, Writes

if TYPE_CHECKING:
    from interpreter.highway.compiler import Compiler

Shape = Literal["plain", "flat", "fork", "block"]


class Clone(NamedTuple):
    """A handler beside the task that calls it back, however many callbacks lie between."""

    node: str
    owner: str


class Weaver:
    """Builds one graph. `whole` is the operator the graph is the inside of, if it is one's."""

    def __init__(self, compiler: Compiler, enclosure: Enclosure, ids: Iterable[str], whole: str | None = None) -> None:
        self._compiler = compiler
        self._around = enclosure
        self._ids = set(ids)
        self._whole = whole
        self._shapes: dict[str, Shape] = {}
        self._nodes: dict[str, Node] = {}
        self._edges: list[Edge] = []
        self._clones: dict[str, list[Clone]] = {}

    def graph(self, writes: Writes) -> Graph:
        self._shape()
        own = [task_id for task_id in sorted(self._ids) if task_id in self._shapes]
        for task_id in own:
            self._add(task_id)
        for task_id in own:
            # The handlers of the whole stand outside, beside it: they are called back after its last attempt.
            if task_id != self._whole:
                self._call_back(self._final(task_id), task_id, self._around.task(task_id), task_id)
        for task_id in own:
            self._connect(task_id)
        return self._ordered(writes)

    # ---------------------------------------------------------------- shapes

    def _shape(self) -> None:
        """Decide the outermost operators first: what one of them takes in is no longer ours."""
        taken: set[str] = set()
        for task_id in sorted(self._ids, key=lambda name: (-len(self._members(name)), name)):
            if task_id in taken:
                continue
            shape = self._shapes[task_id] = self._shape_of(task_id)
            if shape in ("fork", "block"):
                taken.update(self._members(task_id))
        for task_id in taken:
            self._shapes.pop(task_id, None)

    def _members(self, task_id: str) -> list[str]:
        return [name for name in self._around.members.get(task_id, ()) if name in self._ids]

    def _shape_of(self, task_id: str) -> Shape:
        task, members = self._around.task(task_id), self._members(task_id)
        if isinstance(task, WaitOperator) and task.timeout_policy is not None and task_id != self._whole:
            return "block"
        if not members and not isinstance(task, ParallelOperator):
            return "plain"
        if task_id == self._whole:
            return "flat"
        if isinstance(task, ParallelOperator) and self._branches_are_closed(task):
            return "fork"
        limits = self._compiler.operators.limits(task)
        if not limits["retry"] and limits["timeout"] is None:
            return "flat"
        if not self._around.is_closed(task_id, set(members)):
            what = "timeout" if limits["timeout"] is not None else "retries"
            self._compiler.fault(
                task_id,
                f"its {what} cannot be kept: tasks outside depend on tasks inside",
                f"let them depend on '{task_id}' itself",
            )
        return "block"

    def _branches_are_closed(self, task: ParallelOperator) -> bool:
        branches = [set(names) for _, names in self._branches(task)]
        apart = sum(map(len, branches)) == len(set().union(*branches)) if branches else True
        return apart and all(self._around.is_closed(task.task_id, names) for names in branches)

    def _branches(self, task: ParallelOperator) -> list[tuple[str, list[str]]]:
        members = set(self._members(task.task_id))
        return [(name, [one for one in task.branches[name] if one in members]) for name in sorted(task.branches)]

    # ---------------------------------------------------------------- nodes

    def _add(self, task_id: str) -> None:
        task, shape = self._around.task(task_id), self._shapes[task_id]
        if shape == "fork":
            self._put(self._fork(task, task_id))
        elif shape == "block":
            self._put(self._block(task, task_id, self._around))
        elif shape == "flat":
            self._put_flat(task, task_id)
        else:
            self._put(self._compiler.node(task, task_id))

    def _put(self, node: Node) -> None:
        self._nodes[node.id] = node

    def _put_flat(self, task: BaseOperator, task_id: str) -> None:
        common = self._compiler.operators.common(task, task_id)
        parallel = isinstance(task, ParallelOperator)
        self._put(Pass(id=task_id, **common) if parallel else self._compiler.node(task, task_id))
        self._put(Pass(id=end_of(task_id), mirrors=task_id, span=common["span"]))

    def _fork(self, task: BaseOperator, node_id: str) -> Fork:
        assert isinstance(task, ParallelOperator)
        branches = []
        for number, (name, ids) in enumerate(self._branches(task)):
            body = self._compiler.inner(f"{task.task_id}#{number}", self._around, ids)
            branches.append(Branch(name=name, body=body))
        spawn: Spawn = "never" if self._compiler.terminates(self._members(task.task_id)) else spawn_of(task)
        return Fork(id=node_id, branches=tuple(branches), spawn=spawn, **self._owner(task))

    def _block(self, task: BaseOperator, node_id: str, around: Enclosure) -> Block:
        ids = [task.task_id, *around.members.get(task.task_id, ())]
        body = self._compiler.inner(f"{task.task_id}~", around, ids, task.task_id)
        return Block(id=node_id, body=body, **self._owner(task))

    def _owner(self, task: BaseOperator) -> dict[str, Any]:
        own = output_name(task.task_id)
        bind = (own, task.result_key) if task.result_key else (own,)
        operators = self._compiler.operators
        return {"bind": bind, **operators.limits(task), **operators.common(task, task.task_id)}

    # ---------------------------------------------------------------- callbacks

    def _call_back(self, source: str, label: str, task: BaseOperator, owner: str) -> None:
        """Clone the handlers of a task beside it, and theirs beside them."""
        for handler in callbacks_of(task):
            clone, operator = f"{handler}@{label}", self._compiler.operator(handler)
            self._put(self._handler(operator, clone))
            self._clones.setdefault(handler, []).append(Clone(clone, owner))
            if task.on_success_task_id == handler:
                self._edges.append(Edge(source=source, target=clone, kind="on_success"))
            if task.on_failure_task_id == handler:
                self._edges.append(Edge(source=source, target=clone, kind="on_failure"))
            self._call_back(clone, clone, operator, owner)

    def _handler(self, task: BaseOperator, clone: str) -> Node:
        around = self._compiler.enclosure_of(task.task_id)
        if around.members.get(task.task_id) or isinstance(task, ParallelOperator):
            return self._block(task, clone, around)
        return self._compiler.node(task, clone)

    # ---------------------------------------------------------------- edges

    def _connect(self, task_id: str) -> None:
        for source, unless in self._waits(task_id):
            self._edges.append(Edge(source=source, target=task_id, unless=unless))
        self._gate(task_id)
        if self._shapes[task_id] == "flat":
            end = end_of(task_id)
            inside = [self._final(member) for member in self._members(task_id) if member in self._shapes]
            self._edges += [Edge(source=source, target=end) for source in [task_id, *inside]]

    def _final(self, task_id: str) -> str:
        return end_of(task_id) if self._shapes[task_id] == "flat" else task_id

    def _waits(self, task_id: str) -> Iterator[tuple[str, tuple[str, ...]]]:
        """The nodes a task follows, each with the handlers that take its place if they ran."""
        seen: set[tuple[str, tuple[str, ...]]] = set()
        for source, unless in self._named(task_id, self._around.scope.named_by(task_id), (), {task_id}):
            if source and (source, unless) not in seen:
                seen.add((source, unless))
                yield source, unless
        for operator in self._around.around[task_id]:
            if self._starts(operator, task_id):
                yield operator, ()

    def _named(
        self, task_id: str, names: list[str], unless: tuple[str, ...], met: set[str]
    ) -> Iterator[tuple[str, tuple[str, ...]]]:
        for name in names:
            if name not in self._around.scope.handlers:
                if name != task_id and name in self._shapes:
                    yield self._after(task_id, name), unless
            elif name not in met:
                clones = [clone.node for clone in self._clones.get(name, ()) if self._precedes(clone, task_id)]
                yield from ((clone, unless) for clone in clones)
                own = self._around.scope.named_by(name)
                yield from self._named(task_id, own, (*unless, *clones), {*met, name})

    def _precedes(self, clone: Clone, task_id: str) -> bool:
        # What comes before a handler's owner cannot also follow the handler.
        return not self._around.comes_after(clone.owner, task_id)

    def _after(self, task_id: str, name: str) -> str:
        """Whom a dependency on a task means: its end, or nobody where membership says more."""
        if self._shapes[name] == "flat" and task_id in self._around.members.get(name, ()):
            return ""
        return self._final(name)

    def _starts(self, operator: str, task_id: str) -> bool:
        """Whether a member follows the start of its parallel: one that follows another member does not."""
        if self._shapes.get(operator) != "flat" or not isinstance(self._around.task(operator), ParallelOperator):
            return False
        inside = set(self._around.members[operator])
        return not inside.intersection(self._around.scope.dependencies(task_id))

    def _gate(self, task_id: str) -> None:
        for router in sorted(self._around.choosers[task_id]):
            if router in self._shapes:
                for label in labels_of(self._around.task(router), task_id):
                    self._edges.append(Edge(source=router, target=task_id, kind="gate", label=label))

    # ---------------------------------------------------------------- order

    def _ordered(self, writes: Writes) -> Graph:
        order = self._order()
        place = {node: index for index, node in enumerate(order)}
        edges = sorted(
            self._edges, key=lambda e: (place[e.source], place[str(e.target)], e.kind, e.label or "", e.unless)
        )
        # Each node is one of the union; the dictionary is typed by their base.
        nodes: tuple[AnyNode, ...] = tuple(self._nodes[node] for node in order)  # type: ignore[misc]
        own = [name for node in reversed(nodes) if "@" not in node.id for name in node.bind[:1]]
        return Graph(nodes=nodes, edges=tuple(edges), writes=writes, result=tuple(own))

    def _order(self) -> list[str]:
        """Topological; among those that could come next the start task, then by id."""
        waits: dict[str, set[str]] = {node: set() for node in self._nodes}
        for edge in self._edges:
            waits[str(edge.target)].update((edge.source, *edge.unless))
        after: dict[str, list[str]] = {node: [] for node in self._nodes}
        for node, sources in waits.items():
            for source in sources:
                after[source].append(node)
        ready = [self._rank(node) for node, sources in waits.items() if not sources]
        heapq.heapify(ready)
        order: list[str] = []
        while ready:
            node = heapq.heappop(ready)[1]
            order.append(node)
            for follower in after[node]:
                waits[follower].discard(node)
                if not waits[follower]:
                    heapq.heappush(ready, self._rank(follower))
        return order if len(order) == len(self._nodes) else sorted(self._nodes)

    def _rank(self, node: str) -> tuple[bool, str]:
        return node != self._compiler.start_task, node


def labels_of(task: BaseOperator, target: str) -> list[str]:
    """The choices of a router that lead to a task."""
    if isinstance(task, ConditionOperator):
        ways = {"true": task.if_true, "false": task.if_false}
        return [label for label, name in ways.items() if name == target]
    if isinstance(task, SwitchOperator):
        labels = [value for value, name in sorted(task.cases.items()) if name == target]
        return [*labels, default_label(task)] if task.default == target else labels
    return []


def writes_of(task: BaseOperator) -> Writes:
    """Items of a foreach keep their names; a while works on those around it (section 15.5 needs it)."""
    assert isinstance(task, ForEachOperator | WhileOperator)
    return "local" if isinstance(task, ForEachOperator) else "through"
