"""Which members of an operator nobody outside has to do with: only those can run in a frame of their own, where
they can be timed out, retried or spawned together."""

from __future__ import annotations

from functools import cached_property

from highway_dsl import BaseOperator
from highway_dsl.graph import Node, Scope, callbacks_of


class Enclosure:
    """Who concerns whom in one scope."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.members = {task: self._own(names) for task, names in scope.members.items()}

    def _own(self, names: list[str]) -> list[str]:
        return [name for name in names if name not in self.scope.handlers]

    @cached_property
    def around(self) -> dict[str, set[str]]:
        """The operators a task is a member of."""
        found: dict[str, set[str]] = {task: set() for task in self.scope.tasks}
        for operator, members in self.members.items():
            for member in members:
                found[member].add(operator)
        return found

    @cached_property
    def owners(self) -> dict[str, list[str]]:
        """The tasks that call each handler back."""
        found: dict[str, list[str]] = {}
        for task_id, task in self.scope.tasks.items():
            for handler in callbacks_of(task):
                found.setdefault(handler, []).append(task_id)
        return found

    @cached_property
    def choosers(self) -> dict[str, set[str]]:
        """The routers that name a task."""
        found: dict[str, set[str]] = {task: set() for task in self.scope.tasks}
        for task_id, task in self.scope.tasks.items():
            for target in self.scope.targets(task):
                found[target].add(task_id)
        return found

    @cached_property
    def concerns(self) -> dict[str, set[str]]:
        """All a task waits for in any way: by name, behind handlers, as a member."""
        return {task: self._concerns(task) for task in self.scope.tasks if task not in self.scope.handlers}

    def _concerns(self, task_id: str) -> set[str]:
        found = {*self.scope.dependencies(task_id), *self.around[task_id]}
        todo, seen = list(self.scope.named_by(task_id)), set[str]()
        while todo:
            name = todo.pop()
            if name in self.scope.handlers and name not in seen:
                seen.add(name)
                found.update(self.owners.get(name, ()))
                todo += self.scope.named_by(name)
        return found - {task_id}

    def is_closed(self, operator: str, inside: set[str]) -> bool:
        """Whether nothing but the operator's start and end connects these members with the rest."""
        allowed = inside | {operator} | self.around[operator]
        for task_id, concerns in self.concerns.items():
            if task_id in inside:
                if not concerns <= allowed or not self.choosers[task_id] <= inside | {operator}:
                    return False
            elif task_id != operator and concerns & inside:
                return False
        return True

    @cached_property
    def _followers(self) -> dict[Node, list[Node]]:
        found: dict[Node, list[Node]] = {}
        for source, target in self.scope.edges():
            found.setdefault(source, []).append(target)
        return found

    def comes_after(self, later: str, earlier: str) -> bool:
        """Whether the end of `later` can only come after the start of `earlier`."""
        todo, seen = [(earlier, False)], {(earlier, False)}
        while todo:
            node = todo.pop()
            if node == (later, True):
                return True
            fresh = [follower for follower in self._followers.get(node, ()) if follower not in seen]
            seen.update(fresh)
            todo += fresh
        return False

    def task(self, task_id: str) -> BaseOperator:
        return self.scope.tasks[task_id]
