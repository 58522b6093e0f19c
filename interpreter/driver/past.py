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
from durable.failures import raised
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

    async def sleep_by(self, end: Callable[[float], float], *, name: str) -> None:
        key = self._key(name)
        begun = await self._take(key)
        if begun is None or await self._take(key) is None:
            await self._wait(key, Waiting("sleep", name, _moment(begun.body["until"]) if begun else None))

    async def wait_for_event(self, event: str, *, timeout: Any = None, name: str, **options: Any) -> Any:
        key = self._key(name)
        record = await self._take(key)
        if record is None:
            return await self._wait(key, Waiting("event", event))
        if record.kind == "timeout":
            raise EventTimeout(event)
        return record.body["payload"]

    async def emit_event(self, event: str, payload: Any = None, *, name: str) -> None:
        key = self._key(name)
        if await self._take(key) is None:
            await self._wait(key, Waiting("emit", event))

    async def spawn(self, workflow: str, *args: Any, options: Start, **given: Any) -> Handle:
        return (await self.spawn_many(workflow, [given], options=options))[0]

    async def spawn_many(self, workflow: str, inputs: Sequence[Any], *, options: Start) -> Group:
        key = self._key(str(options.name))
        record = await self._take(key)
        if record is None:
            record = await self._wait(key, Waiting("spawn", workflow))
        return Group(record.body["first"], record.body["count"], workflow)

    async def wait_for(self, tasks: Handle | Sequence[Handle], *, mode: str = "all", name: str) -> Any:
        handles = [tasks] if isinstance(tasks, Handle) else list(tasks)
        key = self._key(name)
        record = await self._take(key) if handles else None
        if record is None and handles:
            await self._wait(key, Waiting("children", name, tasks=tuple(handle.task_id for handle in handles)))
        results = [self._result(handle, record) for handle in handles]
        return results[0] if isinstance(tasks, Handle) else results

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

    def _result(self, handle: Handle, record: Record | None) -> Any:
        ended = self._children[handle.task_id]
        if ended.state != "succeeded":
            at = {"step": record.name, "pos": record.pos} if record else {}
            raise ChildFailed({**(ended.error or {}), "child": handle.task_id, **at})
        return ended.result


def _moment(stamp: float) -> datetime:
    return datetime.fromtimestamp(stamp, UTC)
