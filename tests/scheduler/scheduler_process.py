"""A scheduler as a process of its own, to be killed."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import threading
from pathlib import Path
from typing import NamedTuple

from durable import faults
from scheduler.service import Scheduler, all_parts
from scheduler.store import TickLooks
from tests.scheduler.stage import Stage

_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(["tests.scheduler.scheduler_process"])


class Order(NamedTuple):
    """What a scheduler process is to do."""

    dsn: str
    log: str
    fault: str | None
    fallback: float
    batch: int


class SchedulerProcess:
    """One scheduler."""

    def __init__(self, order: Order):
        self._process = _forks.Process(target=serve, args=(order,), daemon=True)
        self._process.start()

    @property
    def alive(self) -> bool:
        return self._process.is_alive()

    def kill(self) -> None:
        """-9, and wait until it is gone."""
        self._process.kill()
        self._process.join()

    def await_end(self, within: float) -> int | None:
        """How it ended: 0 of its own will, -9 killed; None when it did not."""
        self._process.join(within)
        return self._process.exitcode


class Schedulers:
    """The scheduler processes of a test; whatever it leaves alive is killed at its end."""

    def __init__(self, dsn: str, logs: Path):
        self._dsn = dsn
        self._log = logs / "schedulers.log"
        self.running: list[SchedulerProcess] = []
        self.fell = 0

    def start(self, fault: str | None = None, fallback: float = 0.2) -> SchedulerProcess:
        process = SchedulerProcess(Order(self._dsn, str(self._log), fault, fallback, batch=20))
        self.running.append(process)
        return process

    def keep(self, count: int, choice: random.Random) -> None:
        """So many of them alive, some with a trap that is still ahead of them."""
        self.fell += sum(not process.alive for process in self.running)
        self.running = [process for process in self.running if process.alive]
        while len(self.running) < count:
            point = choice.choice(["look.before", "look.decided", "look.applied", "look.after", None])
            self.start(point and f"{point}:{choice.randint(1, 30)}")

    def kill_one(self, choice: random.Random) -> None:
        self.running.pop(choice.randrange(len(self.running))).kill()
        self.fell += 1

    def close(self) -> None:
        for process in self.running:
            process.kill()


def locked(stage: Stage) -> int:
    sql = (
        "select count(*) from pg_stat_activity where application_name = 'durable-scheduler' and xact_start is not null"
    )
    return int(stage.store.value(f"{sql} and datname = current_database()"))


def serve(order: Order) -> None:
    """The process's main function."""
    os.dup2(os.open(order.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    os.dup2(2, 1)
    faults.arm(order.fault)
    threading.Thread(target=_end_with_the_test, daemon=True).start()
    asyncio.run(_serve(order))


async def _serve(order: Order) -> None:
    scheduler = Scheduler(order.dsn, [TickLooks(batch=order.batch), *all_parts()[1:]], fallback=order.fallback)
    scheduler.stop_on_signals()
    await scheduler.run()


def _end_with_the_test() -> None:
    """A test run that is itself killed must not leave schedulers behind."""
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)
