"""How each command is performed through the DurableContext: one function a command, its record at the end.

The name of every operation comes from the path of its node, so a replay asks for the same ones. A failure of
user code (`StepFailed`) becomes a record; whatever else is raised ends this copy of the task.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from durable import EventTimeout, RetryPolicy, current_step
from durable.lanes import lane_of
from durable.retry import ONCE
from durable.workflow import Lane, policy_of
from interpreter.driver import units
from interpreter.driver.failure import failed, seen_by_walker
from interpreter.driver.limits import limited
from interpreter.driver.moments import end_of, moment_of
from interpreter.driver.retries import policy
from interpreter.driver.runs import call_workflows
from interpreter.plan import Call
from interpreter.walker import next_try
from interpreter.walker.commands import EmitEvent, Evaluate, OpenFork, RunCall, SetTimer, Spawn, Unit, WaitForEvent
from interpreter.walker.records import Fired, Opened, Record, Settled

if TYPE_CHECKING:
    from interpreter.driver.drive import Drive


def run_call(drive: Drive, command: RunCall) -> Awaitable[Any]:
    """A function as a step with its own retries and timeout, or other workflows as runs.

    Not a coroutine of its own: what is awaited on the hot path is the step itself, and its value comes out.
    """
    how = drive.calls.get(id(command.call)) or _prepare(drive, command.call)
    if how.simple:
        return _on_loop(drive, command, how)
    if how.workflows:
        return call_workflows(drive, command)
    if how.transaction:
        return _transaction(drive, command, how)
    call = _call(how.fn, command.args)
    return drive.ctx.step(command.path, call, retry=how.retry, timeout=how.timeout, lane=how.lane)


def _on_loop(drive: Drive, command: RunCall, how: How) -> Awaitable[Any]:
    """The hot path: the runtime is given functions that it knows already, and so need not look at each call."""
    given = command.args
    if given is None:
        return drive.ctx.step(command.path, how.fn, retry=how.retry)
    if len(given) == 1 and "args" in given:
        return drive.ctx.step(command.path, how.fn, *given["args"], retry=how.retry)
    return drive.ctx.step(command.path, _spread, how.fn, given, retry=how.retry)


async def _spread(fn: Callable[..., Any], given: dict[str, Any]) -> Any:
    # Names of arguments may be any, also those of the context's own.
    return await _call(fn, given)()


def _call(fn: Callable[..., Any], given: Any) -> Callable[..., Any]:
    if given is None:
        return fn
    call = functools.partial(fn, *given.get("args", ()), **given.get("kwargs", {}))
    return functools.partial(_with_key, str(given["key"]), call) if given.get("key") is not None else call


def _with_key(key: str, call: Callable[[], Any]) -> Any:
    # At module level: a call with a timeout is sent to a process of its own.
    current_step().use_key(key)
    return call()


async def _transaction(drive: Drive, command: RunCall, how: How) -> Any:
    given = command.args or {}
    write = _bound(how.fn, given.get("args", ()), given.get("kwargs", {}))
    return await drive.ctx.transaction(command.path, limited(write, how.timeout), retry=how.retry)


class How(NamedTuple):
    """A call as the runtime takes it; the same for every execution of a node, which it keeps: its id stays its own."""

    call: Call
    fn: Callable[..., Any]
    retry: RetryPolicy = ONCE
    timeout: float | None = None
    lane: Lane = "loop"
    workflows: bool = False
    transaction: bool = False
    simple: bool = False  # async, and without a limit: nothing but the loop is needed


def _prepare(drive: Drive, call: Call) -> How:
    try:
        how = How(call, call_workflows, workflows=True) if call.via == "workflow" else _function(drive, call)
    except Exception as exc:
        # Recorded like any failure of the step, so that it can be retried once the function is there.
        return How(call, functools.partial(_raise, exc))
    drive.calls[id(call)] = how
    return how


def _function(drive: Drive, call: Call) -> How:
    fn = drive.functions.resolve(call.target)
    own = policy_of(fn)
    limit = call.timeout if call.timeout is not None else own.timeout
    lane = own.lane or _lane(fn, limit, call.config)
    asked = bool(getattr(fn, "__durable_transaction__", False))
    simple = lane == "loop" and limit is None and inspect.iscoroutinefunction(fn) and not asked
    retry = policy(call.retry) or own.retry
    return How(call, fn, retry, limit, lane, transaction=asked, simple=simple)


async def _raise(exc: Exception, *args: Any, **kwargs: Any) -> Any:
    raise exc


def _bound(fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Callable[[Any], Any]:
    """The function of its connection alone; async or not, as it is."""
    if inspect.iscoroutinefunction(fn):

        async def write(connection: Any) -> Any:
            return await fn(connection, *args, **kwargs)

        return write
    return lambda connection: fn(connection, *args, **kwargs)


def _lane(fn: Callable[..., Any], limit: float | None, config: dict[str, Any]) -> Lane:
    lane = lane_of(fn, limit)
    # Only a process can be killed; an author who does not ask for that gets a thread.
    return "thread" if lane == "process" and config.get("kill") is False else lane


async def evaluate(drive: Drive, command: Evaluate) -> Record:
    """An expression that looks outside: evaluated once, then recorded."""

    async def look() -> Any:
        return drive.walk.evaluator.value(command.expr, drive.walk.scope(command.path))

    return Settled(command.path, value=await drive.ctx.step(command.path, look))


async def set_timer(drive: Drive, command: SetTimer) -> Record:
    """A durable sleep that holds no slot."""
    pos = await drive.ctx.sleep_by(end_of(command.seconds, command.until), name=drive.name_of(command))
    voids = [[drive.ctx.task_id, pos]] if command.timer == "timeout" else None
    return Fired(command.path, command.timer, voids=voids)


async def wait_for_event(drive: Drive, command: WaitForEvent) -> Record:
    """The event's payload; after a timeout, another wait if the policy says so."""
    name, attempt, used = command.path, 1, dict[str, int]()
    since = None if command.since is None else datetime.fromtimestamp(moment_of(command.since), UTC)
    while True:
        try:
            payload = await drive.ctx.wait_for_event(command.event, timeout=command.timeout, since=since, name=name)
            return Settled(command.path, value=payload)
        except EventTimeout as exc:
            again = next_try(command.retry, used, seen_by_walker(exc))
            if again is None:
                return failed(drive.ctx, command.path, exc)
            attempt, (rest, used) = attempt + 1, again
            name = f"{command.path}~{attempt}"
            await drive.ctx.sleep(rest, name=f"{name}:rest")


