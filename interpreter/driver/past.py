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
    children: tuple[Handle, ...] = ()


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
            until = _moment(begun.body["until"]) if begun is not None else None
            slept = await self._wait(key, Waiting("sleep", name, until))
        return slept.pos

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
        record = await self._begun(str(options.name), workflow)
        return Group(record.body["first"], record.body["count"], workflow)

    async def start_many(self, calls: Sequence[tuple[str, Any]], *, options: Start) -> list[Handle]:
        names = [workflow for workflow, _ in calls]
        record = await self._begun(str(options.name), ", ".join(names))
        if record.kind == "failed":
            raise raised(record.body)
        ids = child_ids(record.body["first"], len(names))
        return [Handle(run_id, name, run=True) for run_id, name in zip(ids, names, strict=True)]

    async def wait_for(self, tasks: Sequence[Handle], *, mode: str = "all", name: str) -> list[Any]:
        record = await self._joined(tasks, name)
        return [self._result(handle, record) for handle in tasks]

    async def join(self, child: Handle, *, name: str) -> tuple[Any, int]:
        record = await self._joined([child], name)
        return self._result(child, record), record.pos

    def on_stop(self, call: Callable[[str], None]) -> None:
        """Nobody asks the past to end."""

    async def logged(self, *which: Any) -> list[Any]:
        """Nothing to compare with: what was noted follows from the same records."""
        return []

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

    async def _begun(self, name: str, workflow: str) -> Record:
        key = self._key(name)
        record = await self._take(key)
        if record is None:
            record = await self._wait(key, Waiting("spawn", workflow))
        self.spawned = True
        return record

    async def _joined(self, children: Sequence[Handle], name: str) -> Record:
        key = self._key(name)
        record = await self._take(key)
        return record or await self._wait(key, Waiting("children", name, children=tuple(children)))

    def _result(self, handle: Handle, record: Record) -> Any:
        """How a child ended: as the record says, else as the store does."""
        rows = {row[0]: Ended(*row[1:]) for row in record.body.get("ended") or ()}
        ended = rows.get(handle.task_id) or self._children[handle.task_id]
        if ended.state != "succeeded":
            error = ended.error or {"type": "ChildFailed", "message": f"{handle.task_id} was {ended.state}"}
            raise ChildFailed({**error, "child": handle.task_id, "step": record.name, "pos": record.pos})
        return ended.result


def _moment(stamp: float) -> datetime:
    return datetime.fromtimestamp(stamp, UTC)
