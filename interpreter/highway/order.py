"""What can only run after what: a name that only later tasks bind is not there yet when a template asks for it."""

from __future__ import annotations

from typing import Final

from highway_dsl import BaseOperator, JoinMode, JoinOperator, TriggerRule, WhileOperator, Workflow
from highway_dsl.graph import Chain, Node, Scope, enclosing_loops, scopes, walk

# Tasks with these do not wait for everything that they follow.
_EARLY: Final = frozenset((TriggerRule.ONE_SUCCESS, TriggerRule.ONE_DONE))
_EARLY_JOINS: Final = frozenset((JoinMode.ANY_OF, JoinMode.ONE_SUCCESS))


class Order:
    """The order among the tasks of one workflow, as far as it is the same in every run."""

    def __init__(self, workflow: Workflow) -> None:
        self._chains = {name: chains[0] for name, chains in enclosing_loops(workflow.tasks.values()).items()}
        self._whiles = {task.task_id for task, _ in walk(workflow.tasks.values()) if isinstance(task, WhileOperator)}
        self._scopes = {scope.loop: ScopeOrder(scope) for scope in scopes(workflow.tasks)}

    def is_later(self, task_id: str, reader: str) -> bool:
        """Whether a task has certainly not run when `reader` begins."""
        own, other = (*self._chains[reader], reader), (*self._chains[task_id], task_id)
        level = _shared(own, other)
        # What an iteration of a while binds is there in the next one.
        if self._whiles.intersection((*own[:level], *self._chains[reader])):
            return False
        if level == len(own) or level == len(other):
            return own == other
        return self._scopes[own[level - 1] if level else None].is_later(other[level], own[level])


class ScopeOrder:
    """The order among the tasks of one scope."""

    def __init__(self, scope: Scope) -> None:
        self._handlers = scope.handlers
        self._after: dict[Node, list[Node]] = {}
        weak = {name for name, task in scope.tasks.items() if _is_early(task)} | _chosen_by_many(scope)
        for source, target in scope.edges():
            if target[1] or target[0] not in weak:
                self._after.setdefault(source, []).append(target)
        self._rank = _ranks(scope, self._after)

    def is_later(self, task_id: str, reader: str) -> bool:
        if self._handlers.intersection((task_id, reader)):
            return False
        goal = (task_id, False)
        if self._rank.get(goal, 0) <= self._rank.get((reader, False), 0):
            return False
        todo, seen = [(reader, False)], {(reader, False)}
        for node in todo:
            fresh = [each for each in self._after.get(node, ()) if each not in seen]
            seen.update(fresh)
            todo += fresh
        return goal in seen


def _shared(one: Chain, other: Chain) -> int:
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count


def _is_early(task: BaseOperator) -> bool:
    if isinstance(task, JoinOperator):
        return task.join_mode in _EARLY_JOINS
    return task.trigger_rule in _EARLY


def _chosen_by_many(scope: Scope) -> set[str]:
    """Targets of several routers: any of them is enough."""
    seen: set[str] = set()
    many: set[str] = set()
    for task in scope.tasks.values():
        targets = set(scope.targets(task))
        many |= targets & seen
        seen |= targets
    return many


def _ranks(scope: Scope, after: dict[Node, list[Node]]) -> dict[Node, int]:
    """Each node's place in one order that fits all; none for what is in a circle."""
    waiting: dict[Node, int] = {(name, end): 0 for name in scope.tasks for end in (False, True)}
    for targets in after.values():
        for target in targets:
            waiting[target] += 1
    ready: list[Node] = [node for node, count in waiting.items() if not count]
    for node in ready:
        for target in after.get(node, ()):
            waiting[target] -= 1
            if not waiting[target]:
                ready.append(target)
    return {node: rank for rank, node in enumerate(ready)}
