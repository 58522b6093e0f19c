"""Handles of child tasks. A group of children has consecutive ids, so two ids name any number of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

from durable.ids import child_ids


@dataclass(frozen=True, slots=True)
class Handle:
    """One child: a task of the same run, or a run of its own."""

    task_id: str
    workflow: str
    run: bool = False


class Group(Sequence[Handle]):
    """Children that were spawned together, in order."""

    def __init__(self, first: str, count: int, workflow: str):
        self.first = first
        self.ids = child_ids(first, count)
        self.workflow = workflow

    @property
    def last(self) -> str:
        return self.ids[-1]

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, index: int) -> Handle: ...
    @overload
    def __getitem__(self, index: slice) -> list[Handle]: ...
    def __getitem__(self, index: int | slice) -> Handle | list[Handle]:
        if isinstance(index, slice):
            return [Handle(task_id, self.workflow) for task_id in self.ids[index]]
        return Handle(self.ids[index], self.workflow)

    def __iter__(self) -> Iterator[Handle]:
        return (Handle(task_id, self.workflow) for task_id in self.ids)


def span(tasks: Sequence[Handle]) -> dict[str, Any]:
    """Which children a wait row is about."""
    if isinstance(tasks, Group):
        return {"first": tasks.first, "last": tasks.last}
    return {"kids": [handle.task_id for handle in tasks]}
