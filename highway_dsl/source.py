"""A document as read: its data, and where each part of it stands.

Both readers give the same shape. Every key of a mapping is text, and so a workflow says the same in YAML
and in JSON; and a `Place` is `(line, column, places inside)`, mirroring the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from highway_dsl.faults import Fault, Loc, Position

MAX_CHARACTERS = 16 * 1024 * 1024
MAX_NODES = 2_000_000
MAX_DEPTH = 100

# Plain tuples: one is made for every part of a document.
Place: TypeAlias = tuple[int, int, "Places"]
Places: TypeAlias = "dict[str, Place] | list[Place] | None"


class Unreadable(Exception):
    """The text is no document of its format; nothing after the fault can be trusted."""

    def __init__(self, kind: str, message: str, line: int, column: int, hint: str | None = None) -> None:
        super().__init__(message)
        self.fault = Fault(kind, message, hint=hint, position=Position(line, column))


@dataclass
class Source:
    """What a reader made of a text; `faults` are those that do not stop the reading (a key given twice)."""

    data: Any = None
    root: Place = (1, 1, None)
    faults: list[Fault] = field(default_factory=list)
    file: str | None = None

    def position(self, loc: Loc) -> Position:
        """Where the part at `loc` stands, or the nearest part around it that exists."""
        place = self.root
        for part in loc:
            inner = _inside(place[2], part)
            if inner is None:
                break
            place = inner
        return Position(place[0], place[1], self.file)

    @cached_property
    def tasks(self) -> dict[str, Position]:
        """Where each task is declared: those of the workflow first, then those in bodies and branches."""
        declared = self.data.get("tasks") if isinstance(self.data, dict) else None
        place = _inside(self.root[2], "tasks")
        found: dict[str, Position] = {}
        for task_id, (line, column, _) in _tasks(declared, place) if place else ():
            found.setdefault(task_id, Position(line, column, self.file))
        return found


def _inside(places: Places, part: str | int) -> Place | None:
    found: Place | None = None
    if isinstance(places, dict):
        found = places.get(str(part))
    elif isinstance(places, list) and isinstance(part, int) and part < len(places):
        found = places[part]
    return found


def _tasks(declared: object, place: Place) -> Iterator[tuple[str, Place]]:
    bodies: list[tuple[object, Place]] = []
    for key, body in _entries(declared):
        here = _inside(place[2], key)
        if here is None or not isinstance(body, dict):
            continue
        yield (str(body.get("task_id", key)) if isinstance(key, int) else key), here
        bodies += _bodies(body, here)
    for inner, where in bodies:
        yield from _tasks(inner, where)


def _entries(declared: object) -> list[tuple[Any, object]]:
    if isinstance(declared, dict):
        return list(declared.items())
    return list(enumerate(declared)) if isinstance(declared, list) else []


def _bodies(body: dict[str, Any], place: Place) -> Iterator[tuple[object, Place]]:
    loop = _inside(place[2], "loop_body")
    if loop is not None:
        yield body.get("loop_body"), loop
    branches = _inside(place[2], "branch_workflows")
    for name, branch in _entries(body.get("branch_workflows")) if branches else ():
        inner = _inside(branches[2], name) if branches else None
        tasks = _inside(inner[2], "tasks") if inner else None
        if tasks and isinstance(branch, dict):
            yield branch.get("tasks"), tasks
