"""A term: one registration of a worker, from enlisting to leaving, or to the loss of its lease.

It wires channels, writers, passer, beat and listener together and moves tasks between them. Whatever a term knew is
worthless after its lease is lost: the worker then begins a new one under a new id.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import socket
import time
from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Any

import orjson
import psycopg
import structlog

from durable import faults
from durable.beat import Beat
from durable.channel import Channel
from durable.claims import ClaimDesk, Claimed, Served, Want
from durable.clock import Clock
from durable.codec import Codec
from durable.ending import end
from durable.errors import LeaseLost
from durable.gate import Gate
from durable.ids import uuid7
from durable.lanes import Lanes
from durable.listener import Listener, Notifier
from durable.maintenance import Pruner
from durable.passes import ALL_SHARDS, Passer
from durable.reads import Reads
from durable.services import Services
from durable.settings import Settings
from durable.taskrun import TaskRun
from durable.traffic import Traffic
from durable.transactions import Transactions
from durable.versions import Catalogue, Library
from durable.workflow import Workflow
from durable.writer import JournalWriter

log = structlog.get_logger("durable.worker")

# With fewer tasks than this, two writers only make two commits of what could be one.
_FEW = 24
# So long a task may be at hand without a slot before others get it.
AT_HAND_SECONDS = 0.05

ENLIST = "select durable.enlist($1, $2, $3)"
LEAVE = "select durable.leave($1)"
HELD_BY = "select durable.held_by($1)"
REGISTER = "select json_agg(r) from durable.register($1, array[$2]) r"
SOLO = "select 1 from durable.ready where line = any($1) limit 1"
SERVER = "select system_identifier || '/' || timeline_id from pg_control_system(), pg_control_checkpoint()"


class Term:
    """One worker id and everything that acts under it."""

    def __init__(
        self,
        dsn: str,
        workflows: Sequence[Workflow],
        queues: Sequence[str] | None,
        settings: Settings,
        codec: Codec,
        catalogue: Catalogue | None = None,
    ):
        self.worker_id = uuid7()
        self._dsn = dsn
        self._workflows = {workflow.name: workflow for workflow in workflows}
        self._queues = queues
        self._settings = settings
        self._clock = Clock()
        self._gate = Gate(settings.lease_seconds)
        self._desk = ClaimDesk(settings.slots, settings.flushers)
        self._lanes = Lanes(settings.threads, settings.step_processes)
        self._wire(codec, catalogue)
        self._running: dict[str, TaskRun] = {}
        self._at_hand: deque[Claimed] = deque()  # held, and without a slot yet
        self._at_hand_since = 0.0
        self._at_hand_alarm: asyncio.TimerHandle | None = None
        self._leaving: dict[str, TaskRun] = {}  # ended or given back here, and not yet in the store
        self._parked: OrderedDict[str, TaskRun] = OrderedDict()
        self._server: str | None = None
        self._over: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._quiet = asyncio.Event()
        self._beat: Beat | None = None
        self._looking: asyncio.Task[None] | None = None
        self._learning: asyncio.Task[None] | None = None
        self._unlearned = False
        self.ready = asyncio.Event()

    def _wire(self, codec: Codec, catalogue: Catalogue | None) -> None:
        """Connections, and what speaks through them: flushers first, then the passer, then transaction slots."""
        name = f"durable:{self.worker_id}"
        self._reads = Reads(self._dsn, name)
        self._library = Library(self._reads, catalogue) if catalogue is not None else None
        self._notifier = Notifier(self._dsn, name)
        self._listener = Listener(self._dsn, name, "durable_work", self._heard)
        flushers = range(self._settings.flushers)
        slots = range(self._settings.flushers + 1, self._settings.flushers + 1 + self._settings.transaction_slots)
        self._channel_count = slots.stop
        self._traffic = Traffic()
        self._channels = [
            Channel(self._dsn, self.worker_id, number, self._check_server, self._traffic)
            for number in range(slots.start)
        ]
        self._writers = [JournalWriter(self._channels[number], self) for number in flushers]
        self._transactions = Transactions(self._dsn, self.worker_id, slots)
        self._passer = Passer(self._channels[-1], self, self._clock, self._interval, self._passed, self._swept)
        self._services = Services(
            self._settings,
            codec,
            self._clock,
            self._gate,
            self._lanes,
            self._reads,
            self._transactions,
            self._library,
        )

    # ---------------------------------------------------------------- life

    async def run(self) -> str | None:
        """Work until drained (None) or until the lease is lost (why)."""
        await self._enlist()
        self._loop = asyncio.get_running_loop()
        self._beat = Beat(
            self._dsn, self.worker_id, self._settings.lease_seconds, self._settings.quarantine_after, self._gate,
            self._tell_loop,
        )  # fmt: skip
        self._beat.start()
        services = [
            *(writer.run() for writer in self._writers),
            self._passer.run(),
            self._listener.run(),
            self._notifier.run(),
            Pruner(self._dsn, self._settings).run(),
        ]
        tasks = [asyncio.create_task(service) for service in services]
        for task in tasks:
            task.add_done_callback(self._service_ended)
        self.ready.set()
        try:
            return await self._over or None
        finally:
            await self._close(tasks)

    def drain(self) -> None:
        """Take nothing new and give every task back at its next step."""
        if not self._desk.open:
            return
        self._desk.open = False
        log.info("draining", worker=self.worker_id, tasks=len(self._running))
        for run in list(self._parked.values()):
            run.abandon()
        self._parked.clear()
        self._return_at_hand()
        for run in list(self._running.values()):
            run.drain()
        self._check_quiet()

    def runs(self, task_id: str) -> bool:
        """Whether this very term runs the task now."""
        return task_id in self._running

    def cut(self) -> None:
        """Say nothing more to the store and stop all code here, as if this process were gone. For tests."""
        for channel in self._channels:
            channel.mute()
        self._at_hand.clear()
        for run in [*self._running.values(), *self._parked.values()]:
            run.abandon()

    async def drained(self, within: float) -> None:
        """Wait for the last step to be recorded, but not for ever; then leave."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._quiet.wait()
                for writer in self._writers:
                    await writer.settled()
        for run in self._running.values():
            run.abandon()
        if not self._over.done():
            self._over.set_result("")

    def _tell_loop(self, why: str) -> None:
        """The beat has found the lease gone, in its own thread."""
        self._loop.call_soon_threadsafe(self._lost, why)

    def _lost(self, why: str) -> None:
        if not self._over.done():
            log.warning("the lease is lost, starting anew", worker=self.worker_id, why=why, tasks=len(self._running))
            self._at_hand.clear()
            for run in [*self._running.values(), *self._parked.values()]:
                run.abandon()
            self._over.set_result(why)

    async def _enlist(self) -> None:
        info = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "queues": sorted(self._by_queue()),
            "workflows": sorted(self._workflows),
            "slots": self._settings.slots,
        }
        await self._reads.call(ENLIST, [self.worker_id.encode(), b"%d" % self._channel_count, orjson.dumps(info)])
        lines: dict[int, Served] = {}
        for queue, workflows in self._by_queue().items():
            registrations = orjson.dumps([workflow.registration() for workflow in workflows])
            rows = orjson.loads(await self._reads.call(REGISTER, [registrations, queue.encode()]) or b"[]")
            lines |= {row["line"]: Served(self._workflows[row["workflow"]], queue) for row in rows}
        if self._library is not None:
            lines = await self._library.lines(self._deployed_queues()) | lines
        self._desk.serve(lines)

    def _by_queue(self) -> dict[str, list[Workflow]]:
        """Which workflows are served on which queue: each on its own, unless the worker was given queues."""
        everything = list(self._workflows.values())
        if self._queues is not None:
            return dict.fromkeys(self._queues, everything)
        return {queue: [w for w in everything if w.queue == queue] for queue in {w.queue for w in everything}}

    def _deployed_queues(self) -> Sequence[str]:
        return ("default",) if self._queues is None else self._queues

    async def _close(self, tasks: list[asyncio.Task[None]]) -> None:
        if self._beat is not None:
            await asyncio.to_thread(self._beat.stop)
        await end([*tasks, *(task for task in (self._looking, self._learning) if task is not None)])
        if self._over.done() and self._over.result() == "":
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(5):
                    await self._reads.call(LEAVE, [self.worker_id.encode()])
        for channel in self._channels:
            await channel.close()
        await self._transactions.close()
        await self._notifier.close()
        await self._reads.close()
        await asyncio.to_thread(self._lanes.close)

    def _service_ended(self, task: asyncio.Task[None]) -> None:
        """A service of ours must not end by itself; when it does, the whole term is over and told why."""
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a service of the worker failed", worker=self.worker_id, exc_info=error)
            self._lost(f"internal error: {error!r}")

    async def _check_server(self) -> None:
        """A new session must reach the server that the last one reached: after a failover that lost commits,
        memory is ahead of the database, and everything here is worthless."""
        try:
            server = (await self._reads.call(SERVER) or b"").decode()
        except psycopg.errors.InsufficientPrivilege:
            return
        if self._server is not None and server != self._server:
            raise LeaseLost(f"the database changed from {self._server} to {server} (failover or restore)")
        self._server = server

    # ---------------------------------------------------------------- claims and answers

    def wanted(self, passing: bool = False) -> Want:
        want = self._desk.wanted(passing)
        if want.number:
            faults.point("claim.before")
        return want

    def died(self, error: LeaseLost) -> None:
        self._lost(str(error))

    def answered(self, want: Want, answer: list[Any]) -> None:
        if not answer:
            self._desk.answered(want, None)
            return
        now, claimed, told, refused, met, shards, lines = answer
        self._clock.sync(now)
        if met:
            for task_id, wakes, key, outcome in met:
                if run := self._running.get(task_id):
                    run.parking.met(wakes, key, outcome)
        if refused:
            for task_id, wakes, stop, waits in refused:
                if run := self._running.get(task_id):
                    run.parking.park_refused(wakes, stop, waits)
        if shards:
            self._passer.hint(set(shards))
        if lines and self._desk.heat(set(lines)):
            self._kick()
        self._take(want, claimed, told)
        if lines:
            self._tell_others(set(lines), self._desk.free <= 0 or not self._desk.open)

    def _passed(self, want: Want, answer: list[Any]) -> None:
        if not answer:
            self._desk.answered(want, None)
            return
        now, claimed, told, lines = answer[:4]
        self._clock.sync(now)
        self._take(want, claimed, told)
        if lines:
            if self._desk.heat(set(lines)) and len(claimed or ()) == want.number:
                self._kick()
            self._tell_others(set(lines), len(claimed or ()) == want.number)
        if answer[7]:
            self._notifier.news(answer[7])

    def _take(self, want: Want, claimed: list[Any] | None, told: list[Any] | None) -> None:
        if told:
            for task_id, wakes, stop, waits in told:
                if run := self._running.get(task_id):
                    run.parking.told(wakes, stop, waits)
                elif self._at_hand:
                    news = {"wakes": wakes, "stop": stop, "waits": waits}
                    for place, waiting in enumerate(self._at_hand):
                        if waiting.task_id == task_id:
                            self._at_hand[place] = waiting._replace(**news)
        if want.number:
            tasks = self._desk.answered(want, claimed)
            if tasks:
                faults.point("claim.after")
            for task in tasks:
                self._place(task)
            if len(tasks) == want.number and self._desk.free > 0:
                self._kick()

    def _place(self, claimed: Claimed) -> None:
        """Begin a task, or keep it at hand until another gives up its slot."""
        if len(self._running) < self._settings.slots or not self._desk.open:
            self._begin(claimed)
            return
        self._at_hand.append(claimed)
        self._at_hand_since = self._loop.time()
        if self._at_hand_alarm is None:
            self._at_hand_alarm = self._loop.call_later(AT_HAND_SECONDS, self._look_at_hand)

    def _begin_at_hand(self, after: TaskRun) -> None:
        """Its first record may go with the last word of the task that it follows."""
        if self._at_hand and self._desk.open and len(self._running) < self._settings.slots:
            after.parking.writer.expect()
            self._begin(self._at_hand.popleft())

    def _look_at_hand(self) -> None:
        """What has been at hand for too long goes to whoever has a slot for it."""
        self._at_hand_alarm = None
        if not self._at_hand:
            return
        if (until := self._at_hand_since + AT_HAND_SECONDS) > self._loop.time():
            self._at_hand_alarm = self._loop.call_at(until, self._look_at_hand)
        else:
            self._return_at_hand()

    def _return_at_hand(self) -> None:
        while self._at_hand:
            run = self._new_run(self._at_hand.popleft())
            self._desk.left(math.inf)
            run.return_unused()

    def _begin(self, claimed: Claimed) -> None:
        """Continue the task from memory if this very claim follows its own park; otherwise from the journal."""
        kept = self._parked.pop(claimed.task_id, None)
        if kept is None and (kept := self._running.pop(claimed.task_id, None)) is not None:
            # Its park has committed, but on another channel, whose answer we have not seen yet.
            self._desk.left()
        if kept is not None:
            if kept.parking.epoch + 1 == claimed.epoch:
                self._running[claimed.task_id] = kept
                kept.began = self._loop.time()
                kept.parking.resume(claimed.epoch, claimed.wakes, claimed.stop, claimed.waits)
                self._drain_late(kept)
                return
            kept.abandon()
        run = self._running[claimed.task_id] = self._new_run(claimed)
        run.began = self._loop.time()
        run.start()
        self._drain_late(run)

    def _new_run(self, claimed: Claimed) -> TaskRun:
        served = self._desk.served(claimed.line)
        if served is None:
            raise LeaseLost(f"claimed task {claimed.task_id} of a line that is not ours: {claimed.line}")
        return TaskRun(self._services, served, claimed, self, self._writer_of(claimed.task_id))

    def _writer_of(self, task_id: str) -> JournalWriter:
        """Few tasks share the commits of one writer; many are spread: one batch is made while another commits."""
        if len(self._running) < _FEW:
            return self._writers[0]
        return self._writers[int(task_id[-1], 16) % len(self._writers)]

    def _drain_late(self, run: TaskRun) -> None:
        """A claim that was under way when the drain began: give it back at once."""
        if not self._desk.open:
            run.drain()

    async def reconcile(self) -> None:
        """An answer was lost: what the store says we hold is the truth."""
        async with self._traffic.halted():
            await self._compare()

    async def _compare(self) -> None:
        rows = orjson.loads(await self._reads.call(HELD_BY, [self.worker_id.encode()]) or b"[]")
        held = {row[0]: Claimed(*row) for row in rows}
        # They are among those held, and placed like the others.
        self._desk.running -= len(self._at_hand)
        self._at_hand.clear()
        for task_id, claimed in held.items():
            if (run := self._parked.get(task_id)) and run.parking.epoch == claimed.epoch:
                # The park whose answer was lost had been refused.
                self._running[task_id] = self._parked.pop(task_id)
                self._desk.running += 1
                run.parking.park_refused(claimed.wakes, claimed.stop, claimed.waits)
                continue
            if run := self._running.get(task_id):
                run.parking.told(claimed.wakes, claimed.stop, claimed.waits)
            elif task_id not in self._leaving:
                self._desk.running += 1
                self._place(claimed)
        for task_id in [task_id for task_id in self._running if task_id not in held]:
            run = self._running.pop(task_id)
            self._desk.left()
            run.abandon()
            self._begin_at_hand(run)

    # ---------------------------------------------------------------- tasks that leave

    def left(self, run: TaskRun) -> None:
        self._leaving[run.task_id] = run
        if self._running.get(run.task_id) is run:
            del self._running[run.task_id]
            self._desk.left(self._loop.time() - run.began)
            self._begin_at_hand(run)
        self._check_quiet()

    def gone(self, run: TaskRun) -> None:
        if self._leaving.get(run.task_id) is run:
            del self._leaving[run.task_id]

    def ended(self, runs: list[str]) -> None:
        self._notifier.ended(runs)

    def parked(self, run: TaskRun) -> None:
        if self._running.get(run.task_id) is run:
            del self._running[run.task_id]
            self._desk.left(self._loop.time() - run.began)
        self._parked[run.task_id] = run
        if (until := run.parking.earliest()) is not None:
            self._passer.timer(until)
        while len(self._parked) > self._settings.kept_continuations:
            self._parked.popitem(last=False)[1].abandon()
        self._begin_at_hand(run)
        self._kick()
        self._check_quiet()

    def _check_quiet(self) -> None:
        if not self._running and not self._desk.open:
            self._quiet.set()

    # ---------------------------------------------------------------- hints

    def _heard(self, payload: str) -> None:
        """A hint: r<lines> have work, s<shards> have signals, n<workers> have news, clock moved, v: a new version,
        a: look at everything."""
        kind, rest = payload[:1], payload[1:]
        numbers = {int(part) for part in rest.split(",") if part.lstrip("-").isdigit()}
        if kind == "r":
            if self._desk.heat(numbers):
                self._kick()
        elif kind == "s":
            self._passer.hint(numbers or ALL_SHARDS)
        elif kind == "n":
            if self.worker_id in rest:
                # Any pass tells it.
                self._passer.hint({0})
        elif kind == "c":
            asyncio.get_running_loop().create_task(self._clock_moved())
        elif kind == "v":
            self._learn()
        else:
            self._swept()
            self._passer.hint(ALL_SHARDS)

    async def _clock_moved(self) -> None:
        self._clock.sync(float(await self._reads.call("select extract(epoch from durable.now())") or 0))
        for run in self._running.values():
            run.parking.clock_moved()
        self._swept()
        self._passer.hint(ALL_SHARDS)

    def _swept(self) -> None:
        """Once in a while: all lines may have work, and what is kept in memory must not grow old."""
        self._desk.heat_all()
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._look_for_solo())
        self._learn()
        horizon = time.monotonic() - self._settings.kept_seconds
        while self._parked and next(iter(self._parked.values())).parked_at < horizon:
            self._parked.popitem(last=False)[1].abandon()

    def _learn(self) -> None:
        """Somebody may have deployed a workflow."""
        self._unlearned = True
        if self._library is not None and (self._learning is None or self._learning.done()):
            self._learning = asyncio.get_running_loop().create_task(self._look_for_deployed(self._library))

    async def _look_for_deployed(self, library: Library) -> None:
        while self._unlearned:
            self._unlearned = False
            if self._desk.learn(await library.lines(self._deployed_queues())):
                self._kick()

    async def _look_for_solo(self) -> None:
        """Tasks that must run alone stand in lines of their own, which no ordinary claim asks for."""
        lines = b"{" + b",".join(b"%d" % -line for line in self._desk.lines) + b"}"
        if await self._reads.call(SOLO, [lines]):
            self._desk.solo_waits()
            self._kick()

    def _interval(self) -> float:
        idle = not self._running and self._listener.healthy
        return self._settings.idle_poll_seconds if idle else self._settings.poll_seconds

    def _tell_others(self, lines: set[int], all_of_them: bool) -> None:
        others = lines if all_of_them else {line for line in lines if line not in self._desk.lines}
        if others:
            self._notifier.work(others)

    def _kick(self) -> None:
        next((writer for writer in self._writers if writer.idle), self._writers[0]).kick()
