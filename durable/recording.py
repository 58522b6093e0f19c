"""Names, positions and commits of one task's records: what every operation of the context stands on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from orjson import Fragment

from durable import codec
from durable.errors import Diverged, Evicted
from durable.failures import describe, raised
from durable.journal import Record, Replay
from durable.parking import Parking, Phase
from durable.retry import RetryPolicy
from durable.writer import Entry, Json, RecordRefused

if TYPE_CHECKING:
    from durable.services import Services

Effects = dict[str, list[Json]]
_DEAD = Phase.DEAD
_ROW = 64  # what a journal row weighs besides its body


class Recording:
    """The journal of one task, as its code sees it: what was, and what is being added."""

    __slots__ = (
        "_counts", "_loop", "_most", "_new_future", "_newest", "_open_transactions", "_parking", "_pos", "_prefix",
        "_replay", "_sealing", "_services", "_writer", "positions", "run_id", "snapshot", "snapshot_pos", "task_id",
        "weight",
    )  # fmt: skip

    def __init__(self, services: Services, parking: Parking, replay: Replay | None, pos: int, prefix: str):
        self.run_id = parking.run_id
        self.task_id = parking.task_id
        self._services = services
        self._parking = parking
        self._writer = parking.writer
        self._replay = replay
        self._pos = pos
        self._prefix = prefix
        self._counts: dict[str, int] = {}
        self._open_transactions: dict[int, asyncio.Future[None]] = {}
        self._newest: asyncio.Future[None] | None = None  # of the last record handed in; done after its commit
        self.snapshot_pos = -1
        self.snapshot: Any = None  # the state that this copy begins with, instead of the records that led to it
        self.weight = 0  # bytes recorded by this copy
        self.positions: dict[str, list[int]] | None = None  # by name, for who takes snapshots and forgets names
        self._loop = services.loop
        self._new_future: Callable[[], asyncio.Future[None]] = self._loop.create_future
        self._most = services.settings.max_value_bytes
        self._sealing = services.sealing

    @property
    def replaying(self) -> bool:
        """Whether something that must happen again has not yet."""
        return self._replay is not None and not self._replay.caught_up

    @property
    def epoch(self) -> int:
        return self._parking.epoch

    @property
    def position(self) -> int:
        """Where the next record will stand."""
        return self._pos

    def finish(self) -> None:
        """The workflow has returned: its journal must be used up."""
        if self._replay is not None:
            self._replay.finish()

    def forget(self, name: str) -> None:
        """The operation of this name was cancelled by the workflow itself, at a point that a replay comes to again."""
        if self._replay is not None:
            self._replay.forget(f"{self._prefix}{name}")

    def say(self, effects: Effects) -> None:
        """Something for the store that nobody waits for."""
        entry = Entry(self.task_id, None)
        entry.effects = effects
        self._writer.put(entry)

    def say_from_step(self, effects: Effects) -> None:
        """The same from a step's own thread: the writer belongs to the loop."""
        if _running_loop() is self._loop:
            self.say(effects)
        else:
            self._loop.call_soon_threadsafe(self.say, effects)

    # ---------------------------------------------------------------- the past

    def _key(self, name: str) -> str:
        counts = self._counts
        if name not in counts:
            counts[name] = 1
            return f"{self._prefix}{name}" if self._prefix else name
        counts[name] = count = counts[name] + 1
        return f"{self._prefix}{name}#{count}"

    def _given_back(self, record: Record) -> Any:
        """What a replay returns for a step that was done."""
        if self.positions is not None:
            self.positions.setdefault(record.name, []).append(record.pos)
        return record.body if type(record.body) in codec.PLAIN else self.opened(record.body)

    async def _recorded(self, key: str, kinds: tuple[str, ...]) -> Record | None:
        """The next record of `key` on a replay; None when the operation is to be performed."""
        if self._replay is None:
            return None
        record = await self._replay.take(key)
        if self._replay is not None and self._replay.over:
            self._replay = None
        if record is not None and self.positions is not None:
            self.positions.setdefault(key, []).append(record.pos)
        if record is not None and record.kind not in kinds:
            raise Diverged(
                f"run {self.run_id}: the journal holds {record.kind} {key!r} at position {record.pos}, but the workflow"
                f" asked for {' or '.join(kinds)} {key!r}. The code has changed since this run began: put the old code"
                " back and retry the run, or fork it from a step before this one."
            )
        return record

    # ---------------------------------------------------------------- what is added

    async def _record(
        self, kind: str, key: str, data: bytes, *, effects: Effects | None = None, ms: int | None = None
    ) -> int:
        """Add a record; its position, after its commit and in the order of positions."""
        pos = self._pos
        await self._hand_in(kind, key, data, effects, ms)
        await self._in_turn(pos)
        return pos

    def _hand_in(
        self,
        kind: str,
        key: str,
        data: bytes,
        effects: Effects | None,
        ms: int | None,
        refused: Callable[[BaseException], None] | None = None,
    ) -> asyncio.Future[None]:
        """Give a record its position and hand it to the writer; the future is done after its commit. With `refused`
        nobody may wait for it: it is queued only, and a refusal goes there."""
        if self._parking.phase is _DEAD:
            raise Evicted("this copy of the task no longer counts")
        pos = self._pos
        self._pos = pos + 1
        self._newest = future = self._new_future()
        entry = Entry(self.task_id, future)
        entry.record, value = self.row(kind, key, data, pos, ms)
        self.weight += len(data) + _ROW
        if self.positions is not None:
            self.positions.setdefault(key, []).append(pos)
        entry.effects = effects if value is None else {**(effects or {}), "values": [value]}
        if refused is None:
            self._writer.put(entry)
        else:
            entry.told = partial(_settle_note, future, refused)
            self._writer.put_lazily(entry)
        return future

    async def _note(
        self, kind: str, key: str, data: bytes, effects: Effects | None = None, *, before_wait: bool = False
    ) -> int:
        """Add a record of what a replay would find out again: how the store decided a wait, that a time is over. Nobody
        waits for its commit: whatever this task says next is committed with it or after it. Its position.

        `before_wait`: a wait follows, which sees that it is sent.
        """
        pos = self._pos
        self._hand_in(kind, key, data, effects, None, self._parking.break_off)
        if not before_wait:
            self._writer.kick()
        await self._in_turn(pos)
        return pos

    async def _in_turn(self, pos: int) -> None:
        """Records are consumed in the order of positions: a transaction step in front may still be committing."""
        while self._open_transactions and (first := min(self._open_transactions)) < pos:
            await self._open_transactions[first]
        if self._parking.phase is _DEAD:
            raise Evicted("this copy of the task no longer counts")

    def save(self, data: bytes) -> None:
        """Add a snapshot: a replay begins with it and with the open records in `positions`. Nothing waits for it."""
        entry = Entry(self.task_id, None)
        entry.record, value = self.row("snapshot", "snapshot", self.sealed(data), self._pos)
        open_now = sorted(pos for found in (self.positions or {}).values() for pos in found)
        entry.record["f"] = ",".join(map(str, open_now))
        entry.effects = None if value is None else {"values": [value]}
        self._pos += 1
        self._writer.put(entry)

    async def record_value(self, kind: str, key: str, value: Any, ms: int | None = None) -> Any:
        """Record a user's value; returns what a replay will return."""
        data = self.encoded(value)
        await self._record(kind, key, self.sealed(data), ms=ms)
        return codec.round_trip(value, data)

    def row(self, kind: str, key: str, data: bytes, pos: int, ms: int | None = None) -> tuple[Json, Json | None]:
        """A journal row, and the large value that it refers to, if any. What most rows have in common is left out."""
        value = None
        if len(data) > codec.LARGE:
            digest, small = codec.reference(data)
            value, data = {"r": self.run_id, "h": digest, "b": Fragment(data)}, small
        row: Json = {"t": self.task_id, "p": pos, "n": key, "b": Fragment(data)}
        if self.run_id != self.task_id:
            row["r"] = self.run_id
        if self._parking.epoch != 1:
            row["e"] = self._parking.epoch
        if kind != "step":
            row["k"] = kind
        if ms is not None and (ms or kind != "step"):
            row["m"] = ms
        return row, value

    def encoded(self, value: Any) -> bytes:
        return codec.encode(value, self._most)

    def sealed(self, data: bytes) -> bytes:
        return codec.sealed_with(self._services.codec, data) if self._sealing else data

    def opened(self, body: Any) -> Any:
        return codec.unsealed_with(self._services.codec, body)

    # ---------------------------------------------------------------- positions of transaction steps

    def check_live(self) -> None:
        if self._parking.phase is _DEAD:
            raise Evicted("this copy of the task no longer counts")

    async def take_position(self) -> int:
        """A position for a transaction step that is about to commit: later records are consumed after it, and earlier
        ones are committed before it, or a crash between the two would leave a gap in front of it."""
        while self._newest is not None and not self._newest.done():
            await asyncio.wait([self._newest])
        self.check_live()
        pos, self._pos = self._pos, self._pos + 1
        self._open_transactions[pos] = self._loop.create_future()
        return pos

    def release_position(self, pos: int) -> None:
        self._open_transactions.pop(pos).set_result(None)

    # ---------------------------------------------------------------- retries

    async def _with_retries(
        self, key: str, retry: RetryPolicy, perform: Callable[[int], Awaitable[Any]], failed: Exception | None = None
    ) -> Any:
        """Perform attempts until one is recorded as a success or as the last; rests are durable and free the slot.

        `failed` is what the first attempt came to, if it was made already; its operation is still under way.
        """
        attempt, rest_until = 1, None
        while (record := await self._recorded(key, ("step", "failed", "attempt"))) is not None:
            if record.kind == "step":
                return self.opened(record.body)
            if record.kind == "failed":
                raise raised(record.body)
            attempt, rest_until = record.body["attempt"] + 1, record.body["until"]
        parking = self._parking
        if failed is None:
            await parking.live()
            parking.busy += 1
        try:
            if failed is not None:
                rest_until = await self._failed_attempt(failed, key, attempt, retry, time.monotonic())
                attempt += 1
            while True:
                if rest_until is not None:
                    await parking.until(key, rest_until)
                    parking.check()
                began = time.monotonic()
                try:
                    return await perform(attempt)
                except Exception as exc:
                    if isinstance(exc, (Diverged, RecordRefused)):
                        raise
                    rest_until = await self._failed_attempt(exc, key, attempt, retry, began)
                    attempt += 1
        finally:
            parking.done()

    async def _failed_attempt(self, exc: Exception, key: str, attempt: int, retry: RetryPolicy, began: float) -> float:
        """Record a failure: until when to rest, or the exception for the workflow when it was the last attempt."""
        rest = retry.rest(attempt, exc)
        ms = int((time.monotonic() - began) * 1000)
        error = {**describe(exc), "step": key, "attempt": attempt, "pos": self._pos}
        if rest is None:
            await self._record("failed", key, codec.encode(error), ms=ms)
            raise raised(error) from None
        until = self._services.clock.now() + rest
        await self._record("attempt", key, codec.encode({"attempt": attempt, "until": until, "error": error}), ms=ms)
        return until

    def _operation(self) -> Operation:
        return Operation(self._parking)


class Operation:
    """An operation under way: the task cannot park meanwhile."""

    __slots__ = ("_parking",)

    def __init__(self, parking: Parking):
        self._parking = parking

    async def __aenter__(self) -> None:
        await self._parking.live()
        self._parking.busy += 1

    async def __aexit__(self, *_: object) -> None:
        self._parking.done()


def _settle_note(
    committed: asyncio.Future[None], refused: Callable[[BaseException], None], error: BaseException | None
) -> None:
    """A record that nobody waits for is committed, or refused."""
    if error is not None:
        refused(error)
    committed.set_result(None)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
