"""The journal writer: group commit for everything that a worker's tasks have to say.

Entries queue up while a flush is on its way; the next flush takes all of them in one call and one commit. An entry
is settled only after its commit. There is no timer: a single waiting entry is flushed at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

import orjson
import psycopg
import structlog

from durable import faults
from durable.channel import AlreadyApplied, Channel
from durable.claims import NOTHING, Want
from durable.errors import DurableError, LeaseLost

log = structlog.get_logger("durable.writer")

FLUSH = "select durable.flush($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"

Json = dict[str, Any]

# So many ends of runs are told by the commit itself, and such commits wait for each other; more are told after it.
TOLD_AT_ONCE = 4


class Entry:
    """What one task says at one moment: a record, its effects, and how the task goes on."""

    __slots__ = ("effects", "end", "park", "record", "run_ends", "task_id", "told")

    def __init__(self, task_id: str, told: asyncio.Future[None] | Callable[[BaseException | None], None] | None):
        self.task_id = task_id
        self.told = told  # who is told when it is committed: a future on the hot path, a function, or nobody
        self.record: Json | None = None
        self.end: Json | None = None
        self.run_ends = False  # the end is that of a run: somebody may wait for it
        self.park: Json | None = None
        self.effects: dict[str, list[Json]] | None = None

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
    """Sends queued entries through one fenced channel, one batch at a time."""

    MAX_BATCH = 2000

    def __init__(self, channel: Channel, claims: Claims):
        self._channel = channel
        self._claims = claims
        self._queue: list[Entry] = []
        self._wake = asyncio.Event()
        self._sending = False
        self._settling: list[asyncio.Future[None]] = []
        self.flushes = 0
        self.records = 0

    def put(self, entry: Entry) -> None:
        """Queue an entry and see that it is flushed."""
        self._queue.append(entry)
        self._wake.set()

    def put_lazily(self, entry: Entry) -> None:
        """Queue an entry that something else will follow at once; `kick` if nothing does."""
        self._queue.append(entry)

    def kick(self) -> None:
        self._wake.set()

    async def settled(self) -> None:
        """Return when everything that was queued is committed."""
        if self._queue or self._sending:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._settling.append(done)
            self._wake.set()
            await done

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self.run_once()
            except LeaseLost as exc:
                self._claims.died(exc)
                return
            # The tasks that just resumed put their next records into the batch that follows.
            await asyncio.sleep(0)

    async def run_once(self) -> None:
        batch = self._queue[: self.MAX_BATCH]
        del self._queue[: self.MAX_BATCH]
        if self._queue:
            self._wake.set()
        want = self._claims.wanted()
        if batch or want.number:
            self._sending = True
            self.records += len(batch)
            await self._flush(batch, want)
            self._sending = False
        if not self._queue:
            self._tell_settled()

    def _tell_settled(self) -> None:
        for done in self._settling:
            if not done.done():
                done.set_result(None)
        self._settling.clear()

    async def _flush(self, batch: list[Entry], want: Want) -> None:
        self.flushes += 1
        faults.point("flush.before")
        try:
            answer = await self._channel.call(FLUSH, [*encode(batch), *claim_params(want)], "flush.sent")
        except AlreadyApplied:
            self._claims.answered(want, [])
            self._settle(batch)
            await self._claims.reconcile()
            return
        except psycopg.Error as exc:
            self._claims.answered(want, [])
            await self._flush_in_parts(batch, exc)
            return
        faults.point("flush.after")
        self._claims.answered(want, orjson.loads(answer))
        self._settle(batch)

    def _settle(self, batch: list[Entry]) -> None:
        runs = ends_of_runs(batch)
        if len(runs) > TOLD_AT_ONCE:
            self._claims.ended(runs)
        for entry in batch:
            told = entry.told
            # The hot case first: a record whose step waits for it.
            if type(told) is asyncio.Future and not told.done():
                told.set_result(None)
            else:
                entry.settle()

    async def _flush_in_parts(self, batch: list[Entry], exc: psycopg.Error) -> None:
        """One bad record must not fail its neighbours: halve until it stands alone."""
        if len(batch) == 0:
            log.warning("a claim failed and will be tried again", error=str(exc).strip())
            return
        if len(batch) == 1:
            if isinstance(exc, (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)):
                # Again, and before what follows it: a park must not overtake the wait that it is for.
                await self._flush(batch, NOTHING)
            else:
                batch[0].settle(RecordRefused(batch[0].task_id, exc))
            return
        middle = len(batch) // 2
        await self._flush(batch[:middle], NOTHING)
        await self._flush(batch[middle:], NOTHING)


class RecordRefused(DurableError):
    """The store refused one task's record for good."""

    def __init__(self, task_id: str, cause: psycopg.Error):
        self.sqlstate = cause.sqlstate
        super().__init__(f"the store refused a record of task {task_id}: {str(cause).strip()}")


def ends_of_runs(batch: list[Entry]) -> list[str]:
    return [entry.task_id for entry in batch if entry.run_ends]


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
    runs = ends_of_runs(batch)
    if 0 < len(runs) <= TOLD_AT_ONCE:
        effects["done"] = ",".join(runs)
    if "progress" in effects:
        # Only the newest counts, and one statement cannot upsert a row twice.
        effects["progress"] = list({row["t"]: row for row in effects["progress"]}.values())
    return [orjson.dumps(part) if part else None for part in (records, ends, parks, effects)]
