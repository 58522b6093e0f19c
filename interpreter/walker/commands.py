"""Commands: what the walker asks its driver to do. Plain data, each answered by the record named here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from interpreter.plan import Call, RetryRule
from interpreter.walker.message import Message

Timer = Literal["wait", "backoff", "timeout"]


@dataclass(slots=True)
class RunCall(Message):
    """Perform a leaf of the plan with these arguments, its own retries and its timeout. Answered by `Settled`."""

    tag: ClassVar[str] = "run_call"
    path: str
    args: Any
    call: Call

    @property
    def node(self) -> str:
        return self.call.id

    @property
    def via(self) -> str:
        return self.call.via

    @property
    def target(self) -> str:
        return self.call.target

    @property
    def config(self) -> dict[str, Any]:
        return self.call.config

    @property
    def timeout(self) -> float | None:
        return self.call.timeout

    @property
    def retry(self) -> tuple[RetryRule, ...]:
        return self.call.retry

    def to_json(self) -> dict[str, Any]:
        """The JSON form; what the plan says is written out."""
        call = self.call
        own = {"tag": self.tag, "path": self.path, "node": call.id, "via": call.via, "target": call.target}
        retry = [rule.model_dump(mode="json", exclude_defaults=True) for rule in call.retry]
        return {**own, "args": self.args, "config": call.config, "retry": retry, "timeout": call.timeout}


@dataclass(slots=True)
class Evaluate(Message):
    """Evaluate an expression that may look outside (now, random), in `Walk.scope(path)`. Answered by
    `Settled`: the record keeps the value, a replay never evaluates again."""

    tag: ClassVar[str] = "evaluate"
    path: str
    expr: Any


@dataclass(slots=True)
class SetTimer(Message):
    """Wake the walker after `seconds` or at `until`. Answered by `Fired` with the same path and timer."""

    tag: ClassVar[str] = "set_timer"
    path: str
    timer: Timer
    seconds: float | None = None
    until: Any = None


@dataclass(slots=True)
class CancelTimer(Message):
    """A timer is no longer wanted. Not answered; a `Fired` that crosses it is ignored."""

    tag: ClassVar[str] = "cancel_timer"
    path: str
    timer: Timer


@dataclass(slots=True)
class WaitForEvent(Message):
    """Wait for an event. Answered by `Settled` with its payload, or failed with an error of type
    `EventTimeout`."""

    tag: ClassVar[str] = "await_event"
    path: str
    event: str
    since: Any = None
    timeout: float | None = None
    retry: tuple[RetryRule, ...] = ()


@dataclass(slots=True)
class EmitEvent(Message):
    """Append an event to the log, once per path. Answered by `Settled`."""

    tag: ClassVar[str] = "emit_event"
    path: str
    event: str
    payload: Any = None
    retry: tuple[RetryRule, ...] = ()


@dataclass(slots=True)
class OpenFork(Message):
    """Decide whether `count` branches or items run here or as tasks. Answered by `Opened`."""

    tag: ClassVar[str] = "open_fork"
    path: str
    count: int
    cap: int | None
    spawn: str
    may_wait: bool


@dataclass(slots=True)
class Unit(Message):
    """What one spawned task runs: some slots of one fork or loop. `walk_of_unit` walks it. `cause` is the failed node
    that the fork, or what is around it, is the callback of."""

    tag: ClassVar[str] = "unit"
    path: str
    frame: str
    graph: str
    node: str
    start: int
    end: int
    length: int
    stem: str
    items: list[Any] | None
    scope: dict[str, Any]
    cause: dict[str, Any] | None = None


@dataclass(slots=True)
class Spawn(Message):
    """Start one task per unit, at most `cap` at a time. Each is answered by `Settled` with the unit's path,
    and with value and writes as its own walk settled them."""

    tag: ClassVar[str] = "spawn"
    path: str
    units: list[Unit]
    cap: int | None = None


@dataclass(slots=True)
class Cancel(Message):
    """Stop what was started under a path. Answered by its `Settled`: cancelled, or what it came to first."""

    tag: ClassVar[str] = "cancel"
    path: str


@dataclass(slots=True)
class Note(Message):
    """A derived fact: a route, a skip, an expiry. Written for people and compared on replay; not answered."""

    tag: ClassVar[str] = "note"
    path: str
    what: str
    data: Any = None


@dataclass(slots=True)
class SettleRun(Message):
    """The walk has ended. Nothing follows. `voids` are the records that led to a failure."""

    tag: ClassVar[str] = "settle_run"
    outcome: Literal["succeeded", "failed", "cancelled"]
    value: Any = None
    error: dict[str, Any] | None = None
    handled: list[str] = field(default_factory=list)
    parked: list[str] = field(default_factory=list)
    writes: dict[str, Any] = field(default_factory=dict)
    voids: list[list[Any]] = field(default_factory=list)


Command = (
    RunCall
    | Evaluate
    | SetTimer
    | CancelTimer
    | WaitForEvent
    | EmitEvent
    | OpenFork
    | Spawn
    | Cancel
    | Note
    | SettleRun
)
