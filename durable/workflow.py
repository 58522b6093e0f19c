"""Workflows and steps as people write them: decorators that attach a name and policies, and nothing else."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, TypeVar, Unpack, overload

from durable.errors import WrongArguments
from durable.retry import ONCE, RetryPolicy
from durable.scheduled import ScheduleOptions, take_schedule

Lane = Literal["loop", "thread", "process"]
DeadlineAction = Literal["fail", "cancel"]
Body = Callable[..., Awaitable[Any]]
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Params:
    """The parameters of a workflow, as far as an input can be checked against them."""

    required: tuple[str, ...]
    optional: tuple[str, ...]
    open: bool
    signature: inspect.Signature = field(compare=False, repr=False)

    @classmethod
    def of(cls, fn: Body, name: str) -> Params:
        own = inspect.signature(fn)
        params = list(own.parameters.values())
        if not params:
            raise TypeError(f"workflow {name!r} takes no context: write `async def {fn.__name__}(ctx, ...)`")
        rest = params[1:]
        if any(p.kind in (p.VAR_POSITIONAL, p.POSITIONAL_ONLY) for p in rest):
            raise TypeError(f"workflow {name!r}: inputs are stored by name, so *args and positional-only do not work")
        named = [p for p in rest if p.kind is not p.VAR_KEYWORD]
        return cls(
            tuple(p.name for p in named if p.default is p.empty),
            tuple(p.name for p in named if p.default is not p.empty),
            len(named) < len(rest),
            own.replace(parameters=rest),
        )

    def bind(self, workflow: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The input object of a call, or `WrongArguments` that says what is missing or unknown."""
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as exc:
            raise WrongArguments(f"workflow {workflow!r}: {exc}; it takes {self.signature}") from None
        given = dict(bound.arguments)
        for param in self.signature.parameters.values():
            if param.kind is param.VAR_KEYWORD:
                given.update(given.pop(param.name, {}))
        return given

    def fits(self, given: dict[str, Any]) -> bool:
        """Whether an input object has all that is required and nothing unknown. Cheap: asked for every run."""
        for name in self.required:
            if name not in given:
                return False
        more = len(given) - len(self.required)
        return more == 0 or self.open or more == sum(name in given for name in self.optional)

    def describe(self) -> dict[str, Any]:
        return {"required": self.required, "optional": self.optional, "open": self.open}


@dataclass(frozen=True, slots=True)
class Workflow:
    """A named program. Calling it calls the function, so that it can be tested like any other."""

    name: str
    fn: Body
    params: Params
    queue: str = "default"
    max_active_runs: int | None = None
    max_active_excludes_waiting: bool = False
    max_running: int | None = None
    max_active_per_key: int | None = None
    max_running_per_key: int | None = None
    deadline: float | None = None
    deadline_action: DeadlineAction = "fail"
    cleanup: Body | None = None
    schedule: Mapping[str, Any] | None = field(default=None, hash=False)

    def __call__(self, *args: Any, **kwargs: Any) -> Awaitable[Any]:
        return self.fn(*args, **kwargs)

    def registration(self) -> dict[str, Any]:
        """What the store knows of it. Active runs without those that wait are those that run, or stand in line to."""
        caps = [cap for cap in (self.max_active_runs, self.max_running) if cap is not None]
        excludes = self.max_active_excludes_waiting and self.max_active_runs is not None
        return {
            "name": self.name,
            "params": self.params.describe(),
            "queue": self.queue,
            "has_cleanup": self.cleanup is not None,
            "max_active_runs": None if excludes else self.max_active_runs,
            "max_running": min(caps) if excludes else self.max_running,
            "max_active_per_key": self.max_active_per_key,
            "max_running_per_key": self.max_running_per_key,
            "deadline": self.deadline,
            "deadline_action": self.deadline_action,
        }


@overload
def workflow(fn: Body, /) -> Workflow: ...
@overload
def workflow(
    fn: None = None,
    /,
    *,
    name: str | None = None,
    queue: str = "default",
    max_active_runs: int | None = None,
    max_active_excludes_waiting: bool = False,
    max_running: int | None = None,
    max_active_per_key: int | None = None,
    max_running_per_key: int | None = None,
    deadline: float | timedelta | None = None,
    deadline_action: DeadlineAction = "fail",
    cleanup: Body | None = None,
    **schedule: Unpack[ScheduleOptions],
) -> Callable[[Body], Workflow]: ...
def workflow(fn: Body | None = None, /, *, name: str | None = None, **options: Any) -> Any:
    """Make a workflow of an `async def f(ctx, ...)`.

    `max_active_runs` counts runs from start to end (with `max_active_excludes_waiting` not while they are parked),
    `max_running` only while they run; the `per_key` forms count
    runs with the same `cap_key`. `deadline` ends a run that is not done in time, as failed or, with
    `deadline_action="cancel"`, as cancelled; `cleanup(ctx, **input)` runs when it is cancelled or past its deadline.
    `schedule`, `timezone` and the other options of `ScheduleOptions` say when it runs by itself; whoever serves it with
    `durable worker`, `durable dev` or `durable up` sets that schedule.
    """

    def decorate(fn: Body) -> Workflow:
        own = name or fn.__name__
        if not inspect.iscoroutinefunction(fn):
            raise TypeError(f"workflow {own!r} must be `async def`; plain functions belong into steps")
        _check_caps(own, options)
        rest = dict(options)
        schedule, deadline = take_schedule(own, rest), rest.pop("deadline", None)
        seconds = deadline.total_seconds() if isinstance(deadline, timedelta) else deadline
        if seconds is not None and seconds <= 0:
            raise ValueError(f"workflow {own!r}: a deadline must be over 0 seconds")
        return Workflow(own, fn, Params.of(fn, own), deadline=seconds, schedule=schedule, **rest)

    return decorate if fn is None else decorate(fn)


def _check_caps(name: str, options: dict[str, Any]) -> None:
    for cap in ("max_active_runs", "max_running", "max_active_per_key", "max_running_per_key"):
        if (limit := options.get(cap)) is not None and limit < 1:
            raise ValueError(f"workflow {name!r}: {cap} is {limit}; it must be at least 1, or None for no cap")


@dataclass(frozen=True, slots=True)
class StepPolicy:
    """How a step function wants to be run, unless the call says otherwise."""

    name: str | None = None
    retry: RetryPolicy = ONCE
    timeout: float | None = None
    lane: Lane | None = None


PLAIN = StepPolicy()


def step(
    *,
    name: str | None = None,
    retry: RetryPolicy | None = None,
    timeout: float | None = None,
    lane: Lane | None = None,
) -> Callable[[F], F]:
    """Attach a name, a retry policy, a timeout or a lane to a step function."""

    def decorate(fn: F) -> F:
        # A mark on the user's own function: its type has no such attribute.
        fn.__durable_step__ = StepPolicy(name, retry or ONCE, timeout, lane)  # type: ignore[attr-defined]
        return fn

    return decorate


def policy_of(fn: Callable[..., Any]) -> StepPolicy:
    return getattr(fn, "__durable_step__", PLAIN)
