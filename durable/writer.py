"""The journal writer: group commit for everything that a worker's tasks have to say.

Entries queue up while a flush is on its way; the next flush takes all of them in one call and one commit. An entry
is settled only after its commit. There is no timer: a single waiting entry is flushed at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import orjson
import psycopg
import structlog

from durable import faults
from durable.channel import AlreadyApplied, Channel
from durable.claims import NOTHING, Want
from durable.ending import end
from durable.errors import DurableError, LeaseLost
from durable.statements import statement

log = structlog.get_logger("durable.writer")

FLUSH = "select durable.flush($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
RECORD = statement("record")

Json = dict[str, Any]
# Who is told when an entry is committed or refused: a future on the hot path, a function, or nobody.
Told = asyncio.Future[None] | Callable[[BaseException | None], None] | None

# So many ends the store tells with the commit itself, and such commits wait for each other; more are told after it.
TOLD_AT_ONCE = 4


class Entry:
    """What one task says at one moment: a record, its effects, and how the task goes on."""

    __slots__ = ("effects", "end", "park", "record", "run_ends", "task_id", "told")

    def __init__(self, task_id: str, told: Told):
        self.task_id = task_id
        self.told = told
        self.record: Json | None = None
        self.end: Json | None = None
        self.run_ends = False  # the end is that of a run: somebody may wait for it
        self.park: Json | None = None
        self.effects: dict[str, list[Json]] | None = None

    @property
    def is_plain(self) -> bool:
        """A record and nothing else."""
        return self.record is not None and self.effects is None and self.end is None and self.park is None

    def columns(self) -> list[bytes | None]:
        """A plain one as the last parameters of the statement `record`."""
        row = self.record
        assert row is not None
        task, kind, frame = row["t"].encode(), row.get("k", "step"), row.get("f")
        ms = row.get("m", 0 if kind == "step" else None)
        return [
            row["r"].encode() if "r" in row else task, task, b"%d" % row["p"], b"%d" % row.get("e", 1),
            kind.encode(), row["n"].encode(), None if frame is None else frame.encode(),
            orjson.dumps(row["b"]), None if ms is None else b"%d" % ms,
        ]  # fmt: skip

    def settle(self, error: BaseException | None = None) -> None:
        told = self.told
        if isinstance(told, asyncio.Future):
            if not told.done():
                if error is None:
                    told.set_result(None)
                else:
                    told.set_exception(error)
        elif told is not None:
            told(error)


class Claims(Protocol):
    """Where claims come from and answers go to: the worker."""

    def wanted(self, passing: bool = False) -> Want:
        """The claim to send along."""

    def answered(self, want: Want, answer: list[Any]) -> None:
        """Take in an answer: [now, claimed, told, refused, met, shards, lines]; empty when it was lost."""

    async def reconcile(self) -> None:
        """Ask the store what this worker holds, after an answer was lost."""

    def ended(self, runs: list[str]) -> None:
        """The ends of these runs are committed, and those who wait for them do not know yet."""

    def died(self, error: LeaseLost) -> None:
        """The worker lost its lease."""


class JournalWriter:
    """Sends queued entries through one fenced channel, one batch at a time.

    Driven by callbacks, not by a task of its own: with few tasks in flight a step waits for every turn of the loop
    between its record and the wire.
    """

    MAX_BATCH = 2000

    def __init__(self, channel: Channel, claims: Claims):
        self._channel = channel
        self._claims = claims
        self._queue: list[Entry] = []
        self._loop = asyncio.get_running_loop()
        self._failed: asyncio.Future[None] = self._loop.create_future()
        self._mending: asyncio.Task[None] | None = None
        self._turn_comes = False
        self._expecting = False  # somebody has just begun, and is to be in the batch
        self._sending = True  # until `run`
        self._urgent = False  # something in the queue is not to wait for what may follow it
        self._owing = 0  # tasks that the last answer let go on, and that have not handed in anything since
        self._refused: dict[str, RecordRefused] = {}  # by task, while a batch is sent in parts
        self._settling: list[asyncio.Future[None]] = []
        self.flushes = 0
        self.records = 0

    def put(self, entry: Entry) -> None:
        """Queue an entry and see that it is flushed: at once if nobody else is about to speak, else with them."""
        self._queue.append(entry)
        self._urgent = True
        self._owing -= 1
        if not self._sending:
            if self._owing == 0:
                self._send()
            elif not self._turn_comes:
                self._take_turn()

    def put_lazily(self, entry: Entry) -> None:
        """Queue an entry that something else will follow at once; `kick` if nothing does."""
        self._queue.append(entry)

    def kick(self) -> None:
        """Send what there is, and ask for work."""
        self._urgent = True
        if not self._turn_comes and not self._sending:
            self._take_turn()

    def expect(self) -> None:
        """A task begins now, and may have something to say at once: let it be in the same batch."""
        self._owing += 1
        self._expecting = True

    @property
    def idle(self) -> bool:
        return not self._sending

    async def settled(self) -> None:
        """Return when everything that was queued is committed."""
        if self._queue or self._sending:
            done: asyncio.Future[None] = self._loop.create_future()
            self._settling.append(done)
            self.kick()
            await done

    async def run(self) -> None:
        """Flush until cancelled, or until something of ours fails."""
        self._sending = False
        self.kick()
        try:
            await self._failed
        finally:
            self._sending = True
            if self._mending is not None:
                await end([self._mending])

    # ---------------------------------------------------------------- there

    def _take_turn(self) -> None:
        """Behind everything that is about to run now, so that what it has to say is in the batch."""
        self._turn_comes = True
        self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        if self._expecting:
            self._expecting = False
            self._take_turn()
            return
        self._turn_comes = False
        if not self._sending:
            self._send()

    def _send(self) -> None:
        want = self._claims.wanted()
        if not want.number and not (self._queue and (self._urgent or self._settling)):
            self._tell_settled()
            return
        batch = self._queue
        if len(batch) > self.MAX_BATCH:
            batch, self._queue = batch[: self.MAX_BATCH], batch[self.MAX_BATCH :]
        else:
            self._queue = []
            self._urgent = False
        self._sending = True
        self._owing = 0
        self.flushes += 1
        self.records += len(batch)
        faults.point("flush.before")
        try:
            if len(batch) == 1 and not want.number and batch[0].is_plain:
                self._channel.post_keyed(RECORD, batch[0].columns(), partial(self._recorded, batch), "flush.sent")
            else:
                self._send_flush(batch, want)
        except Exception as exc:
            # Ours, and not of the step whose entry happened to be the last.
            self._fail(exc)

    def _send_flush(self, batch: list[Entry], want: Want) -> None:
        params = [*encode(batch), *claim_params(want)]
        self._channel.post(FLUSH, params, partial(self._answered, batch, want), "flush.sent")

    # ---------------------------------------------------------------- and back

    def _recorded(self, batch: list[Entry], answer: bytes | None, error: BaseException | None) -> None:
        """A single record is committed; or it was not taken, because something happened to its task."""
        if answer is None and error is None:
            self._send_flush(batch, NOTHING)
        else:
            self._answered(batch, NOTHING, None, error)

    def _answered(self, batch: list[Entry], want: Want, answer: bytes | None, error: BaseException | None) -> None:
        try:
            if error is not None:
                self._mending = self._loop.create_task(self._mend(batch, want, error))
                return
            faults.point("flush.after")
            if answer is not None:
                self._claims.answered(want, orjson.loads(answer))
            self._next(batch)
        except Exception as exc:
            self._fail(exc)

    def _next(self, batch: Sequence[Entry]) -> None:
        self._owing = len(batch)
        self._settle(batch)
        self._sending = False
        if self._settling and not self._queue:
            self._tell_settled()
        # Behind those who were just let go on: if not all of them hand in something, what there is goes then.
        self._take_turn()

    def _settle(self, batch: Sequence[Entry]) -> None:
        ended = [entry for entry in batch if entry.end is not None]
        if len(ended) > TOLD_AT_ONCE:
            self._claims.ended([entry.task_id for entry in ended if entry.run_ends])
        for entry in batch:
            told = entry.told
            # The hot case first: a record whose step waits for it.
            if type(told) is asyncio.Future and not told.done():
                told.set_result(None)
            else:
                entry.settle()

    def _tell_settled(self) -> None:
        for done in self._settling:
            if not done.done():
                done.set_result(None)
        self._settling.clear()

    def _fail(self, exc: Exception) -> None:
        if isinstance(exc, LeaseLost):
            self._claims.died(exc)
        elif not self._failed.done():
            self._failed.set_exception(exc)

    # ---------------------------------------------------------------- when it does not come back well

    async def _mend(self, batch: list[Entry], want: Want, error: BaseException) -> None:
        try:
            self._claims.answered(want, [])
            self._refused = {}
            await self._mend_batch(batch, error)
            self._next(())
        except Exception as exc:
            self._fail(exc)

    async def _mend_batch(self, batch: list[Entry], error: BaseException) -> None:
        if isinstance(error, AlreadyApplied):
            self._settle(batch)
            await self._claims.reconcile()
        elif isinstance(error, psycopg.Error):
            await self._flush_in_parts(batch, error)
        else:
            raise error

    async def _flush(self, whole: list[Entry]) -> None:
        batch = [entry for entry in whole if entry.task_id not in self._refused]
        for entry in whole:
            if entry.task_id in self._refused:
                entry.settle(self._refused[entry.task_id])
        if not batch:
            return
        self.flushes += 1
        try:
            answer = await self._channel.call(FLUSH, [*encode(batch), *claim_params(NOTHING)], "flush.sent")
        except (AlreadyApplied, psycopg.Error) as exc:
            await self._mend_batch(batch, exc)
            return
        self._claims.answered(NOTHING, orjson.loads(answer))
        self._settle(batch)

    async def _flush_in_parts(self, batch: list[Entry], exc: psycopg.Error) -> None:
        """One bad record must not fail its neighbours: halve until it stands alone."""
        if len(batch) == 0:
            log.warning("a claim failed and will be tried again", error=str(exc).strip())
            return
        if len(batch) == 1:
            if isinstance(exc, (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)):
                # Again, and before what follows it: a park must not overtake the wait that it is for.
                await self._flush(batch)
            else:
                self._refuse(batch[0], exc)
            return
        middle = len(batch) // 2
        await self._flush(batch[:middle])
        await self._flush(batch[middle:])

    def _refuse(self, entry: Entry, exc: psycopg.Error) -> None:
        """The store will not have it; nor then what its task said after it, or its journal would have a gap."""
        error = self._refused[entry.task_id] = RecordRefused(entry.task_id, exc)
        since = [later for later in self._queue if later.task_id == entry.task_id]
        self._queue = [later for later in self._queue if later.task_id != entry.task_id]
        for said in (entry, *since):
            said.settle(error)


class RecordRefused(DurableError):
    """The store refused one task's record for good."""

    def __init__(self, task_id: str, cause: psycopg.Error):
        self.sqlstate = cause.sqlstate
        super().__init__(f"the store refused a record of task {task_id}: {str(cause).strip()}")


def claim_params(want: Want) -> list[bytes | None]:
    """A claim as the last parameters of `durable.flush` and `durable.pass`."""
    return [b"%d" % want.number, want.lines, b"t" if want.alone else b"f"]


def encode(batch: list[Entry]) -> list[bytes | None]:
    """A batch as the JSON parameters of `durable.flush`: journal, ends, parks, effects."""
    records, ends, parks = [], [], []
    effects: dict[str, Any] = {}
    for entry in batch:
        if entry.record is not None:
            records.append(entry.record)
        if entry.end is not None:
            ends.append(entry.end)
        if entry.park is not None:
            parks.append(entry.park)
        if entry.effects is not None:
            for name, rows in entry.effects.items():
                effects.setdefault(name, []).extend(rows)
    if "progress" in effects:
        # Only the newest counts, and one statement cannot upsert a row twice.
        effects["progress"] = list({row["t"]: row for row in effects["progress"]}.values())
    return [orjson.dumps(part) if part else None for part in (records, ends, parks, effects)]
