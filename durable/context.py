"""DurableContext: the only way from a workflow to its journal.

Each operation performs one command and gives back its committed record. On a replay the record is given back and
the command is not performed. Names tell operations apart: explicit, or derived from the function; repeated names
are numbered.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from time import monotonic
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal, NoReturn
from uuid import UUID

import orjson
from orjson import Fragment

from durable import codec, faults
from durable.children import Group, Handle, span
from durable.errors import Cancelled, ChildFailed, EventTimeout, Refused, StepUncertain, ValueRefused
from durable.failures import describe, raised
from durable.ids import child_ids, fine_uuid7, group_start
from durable.journal import Record, Replay
from durable.lanes import StepInfo, current, lane_of, traits_of
from durable.parking import Parking, Phase
from durable.recording import Recording
from durable.retry import RetryPolicy
from durable.runlog import RunLog
from durable.start import Start, input_of, row_of
from durable.workflow import Lane, Workflow
from durable.writer import RecordRefused

if TYPE_CHECKING:
    from durable.services import Services

Seconds = float | timedelta
JoinMode = Literal["all", "first_failure", "any"]
_LIVE = Phase.LIVE


class Ran:
    """What `confirm` returns when an at-most-once step did take effect, with its result."""

    def __init__(self, value: Any = None):
        self.value = value


class NotRun:
    """What `confirm` returns when an at-most-once step certainly did not take effect."""


class DurableContext(Recording):
    """What a workflow acts through. One per task; never shared, never stored."""

    __slots__ = ("queue", "spawned", "version")

    def __init__(
        self,
        services: Services,
        parking: Parking,
        replay: Replay | None,
        pos: int,
        queue: str,
        prefix: str = "",
        version: str | None = None,
    ):
        super().__init__(services, parking, replay, pos, prefix)
        self.queue = queue
        self.version = version
        self.spawned = False

    @property
    def log(self) -> RunLog:
        """`ctx.log.info("charged", order=42)`."""
        return RunLog(self)

    # ---------------------------------------------------------------- steps

    async def step(
        self,
        *call: Any,
        retry: RetryPolicy | None = None,
        timeout: Seconds | None = None,
        lane: Lane | None = None,
        **kwargs: Any,
    ) -> Any:
        """Run `fn(*args, **kwargs)` as a step: `ctx.step(fn, *args)` or `ctx.step("name", fn, *args)`.
        At least once, recorded exactly once. Fails as `StepFailed` when the retry policy gives up."""
        name, fn, args = _call(call)
        traits = traits_of(fn)
        key = self._key(name or traits.name)
        if self._replay is not None and (done := self._replay.step_at_hand(key)) is not None:
            return self._given_back(done)
        parking = self._parking
        limit = traits.timeout if timeout is None else _seconds(timeout)
        simple = lane is None and limit is None and traits.on_loop
        free = parking.phase is _LIVE and parking.stop is None and not parking.leaving
        if not free or not simple or self._replay is not None:
            where = lane or traits.lane or lane_of(fn, limit)
            return await self._step_anyhow(key, fn, args, kwargs, retry or traits.retry, limit, where)
        # The hot path, the first attempt of an async step: no timer, no task, no thread, no layer in between.
        parking.busy += 1
        try:
            if (began := monotonic()) > self._services.gate.closes_at:
                await self._wait_at_gate()
            info = StepInfo(self.run_id, self.task_id, key, 1, self.say_from_step)
            if faults.armed:
                faults.point("step.before", info)
            token = current.set(info)
            try:
                value = await fn(*args, **kwargs)
            finally:
                current.reset(token)
            if faults.armed:
                faults.point("step.after", info)
            pos, data = self._pos, codec.encode(value, self._most)
            await self._hand_in("step", key, self.sealed(data), None, int((monotonic() - began) * 1000))
            if self._open_transactions or parking.phase is not _LIVE:
                await self._in_turn(pos)
        except BaseException as exc:
            if isinstance(exc, RecordRefused) or not isinstance(exc, Exception):
                parking.done()
                raise
            failed = exc
        else:
            parking.done()
            return value if type(value) in codec.PLAIN else codec.decode(data)
        return await self._step_anyhow(key, fn, args, kwargs, retry or traits.retry, None, "loop", failed)

    async def transaction(self, *call: Any, retry: RetryPolicy | None = None, **kwargs: Any) -> Any:
        """Run `fn(connection, *args)`: what it writes commits together with the step's record, exactly once.

        An async function gets a `psycopg.AsyncConnection`, a plain one a `psycopg.Connection` in a thread. Only the
        runtime's own database is covered.
        """
        name, fn, args = _call(call)
        traits = traits_of(fn)
        key = self._key(name or traits.name)

        async def perform(attempt: int) -> Any:
            await self._wait_at_gate()
            info = StepInfo(self.run_id, self.task_id, key, attempt, self.say_from_step)
            return await self._services.transactions.run(self, info, fn, args, kwargs)

        return await self._with_retries(key, retry or traits.retry, perform)

    async def at_most_once(self, *call: Any, confirm: Callable[..., Any] | None = None, **kwargs: Any) -> Any:
        """Run a step that must never run twice. Its intent is recorded first.

        After a crash in between, `confirm(*args)` says whether it took effect: `Ran(value)` or `NotRun()`. Without a
        confirm, or when it does not know, the run waits for a person (`durable runs decide`).
        """
        name, fn, args = _call(call)
        key = self._key(name or traits_of(fn).name)
        decided: Ran | NotRun | StepUncertain | None = None
        while (record := await self._recorded(key, ("intent", "step", "failed"))) is not None:
            if record.kind == "step":
                return self.opened(record.body)
            if record.kind == "failed":
                raise raised(record.body)
            if self._replay is None or not self._replay.comes_first(key, f"{self._prefix}{key}:"):
                decided = await self._decide(key, args, kwargs, confirm)
        async with self._operation():
            if isinstance(decided, Ran):
                return await self.record_value("step", key, decided.value)
            if isinstance(decided, StepUncertain):
                await self._record("failed", key, codec.encode(decided.error))
                raise decided
            # Each try has an intent of its own: what was decided about the last one says nothing about this.
            await self._record("intent", key, b"null")
            return await self._run_once(key, fn, args, kwargs)

    # ---------------------------------------------------------------- waits

    async def sleep(self, duration: Seconds, *, name: str = "sleep") -> None:
        """Sleep without holding a slot, through crashes and restarts."""
        await self.sleep_by(lambda now: now + _seconds(duration), name=name)

    async def sleep_until(self, when: datetime, *, name: str = "sleep") -> None:
        """Sleep until a time with a zone."""
        if when.tzinfo is None:
            raise ValueRefused(f"sleep_until({when.isoformat()}): a time without a zone; add tzinfo=UTC")
        await self.sleep_by(lambda now: when.timestamp(), name=name)

    async def sleep_by(self, end: Callable[[float], float], *, name: str = "sleep") -> int:
        """Sleep until what `end` makes of the time it is now; asked once, then recorded. Where its end is recorded."""
        key = self._key(name)
        record = await self._recorded(key, ("sleep",))
        if record is None:
            async with self._operation():
                until = end(self._services.clock.now())
                await self._note("sleep", key, codec.encode({"until": until}), before_wait=True)
        else:
            until = record.body["until"]
        slept = await self._recorded(key, ("slept",))
        if slept is not None:
            return slept.pos
        async with self._operation():
            await self._parking.until(key, until)
            self._parking.check()
            return await self._note("slept", key, b"null")

    async def wait_for_event(
        self,
        event: str,
        *,
        timeout: Seconds | None = None,
        since: datetime | None = None,
        name: str | None = None,
    ) -> Any:
        """The payload of the oldest event of this name that this wait has not received yet.

        Raises `EventTimeout` when `timeout` is over first; that outcome is recorded and a late event changes nothing.
        """
        step = name or f"event:{event}"
        key = self._key(step)
        record = await self._recorded(key, ("event", "timeout"))
        if record is None:
            async with self._operation():
                until = None if timeout is None else self._services.clock.now() + _seconds(timeout)
                row = self._wait_row(key) | {"n": event, "s": f"{self.task_id}/{step}", "until": until}
                row["since"] = since.timestamp() if since else None
                outcome = await self._parking.outcome(key, row, until)
                kind = "timeout" if "timeout" in outcome else "event"
                # Not `encode`, here and below: what others made of it has been through it, and may be sealed.
                pos = await self._note(kind, key, orjson.dumps(outcome), self._consumed(key))
                record = Record(pos, kind, key, outcome)
        if record.kind == "timeout":
            raise EventTimeout(event, record.pos)
        return self.opened(record.body["payload"])

    async def emit_event(self, event: str, payload: Any = None, *, name: str | None = None) -> None:
        """Emit an event, exactly once per call of this run."""
        key = self._key(name or f"emit:{event}")
        if await self._recorded(key, ("emit",)) is not None:
            return
        body = Fragment(self.sealed(self.encoded(payload)))
        async with self._operation():
            event_id = fine_uuid7()
            row = {"i": event_id, "n": event, "b": body, "r": self.run_id}
            await self._record("emit", key, codec.encode({"event": event_id}), effects={"events": [row]})

    # ---------------------------------------------------------------- children

    async def spawn(self, workflow: Workflow | str, *args: Any, options: Start | None = None, **kwargs: Any) -> Handle:
        """Start a child task of this run. It runs on its own; `wait_for` or `gather` gives its result."""
        group = await self.spawn_many(workflow, [input_of(workflow, args, kwargs)], options=options)
        return group[0]

    async def spawn_many(
        self, workflow: Workflow | str, inputs: Sequence[dict[str, Any]], *, options: Start | None = None
    ) -> Group:
        """Start many children with one record; each input is an object of named arguments."""
        name = workflow if isinstance(workflow, str) else workflow.name
        key = self._key((options and options.name) or f"spawn:{name}")
        record = await self._recorded(key, ("spawn",))
        self.spawned = True
        if record is not None:
            return Group(record.body["first"], record.body["count"], name)
        bodies = [Fragment(self.sealed(self.encoded(given))) for given in inputs]
        async with self._operation():
            first = group_start()
            line, deadline = await self._services.line_of((options and options.queue) or self.queue, name)
            base = {"run": self.run_id, "parent": self.task_id, "line": line, **row_of(options, deadline)}
            ids = child_ids(first, len(bodies))
            spawns = [{**base, "id": child, "input": body} for child, body in zip(ids, bodies, strict=True)]
            data = codec.encode({"first": first, "count": len(bodies)})
            await self._record("spawn", key, data, effects={"spawns": spawns} if spawns else None)
            return Group(first, len(bodies), name)

    async def start(self, workflow: Workflow | str, *args: Any, options: Start | None = None, **kwargs: Any) -> Handle:
        """Start another run. It stands in the list of runs, counts for the caps of its own workflow, and is cancelled
        if this one ends first; `wait_for` or `gather` gives its result.

        `StepFailed` if it cannot be started, recorded like any failure.
        """
        return (await self.start_many([(workflow, input_of(workflow, args, kwargs))], options=options))[0]

    async def start_many(
        self, calls: Sequence[tuple[Workflow | str, dict[str, Any]]], *, options: Start | None = None
    ) -> list[Handle]:
        """Start runs of several workflows with one record, each with an object of named arguments."""
        names = [workflow if isinstance(workflow, str) else workflow.name for workflow, _ in calls]
        key = self._key((options and options.name) or f"start:{','.join(names)}")
        record = await self._recorded(key, ("spawn", "failed"))
        if record is not None and record.kind == "failed":
            raise raised(record.body)
        self.spawned = True
        first = record.body["first"] if record else await self._start_runs(key, names, calls, options)
        ids = child_ids(first, len(names))
        return [Handle(run_id, name, run=True) for run_id, name in zip(ids, names, strict=True)]

    async def wait_for(
        self,
        tasks: Handle | Sequence[Handle],
        *,
        mode: JoinMode = "first_failure",
        name: str = "children",
        keep: bool = False,
    ) -> Any:
        """Wait for children without holding a slot; the result of one handle, or a list in the order given.

        `first_failure` raises `ChildFailed` as soon as one fails; `all` waits for every one first; `any` returns the
        result of the first that ends. With `keep` how they ended is recorded here too, and a replay reads nothing;
        always so for runs, which may be retried or pruned on their own.
        """
        handles: Sequence[Handle] = [tasks] if isinstance(tasks, Handle) else tasks
        key = self._key(name)
        if not handles:
            return []
        record = await self._joined(key, handles, mode, keep or any(handle.run for handle in handles))
        results = await self._child_results(record, handles)
        return results[0] if isinstance(tasks, Handle) or mode == "any" else results

    async def join(self, child: Handle, *, name: str) -> tuple[Any, int]:
        """`wait_for` one child with `keep`: its result, and the position of the record that holds it."""
        record = await self._joined(self._key(name), [child], "all", True)
        return (await self._child_results(record, [child]))[0], record.pos

    def on_stop(self, call: Callable[[str], None]) -> None:
        """Have `call` told, with the reason, as soon as this task is asked to end, in the middle of a step too."""
        self._parking.on_stop = call

    def cancel_child(self, child: Handle, reason: str) -> None:
        """Ask a child to end, with everything below it. Nothing waits for it; on a replay it was asked already."""
        if not self.replaying:
            self.say({"cancels": [{"r": self.run_id, "t": child.task_id, "n": reason}]})

    async def gather(self, *branches: Awaitable[Any] | Handle, return_exceptions: bool = False) -> list[Any]:
        """Run branches of this task side by side: steps, sleeps, waits, handles of children.

        The task parks only when all of them wait.
        """
        handles = [branch for branch in branches if isinstance(branch, Handle)]
        if handles and len(handles) == len(branches) and not return_exceptions:
            return list(await self.wait_for(handles))
        running = [self.wait_for(branch) if isinstance(branch, Handle) else branch for branch in branches]
        return list(await asyncio.gather(*running, return_exceptions=return_exceptions))

    async def map(
        self, workflow: Workflow | str, inputs: Sequence[dict[str, Any]], *, options: Start | None = None
    ) -> list[Any]:
        """One child per input, and their results in that order."""
        return list(await self.wait_for(await self.spawn_many(workflow, inputs, options=options)))

    # ---------------------------------------------------------------- recorded surroundings

    async def now(self) -> datetime:
        """The time, recorded: a replay sees the same."""
        return datetime.fromtimestamp(await self._noted("now", self._services.clock.now), UTC)

    async def random(self) -> float:
        """A number in [0, 1), recorded."""
        return float(await self._noted("random", random.random))

    async def uuid4(self) -> uuid.UUID:
        """A random UUID, recorded."""
        return uuid.UUID(await self._noted("uuid4", lambda: str(uuid.uuid4())))

    def cancel(self, reason: str) -> NoReturn:
        """End this task as cancelled, with everything below it, after its workflow's cleanup: as if a person had asked.

        A replay must come to the same point; everything that is recorded up to it stays.
        """
        raise Cancelled(f"cancel:{reason}")

    async def logged(self, level: str, first: UUID, last: UUID) -> list[tuple[str, str, Any]]:
        """Log lines of this task at a level, with ids in a range: step, message and fields of each. Lines that say by
        `pos` in their fields where they belong are left out if a retry took that part of the past back."""
        return await self._services.read_logged(self.run_id, self.task_id, level, first, last)

    def progress(self, done: float, total: float | None = None, note: str | None = None) -> None:
        """Say how far the run is. Only the newest is kept; nothing waits for it."""
        if not self.replaying:
            self.say({"progress": [{"r": self.run_id, "t": self.task_id, "d": done, "o": total, "n": note}]})

    # ---------------------------------------------------------------- inside

    async def _step_anyhow(
        self,
        key: str,
        fn: Callable[..., Any],
        args: Any,
        kwargs: Any,
        retry: RetryPolicy,
        limit: float | None,
        lane: Lane,
        failed: Exception | None = None,
    ) -> Any:
        """A step on any lane, at any time; `failed` is what its first attempt came to, if it was made already."""

        async def perform(attempt: int) -> Any:
            began = monotonic()
            value = await self._attempt(key, attempt, fn, args, kwargs, limit, lane)
            return await self.record_value("step", key, value, int((monotonic() - began) * 1000))

        return await self._with_retries(key, retry, perform, failed)

    async def _wait_at_gate(self) -> None:
        """No step begins while the lease may be over; nor does one that was told to stop meanwhile."""
        await self._services.gate.open()
        self._parking.check()

    async def _attempt(
        self,
        key: str,
        attempt: int,
        fn: Callable[..., Any],
        args: Any,
        kwargs: Any,
        limit: float | None,
        lane: Lane | None,
    ) -> Any:
        info = StepInfo(self.run_id, self.task_id, key, attempt, self.say_from_step)
        if self._services.gate.closed:
            await self._wait_at_gate()
        if faults.armed:
            faults.point("step.before", info)
        value = await self._services.lanes.run(info, fn, args, kwargs, limit, lane)
        if faults.armed:
            faults.point("step.after", info)
        return value

    async def _run_once(self, key: str, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        began = monotonic()
        try:
            value = await self._attempt(key, 1, fn, args, kwargs, None, None)
            return await self.record_value("step", key, value, int((monotonic() - began) * 1000))
        except RecordRefused:
            raise
        except Exception as exc:
            error = {**describe(exc), "step": key, "attempt": 1, "pos": self._pos}
            await self._record("failed", key, codec.encode(error))
            raise raised(error) from None

    async def _decide(
        self, key: str, args: Any, kwargs: Any, confirm: Callable[..., Any] | None
    ) -> Ran | NotRun | StepUncertain:
        """Whether an at-most-once step that was begun took effect: ask `confirm`, then a person."""
        if confirm is not None:
            said = await self.step(f"{key}:confirm", _ask, confirm, args, kwargs)
            if said["sure"]:
                return Ran(said["value"]) if said["ran"] else NotRun()
        answer = await self.wait_for_event(f"durable.decide/{self.task_id}/{key}", name=f"{key}:decide")
        if "ran" in answer:
            return Ran(answer["ran"])
        if answer.get("again"):
            return NotRun()
        message = answer.get("fail") or "a person decided that it failed"
        return StepUncertain({"type": "StepUncertain", "message": message, "step": key, "pos": self._pos})

    async def _start_runs(self, key: str, names: list[str], calls: Sequence[Any], options: Start | None) -> str:
        bodies = [Fragment(self.sealed(self.encoded(given))) for _, given in calls]
        async with self._operation():
            try:
                lines = [
                    await self._services.line_of((options and options.queue) or self.queue, name) for name in names
                ]
            except Refused as exc:
                error = {**describe(exc), "step": key, "attempt": 1, "pos": self._pos}
                await self._record("failed", key, codec.encode(error))
                raise raised(error) from None
            first = group_start()
            base = {"parent_run": self.run_id, "parent_task": self.task_id}
            ids = child_ids(first, len(names))
            runs = [
                {
                    **base,
                    "line": line,
                    **row_of(options, deadline),
                    **_sooner(options, deadline),
                    "id": run_id,
                    "input": body,
                }
                for run_id, (line, deadline), body in zip(ids, lines, bodies, strict=True)
            ]
            data = codec.encode({"first": first, "count": len(names)})
            await self._record("spawn", key, data, effects={"spawns": runs} if runs else None)
            return first

    async def _joined(self, key: str, handles: Sequence[Handle], mode: JoinMode, keep: bool) -> Record:
        """The record that says how a wait for children was decided; with `keep`, also how they ended."""
        record = await self._recorded(key, ("child",))
        if record is not None:
            return record
        async with self._operation():
            row, consumed = self._wait_row(key) | {"mode": mode} | span(handles), self._consumed(key)
            outcome = await self._parking.outcome(key, row, None)
            if not keep:
                return Record(await self._note("child", key, orjson.dumps(outcome), consumed), "child", key, outcome)
            outcome = {**outcome, "ended": await self._services.read_children(_decisive(outcome, handles))}
            # Committed before anybody sees it: a child that is a run may be retried, and come to something else.
            pos = await self._record("child", key, orjson.dumps(outcome), effects=consumed)
            return Record(pos, "child", key, outcome)

    async def _child_results(self, record: Record, handles: Sequence[Handle]) -> list[Any]:
        """How the children ended; the record says which one of them decided the wait, if one did."""
        first, rows = record.body.get("first"), record.body.get("ended")
        if rows is None:
            rows = await self._read_children(_decisive(record.body, handles))
        bad = [(task_id, state, error) for task_id, state, _, error in rows if state != "succeeded"]
        if bad:
            task_id, state, error = bad[0]
            error = error or {"type": "ChildFailed", "message": f"{task_id} was {state}"}
            everyone = {"children": [row[0] for row in bad]} if len(bad) > 1 else {}
            raise ChildFailed({**error, **everyone, "child": task_id, "step": record.name, "pos": record.pos})
        if first is not None or isinstance(handles, Group):
            return [self.opened(row[2]) for row in rows]
        by_id = {row[0]: self.opened(row[2]) for row in rows}
        return [by_id[handle.task_id] for handle in handles]

    async def _read_children(self, which: dict[str, Any]) -> list[Any]:
        """An operation, though nothing is recorded: a task that parked meanwhile could lose this branch's turn."""
        replay = self._replay
        if replay is not None:
            replay.reading += 1
        try:
            async with self._operation():
                return await self._services.read_children(which)
        finally:
            if replay is not None:
                replay.reading -= 1

    async def _noted(self, name: str, make: Callable[[], Any]) -> Any:
        key = self._key(name)
        record = await self._recorded(key, ("value",))
        if record is not None:
            return self.opened(record.body)
        async with self._operation():
            return await self.record_value("value", key, make())

    def _wait_row(self, key: str) -> dict[str, Any]:
        return {"r": self.run_id, "t": self.task_id, "k": key}

    def _consumed(self, key: str) -> dict[str, list[dict[str, Any]]]:
        return {"consumed": [self._wait_row(key)]}


