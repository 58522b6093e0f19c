"""Where in a program a workflow and its tasks were made.

No part of the definition: it is neither compared nor written out, and a workflow from a document has none.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field, replace
from typing import Final

from highway_dsl.faults import Fault, Position

_HERE: Final = __name__.partition(".")[0]


@dataclass(slots=True)
class Origin:
    """The lines that made a workflow, and what only its making could find wrong."""

    workflow: Position | None = None
    tasks: dict[str, Position] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    def placed(self, fault: Fault) -> Fault:
        """A fault with the line of its task, or else of the workflow."""
        return fault if fault.position else fault.at(self.tasks.get(fault.task_id or "", self.workflow))

    def name_file(self, file: str) -> None:
        """Call a file as its reader does, wherever Python found it."""
        whole = os.path.abspath(file)
        self.workflow = _renamed(self.workflow, whole, file) if self.workflow else None
        self.tasks = {task_id: _renamed(at, whole, file) for task_id, at in self.tasks.items()}
        self.faults = [fault.at(fault.position and _renamed(fault.position, whole, file)) for fault in self.faults]


def caller() -> Position | None:
    """The line of the nearest code that is not of this package."""
    frame = sys._getframe(1)
    while str(frame.f_globals.get("__name__")).partition(".")[0] == _HERE:
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return Position(frame.f_lineno, 0, frame.f_code.co_filename)


def _renamed(at: Position, whole: str, file: str) -> Position:
    return replace(at, file=file) if at.file and os.path.abspath(at.file) == whole else at
