"""A context that only knows the past: it hands out what was recorded, and whatever is not recorded waits for ever.

The driver on it does again what it did on a worker, without a database, a function of the user's or an effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from durable import ChildFailed, EventTimeout, Handle, Start
from durable.children import Group
from durable.codec import MARK
from durable.failures import raised
from durable.ids import child_ids
from durable.journal import Record, Replay


@dataclass(frozen=True, slots=True)
class Waiting:
    """An operation that has no outcome yet: what it is, and what it waits for."""

    kind: str  # step, retry, sleep, event, emit, spawn, children
    name: str = ""
    until: datetime | None = None
    attempt: int = 1
    error: dict[str, Any] | None = None
    tasks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child ended."""

    state: str
    result: Any
    error: dict[str, Any] | None


class Past:
    """The recorded past of one task, in the shape of the context that its driver works on."""

    def __init__(self, run_id: str, task_id: str, records: list[Record], children: dict[str, Ended]):
        self.run_id = run_id
        self.task_id = task_id
        self.version: str | None = None
        self.snapshot = None
        self.snapshot_pos = -1
        self.position = 0
        self.spawned = False
        self.weight = 0
        self.replaying = True
        self.positions: dict[str, list[int]] | None = None
        self.waiting: dict[str, Waiting] = {}
        self.moves = 0  # whatever happens adds to it: no more of it means that the past is used up
        self._children = children
        self._replay = Replay(run_id, [record for record in records if record.kind != "snapshot"])
        self._counts: dict[str, int] = {}

    # ---------------------------------------------------------------- what the driver asks for

    async def step(self, name: str, *call: Any, **options: Any) -> Any:
        key, attempt, last = self._key(name), 1, None
        while (record := await self._take(key)) is not None:
            if record.kind == "step":
                return record.body
            if record.kind == "failed":
                raise raised(record.body)
            attempt, last = record.body["attempt"] + 1, record.body
        if last is None:
            return await self._wait(key, Waiting("step", name))
        return await self._wait(key, Waiting("retry", name, _moment(last["until"]), attempt, last["error"]))

    async def transaction(self, name: str, *call: Any, **options: Any) -> Any:
        return await self.step(name)

    async def sleep(self, duration: Any, *, name: str) -> None:
        await self.sleep_by(lambda now: now, name=name)

    async def sleep_by(self, end: Callable[[float], float], *, name: str) -> int:
        key = self._key(name)
        begun = await self._take(key)
        slept = await self._take(key) if begun is not None else None
        if slept is None:
            slept = await self._wait(key, Waiting("sleep", name, _moment(begun.body["until"]) if begun else None))
        return int(slept.pos)

    async def wait_for_event(self, event: str, *, timeout: Any = None, name: str, **options: Any) -> Any:
        key = self._key(name)
        record = await self._take(key)
        if record is None:
            return await self._wait(key, Waiting("event", event))
        if record.kind == "timeout":
            raise EventTimeout(event, record.pos)
        return record.body["payload"]

    async def emit_event(self, event: str, payload: Any = None, *, name: str) -> None:
        key = self._key(name)
        if await self._take(key) is None:
            await self._wait(key, Waiting("emit", event))

    async def spawn_many(self, workflow: str, inputs: Sequence[Any], *, options: Start) -> Group:
        key = self._key(str(options.name))
        record = await self._take(key)
        if record is None:
            record = await self._wait(key, Waiting("spawn", workflow))
        return Group(record.body["first"], record.body["count"], workflow)

    async def start_many(self, calls: Sequence[tuple[Any, dict[str, Any]]], *, options: Start) -> list[Handle]:
        key, names = self._key(str(options.name)), [str(workflow) for workflow, _ in calls]
        record = await self._take(key)
        if record is None:
            record = await self._wait(key, Waiting("spawn", ", ".join(names)))
        if record.kind == "failed":
            raise raised(record.body)
        ids = child_ids(record.body["first"], len(names))
        return [Handle(run_id, name, run=True) for run_id, name in zip(ids, names, strict=True)]

    async def wait_for(self, tasks: Sequence[Handle], *, mode: str = "all", name: str) -> list[Any]:
        return (await self._joined(tasks, name))[0] if tasks else []

    async def join(self, child: Handle, *, name: str) -> tuple[Any, int]:
        results, pos = await self._joined([child], name)
        return results[0], pos

    async def logged(self, level: str, first: Any, last: Any) -> list[Any]:
        """Nothing is compared here: whoever looks wants to see what the walk makes of its records now."""
        return []

    def on_stop(self, call: Callable[[str], None]) -> None:
        """Nobody stops what is over."""

    def cancel_child(self, child: Handle, reason: str) -> None:
        """It was cancelled then."""

    def forget(self, name: str) -> None:
        self.moves += 1
        self.waiting.pop(name, None)
        self._replay.forget(name)

    def say(self, effects: Any) -> None:
        """It was said then."""

    def save(self, data: bytes) -> None:
        """It was saved then."""

    # ---------------------------------------------------------------- inside

    def _key(self, name: str) -> str:
        count = self._counts[name] = self._counts.get(name, 0) + 1
        return name if count == 1 else f"{name}#{count}"

    async def _take(self, key: str) -> Record | None:
        self.moves += 1
        record = await self._replay.take(key)
        self.moves += 1
        return record

    async def _wait(self, key: str, what: Waiting) -> Any:
        self.moves += 1
        self.waiting[key] = what
        try:
            return await asyncio.get_running_loop().create_future()
        finally:
            self.waiting.pop(key, None)

    async def _joined(self, handles: Sequence[Handle], name: str) -> tuple[list[Any], int]:
        key = self._key(name)
        record = await self._take(key)
        if record is None:
            record = await self._wait(key, Waiting("children", name, tasks=tuple(h.task_id for h in handles)))
        ended = {task_id: Ended(state, result, error) for task_id, state, result, error in record.body["ended"]}
        return [self._result(handle, ended[handle.task_id], record) for handle in handles], record.pos

    def _result(self, handle: Handle, ended: Ended, record: Record) -> Any:
        if ended.state != "succeeded":
            error = ended.error or {"type": "ChildFailed", "message": f"{handle.task_id} was {ended.state}"}
            raise ChildFailed({**error, "child": handle.task_id, "step": record.name, "pos": record.pos})
        if isinstance(ended.result, dict) and MARK in ended.result:
            # The record has it sealed; the child's own row was opened by whoever read it.
            return self._children[handle.task_id].result
        return ended.result


def _moment(stamp: float) -> datetime:
    return datetime.fromtimestamp(stamp, UTC)
