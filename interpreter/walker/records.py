"""Records: what happened, as the driver recorded it. The only thing that moves a walk."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from interpreter.walker.commands import Timer
from interpreter.walker.message import Message, read


@dataclass(slots=True)
class Started(Message):
    """The run began. `inputs` are the names of the root scope, `globals` are visible everywhere;
    `spawn_over` is how many branches run in place before the driver is asked."""

    tag: ClassVar[str] = "started"
    inputs: dict[str, Any] = field(default_factory=dict)
    globals: dict[str, Any] = field(default_factory=dict)
    now: float | None = None
    spawn_over: int = 32


@dataclass(slots=True)
class Settled(Message):
    """A command has its outcome. `writes` are names the performer set besides its value; `voids` are the records, each
    [task, position], that a retry of the run has to take back for this outcome not to count."""

    tag: ClassVar[str] = "settled"
    path: str
    outcome: Literal["succeeded", "failed", "cancelled"] = "succeeded"
    value: Any = None
    error: dict[str, Any] | None = None
    writes: dict[str, Any] | None = None
    now: float | None = None
    voids: list[list[Any]] | None = None


@dataclass(slots=True)
class Fired(Message):
    """A timer came due. `voids` as for `Settled`."""

    tag: ClassVar[str] = "fired"
    path: str
    timer: Timer = "wait"
    now: float | None = None
    voids: list[list[Any]] | None = None


@dataclass(slots=True)
class Opened(Message):
    """How a fork or loop runs: in place, or as tasks of `chunk` slots each."""

    tag: ClassVar[str] = "opened"
    path: str
    mode: Literal["in_place", "spawned"] = "in_place"
    chunk: int = 1
    now: float | None = None


@dataclass(slots=True)
class CancelAsked(Message):
    """Somebody asked for the run to stop."""

    tag: ClassVar[str] = "cancel_asked"
    reason: str | None = None
    now: float | None = None


Record = Started | Settled | Fired | Opened | CancelAsked

KINDS: dict[str, type[Any]] = {kind.tag: kind for kind in (Started, Settled, Fired, Opened, CancelAsked)}


def read_record(form: dict[str, Any]) -> Record:
    """The record a JSON form describes."""
    record: Record = read(KINDS, form)
    return record
