"""What is wrong with a definition, and the error that carries it.

A definition is never refused for its first fault only: checks return lists of `Fault`, and one
`pydantic.ValidationError` (the class the specification promises, section 11.3) carries them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from pydantic import ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

Loc: TypeAlias = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a document or a program; lines and columns count from 1, and column 0 is the line as a whole."""

    line: int
    column: int
    file: str | None = None

    def __str__(self) -> str:
        if self.file is None:
            return f"line {self.line}" + (f", column {self.column}" if self.column else "")
        return f"{self.file}:{self.line}" + (f":{self.column}" if self.column else "")


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong: where it stands in the definition, what it is, what to do about it."""

    kind: str
    message: str
    loc: Loc = ()
    task_id: str | None = None
    hint: str | None = None
    position: Position | None = None
    value: Any = None

    def at(self, position: Position | None) -> Fault:
        return replace(self, position=position)

    def __str__(self) -> str:
        where = f"{self.position}: " if self.position else ""
        whose = f"task '{self.task_id}': " if self.task_id is not None else ""
        advice = f" ({self.hint})" if self.hint else ""
        return f"{where}{whose}{self.message}{advice}"


def invalid(title: str, faults: Sequence[Fault]) -> ValidationError:
    """The error that carries all of `faults`, in the order they stand in the document."""
    return ValidationError.from_exception_data(title, [_detail(fault) for fault in sorted(faults, key=_order)])


def faults_of(error: ValidationError) -> list[Fault]:
    """The faults an error carries, whether `invalid` made it or pydantic itself did."""
    return [_fault(dict(detail)) for detail in error.errors(include_url=False)]


def _order(fault: Fault) -> tuple[int, int]:
    return (fault.position.line, fault.position.column) if fault.position else (0, 0)


def _detail(fault: Fault) -> InitErrorDetails:
    position = fault.position
    context = {
        "text": _printable(str(fault)),
        "message": _printable(fault.message),
        "task_id": fault.task_id,
        "hint": fault.hint,
        "file": position and position.file,
        "line": position and position.line,
        "column": position and position.column,
    }
    # The text goes in as a value, not as the template: it may hold braces of the author's own.
    error = PydanticCustomError(fault.kind, "{text}", context)
    return InitErrorDetails(type=error, loc=fault.loc, input=fault.value)


def _printable(text: str) -> str:
    """`text` with what UTF-8 cannot encode escaped, so that the message can be printed at all."""
    return text.encode("utf-8", "backslashreplace").decode()


def _fault(detail: dict[str, Any]) -> Fault:
    context = detail.get("ctx") or {}
    loc = without_tags(detail["loc"])
    return Fault(
        kind=detail["type"],
        message=context.get("message") or _message(loc, _text(loc, detail)),
        loc=loc,
        task_id=context["task_id"] if "task_id" in context else owner_of(loc),
        hint=context.get("hint"),
        position=_position(context),
        value=detail.get("input"),
    )


def _text(loc: Loc, detail: dict[str, Any]) -> str:
    whole = loc == () and detail["type"] == "model_type"
    return "a workflow is a mapping with a name and tasks" if whole else str(detail["msg"])


def _message(loc: Loc, text: str) -> str:
    """pydantic's text, after the field it is about; a task or the workflow itself is named elsewhere."""
    names = [part for part in loc[2 if owner_of(loc) else 0 :] if isinstance(part, str)]
    return ": ".join([*names[-1:], text.removeprefix("Value error, ")])


def _position(context: dict[str, Any]) -> Position | None:
    if context.get("line") is None:
        return None
    return Position(context["line"], context["column"], context["file"])


def owner_of(loc: Loc) -> str | None:
    """The id of the task `loc` is in, where the location alone says it."""
    return str(loc[1]) if len(loc) > 1 and loc[0] == "tasks" else None


def without_tags(loc: Loc) -> Loc:
    """`loc` as the author sees it: pydantic puts the operator's type after each operator it enters."""
    clean: list[str | int] = []
    expects_tag = False
    for index, part in enumerate(loc):
        if expects_tag and part in _TAGS:
            expects_tag = False
            continue
        entered_task = index == 1 and loc[0] == "tasks"
        expects_tag = entered_task or (isinstance(part, int) and clean[-1:] == ["loop_body"])
        clean.append(part)
    return tuple(clean)


_TAGS = frozenset(
    (
        *("task", "activity", "condition", "wait", "parallel", "foreach", "while", "emit_event"),
        *("wait_for_event", "switch", "join", "terminate", "child_workflow"),
    )
)
