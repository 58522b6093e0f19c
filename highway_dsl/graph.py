"""The graph that a workflow's tasks make, and the circles in it.

Tasks inside loop bodies form scopes of their own. Within a scope an operator with members (a parallel, a
condition, a switch) is two nodes: its members start after its start, and its end comes after theirs, while
whoever else depends on it waits for its end. A task that is only called back has no place of its own in
the order: what depends on it sees what it depends on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from highway_dsl.operators import (
    BaseOperator,
    ConditionOperator,
    ForEachOperator,
    JoinOperator,
    ParallelOperator,
    SwitchOperator,
    WhileOperator,
)

Node: TypeAlias = tuple[str, bool]  # a task's id, and whether this is its end
Chain: TypeAlias = tuple[str, ...]  # the ids of the loops around a task, outermost first


@dataclass
class Scope:
    """The tasks that are ordered among each other: those of the workflow, or of one loop's body."""

    loop: str | None
    tasks: dict[str, BaseOperator] = field(default_factory=dict)
    handlers: frozenset[str] = frozenset()

    @cached_property
    def declared(self) -> dict[str, int]:
        """The tasks' places in the order they are declared."""
        return {task_id: index for index, task_id in enumerate(self.tasks)}

    @cached_property
    def dependants(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {task_id: [] for task_id in self.tasks}
        for task_id in self.tasks:
            for dependency in self.named_by(task_id):
                found[dependency].append(task_id)
        return found

    @cached_property
    def members(self) -> dict[str, list[str]]:
        """The members of each operator that has any, in order."""
        found = {task_id: self._members(task) for task_id, task in self.tasks.items()}
        return {task_id: members for task_id, members in found.items() if members}

    def named_by(self, task_id: str) -> list[str]:
        """What a task lists as its dependencies, as far as it is in this scope."""
        return [name for name in waits_of(self.tasks[task_id]) if name in self.tasks]

    def dependencies(self, task_id: str) -> list[str]:
        """What a task waits for: handlers it lists stand for what they themselves list."""
        if task_id in self.handlers:
            return []
        found: dict[str, None] = {}
        todo, seen = self.named_by(task_id)[::-1], {task_id}
        while todo:
            name = todo.pop()
            if name not in self.handlers:
                found[name] = None
            elif name not in seen:
                seen.add(name)
                todo += self.named_by(name)[::-1]
        return list(found)

    def targets(self, task: BaseOperator) -> list[str]:
        """The tasks a router may choose, as far as they are in this scope."""
        return [name for name in dict.fromkeys(targets_of(task)) if name in self.tasks]

    def _members(self, task: BaseOperator) -> list[str]:
        if isinstance(task, ParallelOperator):
            branches = (name for branch in task.branches.values() for name in branch)
            return [name for name in dict.fromkeys(branches) if name in self.tasks]
        members = dict.fromkeys(self.targets(task))
        todo = list(members)
        while todo:  # closed over tasks that list both the router and another member
            for name in self.dependants[todo.pop()]:
                if name not in members and task.task_id in self.tasks[name].dependencies:
                    members[name] = None
                    todo.append(name)
        return sorted(members, key=self.declared.__getitem__)

    def edges(self) -> Iterator[tuple[Node, Node]]:
        """What must come before what, operators split into their starts and ends."""
        inside = {task_id: set(members) for task_id, members in self.members.items()}
        for task_id, task in self.tasks.items():
            yield (task_id, False), (task_id, True)
            for member in self.members.get(task_id, ()):
                yield (task_id, False), (member, False)
                yield (member, True), (task_id, True)
            for dependency in self.dependencies(task_id):
                if task_id not in inside.get(dependency, ()):
                    yield (dependency, True), (task_id, False)
            for handler in callbacks_of(task):
                if handler in self.tasks:
                    yield (task_id, True), (handler, False)


def scopes(tasks: Mapping[str, BaseOperator]) -> list[Scope]:
    """The scopes of a workflow: its own first, then those of its loops in the order they are met."""
    found: dict[str | None, Scope] = {None: Scope(None)}
    operators: dict[str, BaseOperator] = {}
    for operator, _ in walk(tasks.values()):
        operators.setdefault(operator.task_id, operator)
    handlers = frozenset(name for operator in operators.values() for name in callbacks_of(operator))
    for task_id, chains in enclosing_loops(tasks.values()).items():
        loop = chains[0][-1] if chains[0] else None
        found.setdefault(loop, Scope(loop)).tasks[task_id] = operators[task_id]
    for scope in found.values():
        scope.handlers = handlers
    return list(found.values())


def enclosing_loops(tasks: Iterable[BaseOperator]) -> dict[str, list[Chain]]:
    """For each task id the distinct chains of loops it is found in, the longest first.

    The builder writes a body's tasks into the workflow and into every loop around them, so a task is found
    in several chains; it belongs to the innermost.
    """
    found: dict[str, set[Chain]] = {}
    for operator, chain in walk(tasks):
        found.setdefault(operator.task_id, set()).add(chain)
    return {task_id: sorted(chains, key=lambda chain: (-len(chain), chain)) for task_id, chains in found.items()}


def walk(tasks: Iterable[BaseOperator], chain: Chain = ()) -> Iterator[tuple[BaseOperator, Chain]]:
    """Every operator as often as it is written down, with the loops around it."""
    for task in tasks:
        yield task, chain
        if isinstance(task, ForEachOperator | WhileOperator):
            yield from walk(task.loop_body, (*chain, task.task_id))


def waits_of(task: BaseOperator) -> list[str]:
    """The ids a task waits for by name."""
    return [*task.dependencies, *(task.join_tasks if isinstance(task, JoinOperator) else ())]


def targets_of(task: BaseOperator) -> list[str]:
    """The ids a router may choose."""
    if isinstance(task, ConditionOperator):
        return [name for name in (task.if_true, task.if_false) if name is not None]
    if isinstance(task, SwitchOperator):
        return [*task.cases.values(), *([task.default] if task.default is not None else [])]
    return []


def callbacks_of(task: BaseOperator) -> list[str]:
    """The tasks called back by a task; a task that names itself means nothing by it."""
    named = (task.on_success_task_id, task.on_failure_task_id)
    return [name for name in dict.fromkeys(named) if name is not None and name != task.task_id]


def circles(scope: Scope) -> list[list[Node]]:
    """Circles of the scope's graph that share no node, so many that none is left without one of them."""
    before: dict[Node, list[Node]] = {}
    for source, target in scope.edges():
        before.setdefault(target, []).append(source)
        before.setdefault(source, [])
    found: list[list[Node]] = []
    while before := _knotted(before):
        met = _disjoint_circles({node: sources[0] for node, sources in before.items()})
        found += met
        gone = {node for circle in met for node in circle}
        before = {node: sources for node, sources in before.items() if node not in gone}
    return found


def _knotted(before: dict[Node, list[Node]]) -> dict[Node, list[Node]]:
    """`before` without what some order can reach; each node left has another of them before it."""
    left = {node: [source for source in sources if source in before] for node, sources in before.items()}
    waiting = {node: len(sources) for node, sources in left.items()}
    after: dict[Node, list[Node]] = {node: [] for node in left}
    for node, sources in left.items():
        for source in sources:
            after[source].append(node)
    free = [node for node, count in waiting.items() if count == 0]
    for node in free:
        del left[node]
        for target in after[node]:
            waiting[target] -= 1
            if waiting[target] == 0:
                free.append(target)
    return {node: [source for source in sources if source in left] for node, sources in left.items()}


def _disjoint_circles(came_from: dict[Node, Node]) -> list[list[Node]]:
    """Every circle of a graph in which each node has one node before it, each in forward order."""
    seen_from: dict[Node, Node] = {}
    found: list[list[Node]] = []
    for start in came_from:
        node = start
        while node not in seen_from:
            seen_from[node] = start
            node = came_from[node]
        if seen_from[node] == start:
            found.append(_around(node, came_from))
            seen_from.update(dict.fromkeys(found[-1], node))
    return found


def _around(start: Node, came_from: dict[Node, Node]) -> list[Node]:
    circle = [start]
    while came_from[circle[-1]] != start:
        circle.append(came_from[circle[-1]])
    return circle[::-1]