def _sooner(options: Start | None, deadline: float | None) -> dict[str, float]:
    """A starter may give a run less time than its workflow does, never more."""
    if options is None or options.deadline is None or deadline is None:
        return {}
    return {"deadline": min(deadline, _seconds(options.deadline))}


def _decisive(outcome: dict[str, Any], handles: Sequence[Handle]) -> dict[str, Any]:
    """Which children a wait's outcome is about: the one that decided it, or all."""
    return span(handles) if outcome.get("first") is None else {"kids": [outcome["first"]]}


async def _ask(confirm: Callable[..., Any], args: Any, kwargs: Any) -> dict[str, Any]:
    """Call a confirm function; its answer as a recordable value."""
    said = confirm(*args, **kwargs)
    if asyncio.iscoroutine(said):
        said = await said
    if isinstance(said, Ran):
        return {"sure": True, "ran": True, "value": said.value}
    return {"sure": isinstance(said, NotRun), "ran": False, "value": None}


def _call(call: tuple[Any, ...]) -> tuple[str | None, Callable[..., Any], tuple[Any, ...]]:
    """`("name", fn, *args)` or `(fn, *args)`."""
    if call and type(call[0]) is FunctionType:
        return None, call[0], call[1:]
    if not call:
        raise TypeError("a step needs a function: ctx.step(fn, *args) or ctx.step('name', fn, *args)")
    if isinstance(call[0], str):
        if len(call) < 2 or not callable(call[1]):
            raise TypeError(f"step {call[0]!r} has no function: ctx.step({call[0]!r}, fn, *args)")
        return call[0], call[1], call[2:]
    if not callable(call[0]):
        raise TypeError(f"{call[0]!r} is not a function; a step is ctx.step(fn, *args)")
    return None, call[0], call[1:]


def _seconds(duration: Seconds) -> float:
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else float(duration)
    if not 0 <= seconds < 3e11:
        raise ValueRefused(f"a duration of {duration} is not between 0 and ten thousand years")
    return seconds
