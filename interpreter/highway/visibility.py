"""Which names the templates of a task could ever find: what section 10.2 lists, and what tasks around it bind."""

from __future__ import annotations

from typing import Final

from highway_dsl import BaseOperator, ForEachOperator, WhileOperator, Workflow
from highway_dsl.graph import callbacks_of, enclosing_loops, walk
from interpreter.expressions.names import nearest
from interpreter.highway.names import CAUSE, ITEM, PREFIXES, RESERVED

_FEW: Final = 500


class Visibility:
    """The names of one workflow, by the loops around a task."""

    def __init__(self, workflow: Workflow) -> None:
        self._everywhere = frozenset((*workflow.variables, *RESERVED, *PREFIXES))
        self._tasks: dict[str, BaseOperator] = {}
        for task, _ in walk(workflow.tasks.values()):
            self._tasks.setdefault(task.task_id, task)
        self._chains = {name: chains[0] for name, chains in enclosing_loops(workflow.tasks.values()).items()}
        self._handlers = self._called_back()
        self._bound: dict[str | None, set[str]] = {None: set()}
        self._binders: dict[str, set[str]] = {}
        # Most tasks see the same names: a set of them for each would be work for every pair of tasks.
        self._seen_from: dict[tuple[frozenset[str], bool], frozenset[str]] = {}
        for task_id, task in self._tasks.items():
            for loop in self._homes(task_id):
                self._bound.setdefault(loop, set()).update(_binds(task))
            for name in _binds(task):
                self._binders.setdefault(name, set()).add(task_id)

    def names(self, task_id: str) -> frozenset[str]:
        """What a template of this task may name."""
        loops = self._loops(task_id)
        place = (frozenset(loops), self._knows_cause(task_id, loops))
        if place not in self._seen_from:
            self._seen_from[place] = self._seen(*place)
        return self._seen_from[place]

    def _seen(self, loops: frozenset[str], cause: bool) -> frozenset[str]:
        found = set(self._everywhere) | self._bound[None]
        for loop in loops:
            found |= self._bound.get(loop, set())
            if isinstance(self._tasks[loop], ForEachOperator):
                found.add(ITEM)
        return frozenset(found | CAUSE if cause else found)

    def binders(self, name: str) -> set[str]:
        """The tasks that give a name its value, if only tasks do."""
        known = name in self._everywhere or name in (ITEM, *CAUSE)
        return set() if known else self._binders.get(name, set())

    def nearest(self, task_id: str, name: str) -> str | None:
        known = self.names(task_id)
        # Comparing texts is slow, and thousands of tasks may have as many unknown names.
        return nearest(name, sorted(known)) if len(known) <= _FEW else None

    def _loops(self, task_id: str) -> set[str]:
        """The loops around a task; a handler also runs inside those of its owners."""
        found = set(self._chains[task_id])
        for owner in self._handlers.get(task_id, ()):
            found |= set(self._chains[owner])
        return found

    def _homes(self, task_id: str) -> list[str | None]:
        """Where what a task binds can be seen: its own scope, and those around it up to the nearest foreach."""
        chain: list[str] = list(self._chains[task_id])
        homes: list[str | None] = []
        while chain:
            homes.append(chain[-1])
            if not isinstance(self._tasks[chain.pop()], WhileOperator):
                return [*homes, *self._owners_homes(task_id)]
        return [*homes, None, *self._owners_homes(task_id)]

    def _owners_homes(self, task_id: str) -> list[str]:
        return [loop for owner in self._handlers.get(task_id, ()) for loop in self._chains[owner][-1:]]

    def _called_back(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for owner, task in self._tasks.items():
            for handler in callbacks_of(task):
                found.setdefault(handler, []).append(owner)
        return found

    def _knows_cause(self, task_id: str, loops: set[str]) -> bool:
        return task_id in self._handlers or any(loop in self._handlers for loop in loops)


def _binds(task: BaseOperator) -> list[str]:
    names = [task.task_id, *([task.result_key] if task.result_key else [])]
    return [*names, f"{task.task_id}_results"] if isinstance(task, ForEachOperator) else names
