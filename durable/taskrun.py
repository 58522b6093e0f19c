"""One claimed task, from its claim to its end or park: load, run, classify, record."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Protocol

import structlog
from orjson import Fragment

from durable import codec, faults
from durable.claims import Claimed, Served
from durable.context import DurableContext
from durable.errors import Cancelled, Evicted
from durable.failures import describe
from durable.journal import Record, Replay, holds
from durable.parking import Parking, Phase
from durable.services import Services
from durable.writer import Entry, JournalWriter, Json, RecordRefused

log = structlog.get_logger("durable.task")

_REST_AFTER_ERROR = 1.0

# Records of the cleanup stand apart from those of the body: a cancelled run never replays its body.
CLEANUP = "cleanup/"


class Host(Protocol):
    """Who runs tasks, and is told what becomes of them."""

    def left(self, run: TaskRun) -> None:
        """It gave up its slot: its end, or that it is given back, is on its way to the store."""

    def gone(self, run: TaskRun) -> None:
        """The store knows that it left."""

    def parked(self, run: TaskRun) -> None:
        """It waits, and may be resumed from memory."""


class TaskRun:
    """A task in this process. It may park and be resumed by a later claim."""

    __slots__ = (
        "_context", "_deployed", "_host", "_queue", "_services", "_task", "_workflow", "_writer", "began", "claimed",
        "draining", "parked_at", "parking", "task_id",
    )  # fmt: skip

    def __init__(self, services: Services, served: Served, claimed: Claimed, host: Host, writer: JournalWriter):
        self.claimed = claimed
        self.task_id = claimed.task_id
        self.draining = False
        self.began = 0.0  # when it last got its slot
        self.parked_at = 0.0
        self._services = services
        self._workflow, self._queue, self._deployed = served
        self._host = host
        self._writer = writer  # one for all its records, so that a park cannot overtake one
        self.parking = self._new_parking(claimed.epoch, claimed.wakes)
        if claimed.waits:
            self.parking.recall(claimed.waits)
        self._context: DurableContext | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = self._services.loop.create_task(self._run(), name=f"durable:{self.task_id}")

    def drain(self) -> None:
        """Give the task back when the steps that it is in are recorded."""
        self.draining = True
        self.parking.leave()

    def return_unused(self) -> None:
        """Give the task back without having begun it, to the place in its line that it had."""
        self._give_back(at=self.claimed.ready_at)

    def abandon(self) -> None:
        """Stop at once and say nothing: the task is not ours any more, or parked."""
        self.parking.kill()
        if self._task is not None:
            self._task.cancel()

    # ---------------------------------------------------------------- the story

    async def _run(self) -> None:
        try:
            end = await self._perform()
            # A branch that nobody waited for may have parked the task: only its holder can end it.
            if self.parking.phase is not Phase.LIVE:
                await self.parking.awake()
            if self.parking.broken:
                raise Evicted("this copy of the task no longer counts")
        except (Evicted, asyncio.CancelledError):
            self._evicted()
            return
        except RecordRefused as exc:
            self._refused(exc)
            return
        except Exception as exc:
            # Ours, not the workflow's: the task must not stay held by nobody.
            log.error("a task could not be run and is given back", task=self.task_id, exc_info=exc)
            await asyncio.sleep(_REST_AFTER_ERROR)
            self._give_back()
            return
        self._finish(end)

    async def _perform(self) -> Json:
        """Run the workflow's own code, or clean up after it was stopped; what became of it as an end row."""
        if self._deployed and (wrong := await self._find_version()) is not None:
            return wrong
        records = await self._load() if self.claimed.epoch > 1 else []
        stop = self.claimed.stop
        if stop is None:
            try:
                context = self._open_body(records)
                given = codec.unsealed_with(self._services.codec, self.claimed.input)
                self._check_input(given)
                result = await self._workflow.fn(context, **given)
                context.finish()
                return {"r": Fragment(context.sealed(context.encoded(result)))}
            except Cancelled as exc:
                stop = exc.why
            except RecordRefused:
                raise
            except Exception as exc:
                if self.parking.stop is None:
                    return {"s": "failed", "x": describe(exc)}
                # It failed, but over its own cancel: over a child that was stopped with it, for example.
                stop = self.parking.stop
        return await self._stopped(records, stop)

    async def _find_version(self) -> Json | None:
        """Take the version that the run was started with; an end row if it cannot be made to run here."""
        assert self._services.library is not None
        try:
            self._workflow = await self._services.library.workflow(self._workflow.name, self.claimed.version)
        except Exception as exc:
            return {"s": "failed", "x": describe(exc), "m": True}
        return None

    async def _load(self) -> list[Record]:
        return await self._services.read_journal(self.claimed.run_id, self.claimed.task_id)

    def _open_body(self, records: list[Record]) -> DurableContext:
        past = records
        if self._workflow.cleanup is not None:
            past = [record for record in records if not record.name.startswith(CLEANUP)]
        context = self._context = self._open(past, records, "")
        return context

    def _check_input(self, given: Any) -> None:
        params = self._workflow.params
        if not isinstance(given, dict) or not params.fits(given):
            params.bind(self._workflow.name, (), given)

    async def _stopped(self, records: list[Record], why: str) -> Json:
        """The run was cancelled or is past its deadline: clean up, then end as such."""
        self._leave_body()
        error: Json = {"type": "Cancelled", "message": why.removeprefix("cancel:")}
        if why == "deadline":
            error = {"type": "DeadlineExceeded", "message": "the run was not done at its deadline"}
        if self._workflow.cleanup is not None:
            if self._context is not None:
                records = await self._load()
            context = self._context = self._open([r for r in records if r.name.startswith(CLEANUP)], records, CLEANUP)
            try:
                await self._workflow.cleanup(context, **codec.unsealed_with(self._services.codec, self.claimed.input))
            except Exception as exc:
                error["cleanup"] = describe(exc)
        return {"s": "failed" if why == "deadline" else "cancelled", "x": error, "m": True}

    def _leave_body(self) -> None:
        """Branches of the body that are still under way must not go on beside the cleanup, nor after the end."""
        body = self.parking
        body.kill()
        self.parking = self._new_parking(body.epoch, body.wakes)
        self.parking.leaving = body.leaving
        self.parking.heeded = True
        self.parking.registered |= body.registered

    def _new_parking(self, epoch: int, wakes: int) -> Parking:
        of = self.claimed
        return Parking(
            of.task_id, of.run_id, epoch, wakes, self._writer, self._services.clock, self._services.loop,
            self._on_parked,
        )  # fmt: skip

    def _open(self, past: list[Record], everything: list[Record], prefix: str) -> DurableContext:
        saved, records = [], past
        if holds(past, "snapshot"):
            saved = [record for record in past if record.kind == "snapshot"]
            records = [record for record in past if record.kind != "snapshot"]
        replay = Replay(self.claimed.run_id, records) if records else None
        pos = everything[-1].pos + 1 if everything else 0
        context = DurableContext(self._services, self.parking, replay, pos, self._queue, prefix, self.claimed.version)
        if saved:
            context.snapshot, context.snapshot_pos = context.opened(saved[-1].body), saved[-1].pos
        return context

    # ---------------------------------------------------------------- how it goes on

    def _finish(self, end: Json) -> None:
        faults.point("end.before")
        context = self._context
        # Branches that the workflow left behind, or that nobody waited for, end with it.
        self.parking.kill()
        entry = Entry(self.task_id, self._ended)
        entry.run_ends = self.claimed.parent_id is None
        entry.end = {"t": self.task_id, **end}
        if self.parking.epoch != 1:
            entry.end["e"] = self.parking.epoch
        if (context is not None and context.spawned) or self.parking.registered:
            entry.end["m"] = True
        # Its slot first: the flush that the entry goes with may fill it again.
        self._host.left(self)
        self._writer.put(entry)

    def _ended(self, error: BaseException | None) -> None:
        if error is None:
            faults.point("end.after")
            self._host.gone(self)
            return
        if self.parking.broken:
            self._give_back()
            return
        # The store cannot hold the result: the run fails, and says why.
        log.error("a result was refused by the store", task=self.task_id, error=str(error))
        entry = Entry(self.task_id, self._gone)
        entry.run_ends = self.claimed.parent_id is None
        entry.end = {
            "t": self.task_id,
            "e": self.parking.epoch,
            "s": "failed",
            "x": describe(error),
            "m": True,
        }
        self._writer.put(entry)

    def _evicted(self) -> None:
        if self.draining or self.parking.broken:
            self._give_back()

    def _refused(self, exc: RecordRefused) -> None:
        """A record was refused. A second history of the task is dropped and replayed; anything else ends the run."""
        log.error("a record was refused by the store", task=self.task_id, error=str(exc))
        if exc.sqlstate == "23505" or self.parking.broken:
            self.parking.kill()
            self._give_back()
        else:
            self._finish({"s": "failed", "x": describe(exc)})

    def _give_back(self, at: float | None = None) -> None:
        entry = Entry(self.task_id, self._gone)
        entry.effects = {"gives": [{"t": self.task_id, "e": self.parking.epoch, "a": at}]}
        self._host.left(self)
        self._writer.put(entry)

    def _gone(self, error: BaseException | None) -> None:
        self._host.gone(self)

    def _on_parked(self) -> None:
        faults.point("park.after")
        self.parked_at = time.monotonic()
        self._host.parked(self)

    async def wait_closed(self) -> None:
        if self._task is not None:
            await asyncio.wait([self._task])