async def emit_event(drive: Drive, command: EmitEvent) -> Record:
    """The event, once: its row and its record are one commit."""
    await drive.ctx.emit_event(command.event, command.payload, name=command.path)
    return Settled(command.path)


async def open_fork(drive: Drive, command: OpenFork) -> Record:
    """Decide where many branches run, and record it: a replay must not decide otherwise."""

    async def decide() -> dict[str, Any]:
        return units.decision(command)

    decided = await drive.ctx.step(f"{command.path}:open", decide)
    return Opened(command.path, **decided)


async def spawn_units(drive: Drive, command: Spawn) -> None:
    """Start the tasks of some units; the walker hears of each when it comes back."""
    await drive.spawn(command)


async def run_unit(drive: Drive, command: Unit) -> Record:
    """One spawned task's share of a fork."""
    return await units.outcome(drive.ctx, drive.forks.running[command.path], command)


# What comes out is the record. Of a call it may be the bare value, and of a spawn it is nothing.
PERFORM: Final[dict[type[Any], Callable[[Drive, Any], Awaitable[Any]]]] = {
    RunCall: run_call,
    Evaluate: evaluate,
    SetTimer: set_timer,
    WaitForEvent: wait_for_event,
    EmitEvent: emit_event,
    OpenFork: open_fork,
    Spawn: spawn_units,
    Unit: run_unit,
}
