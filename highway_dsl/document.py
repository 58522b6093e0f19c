"""A workflow as loaded from a text, with the place of each of its tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

from pydantic import BaseModel

from highway_dsl.faults import Fault, Loc, Position, invalid
from highway_dsl.later import IGNORED
from highway_dsl.lint import lint
from highway_dsl.operators import class_of
from highway_dsl.policies import RetryPolicy, TimeoutPolicy
from highway_dsl.shape import examine
from highway_dsl.source import Source, Unreadable

if TYPE_CHECKING:
    from highway_dsl.workflow import Workflow

W = TypeVar("W", bound="Workflow")
_POLICIES: Final[dict[str, type[BaseModel]]] = {
    "retry_policy": RetryPolicy,
    "default_retry_policy": RetryPolicy,
    "timeout_policy": TimeoutPolicy,
}
Reader: TypeAlias = Callable[[str, str | None], Source]


@dataclass(frozen=True)
class Document(Generic[W]):
    """A workflow and the source it came from. With `faults`, the workflow is what they leave of it."""

    workflow: W
    source: Source
    faults: tuple[Fault, ...] = ()

    def position(self, task_id: str) -> Position | None:
        """Where a task is declared."""
        return self.source.tasks.get(task_id)

    def lint(self) -> list[Fault]:
        """What is valid but probably not meant, with its place: also fields that nothing reads."""
        found = [*lint(self.workflow), *unread_fields(type(self.workflow), self.source.data)]
        return [located(self.source, fault) for fault in found]


def load(model: type[W], read: Reader, text: str | bytes, file: str | None) -> Document[W]:
    """The document in `text`; all its faults are raised at once, each with its place."""
    document = survey(model, read, text, file)
    if document.faults:
        raise invalid(model.__name__, document.faults)
    return document


def survey(model: type[W], read: Reader, text: str | bytes, file: str | None) -> Document[W]:
    """As `load`, with its faults instead of an error, as long as anything is left of the workflow."""
    source = _source(read, text, file)
    workflow, found = examine(model, source.data)
    faults = [located(source, fault) for fault in (*source.faults, *found)]
    if workflow is None:
        raise invalid(model.__name__, faults)
    return Document(workflow, source, tuple(faults))


def _source(read: Reader, text: str | bytes, file: str | None) -> Source:
    try:
        return read(_decoded(text), file)
    except Unreadable as unreadable:
        raise invalid("Workflow", [located(Source(file=file), unreadable.fault)]) from unreadable


def _decoded(text: str | bytes) -> str:
    try:
        return text if isinstance(text, str) else text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise Unreadable("encoding", f"not UTF-8: {error.reason}", line, 1) from error


def located(source: Source, fault: Fault) -> Fault:
    if fault.position:
        return fault.at(Position(fault.position.line, fault.position.column, source.file))
    declared = source.position(fault.loc[:2])
    if fault.loc[:1] == ("tasks",) and declared == source.position(fault.loc[:1]) and fault.task_id:
        # A task that is not where its location says was moved there from inside another.
        return fault.at(source.tasks.get(fault.task_id, declared))
    return fault.at(source.position(fault.loc))


def unread_fields(model: type[BaseModel], data: Any) -> Iterator[Fault]:
    """Fields that no model has: they are ignored, and often a slip of the pen."""
    yield from _unread(model, data, (), None)
    for key, body in data.get("tasks", {}).items():
        yield from _unread_in_task(body, ("tasks", key))


def _unread_in_task(body: Any, loc: Loc) -> Iterator[Fault]:
    kind = class_of(body)
    if kind is None or not isinstance(body, dict):
        return
    yield from _unread(kind, body, loc, body.get("task_id"))
    inside = body.get("loop_body")
    for index, inner in enumerate(inside if isinstance(inside, list) else ()):
        yield from _unread_in_task(inner, (*loc, "loop_body", index))


def _unread(model: type[BaseModel], data: Any, loc: Loc, task_id: str | None) -> Iterator[Fault]:
    known = {*model.model_fields, "depends_on", *IGNORED}
    for name in data:
        if name not in known:
            near = get_close_matches(str(name), model.model_fields, n=1)
            hint = f"did you mean '{near[0]}'?" if near else None
            yield Fault("unread_field", f"nothing reads the field '{name}'", (*loc, name), task_id, hint)
        elif name in _POLICIES and isinstance(data[name], dict):
            yield from _unread(_POLICIES[name], data[name], (*loc, name), task_id)
