"""A worker process killed with -9 inside each kind of operator, again and again: another finishes the run."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from durable import Settings, SyncDurable, Worker, faults
from interpreter.highway import highway_workflow

from .flows_to_kill import FLOWS, TABLE, Functions

POINTS = (
    *("step.before:1", "step.after:1", "flush.sent:2", "step.after:2", "flush.after:2", "park.before:1"),
    *("flush.before:3", "park.after:1", "pass.sent:2", "flush.sent:3", "end.before:1", "end.after:1"),
)


def serve(dsn: str, fault: str | None, log: str) -> None:
    """The process's main function."""
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 1)
    faults.arm(fault)
    flows = [highway_workflow(workflow, Functions(dsn)) for workflow, _ in FLOWS.values()]
    settings = Settings(lease_seconds=5, poll_seconds=0.1, idle_poll_seconds=0.2, quarantine_after=1000)
    asyncio.run(Worker(dsn, flows, settings=settings).run())


class Theatre:
    """One database whose workers are killed."""

    def __init__(self, dsn: str, log: Path) -> None:
        self.dsn = dsn
        self.deaths = 0
        self._log = log

    def sql(self, text: str, *params: Any) -> list[Any]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(text.encode(), params or None)
            return cursor.fetchall() if cursor.description else []

    def final(self, run: str) -> bool:
        return bool(self.sql("select 1 from durable.task where task_id = %s and finished_at is not null", run))

    def perform(self, run: str, fault: str | None) -> None:
        """A worker goes on with the run until it is final, or it is killed."""
        process = multiprocessing.get_context("fork").Process(target=serve, args=(self.dsn, fault, str(self._log)))
        process.start()
        try:
            _until(lambda: process.exitcode is not None or self.final(run), lambda: f"{fault}\n{self._told()}")
        finally:
            process.kill()
            process.join()
        self.deaths += not self.final(run)
        # A task that was lost twice waits until it can run alone; these are lost far more often.
        self.sql("update durable.task set lost = 0 where finished_at is null")
        self.sql("select durable.bury(worker_id, beat, 1000) from durable.worker")

    def _told(self) -> str:
        """What is open, and what the workers logged."""
        tasks = self.sql("""
            select t.task_id::text, t.state::text, t.epoch, t.wakes, t.stop, t.wake_at,
                   (select string_agg(j.pos || ' ' || j.kind || ' ' || j.name, ', ' order by j.pos)
                    from durable.journal j where j.task_id = t.task_id)
            from durable.task t where t.finished_at is null""")
        waits = self.sql("select w::text from durable.wait w")
        signals = self.sql("select s::text from durable.signal s")
        held = self.sql("select h::text from durable.held h")
        return "\n".join(map(str, [*tasks, *waits, *signals, *held, self._log.read_text()[-3000:]]))


def _until(holds: Callable[[], bool], what: Callable[[], str]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline, what()
        time.sleep(0.02)


@pytest.mark.parametrize("kind", FLOWS)
def test_a_run_survives_kills_inside_any_operator(durable_dsn: str, tmp_path: Path, kind: str) -> None:
    """However often its worker is killed, the run comes to its end; no step runs after its record was committed."""
    log = tmp_path / "worker.log"
    log.touch()
    theatre = Theatre(durable_dsn, log)
    theatre.sql(TABLE)
    workflow, expected = FLOWS[kind]
    known = [highway_workflow(other, Functions(durable_dsn)) for other, _ in FLOWS.values()]
    with SyncDurable(durable_dsn, workflows=known) as client:
        for turn in range(2):
            run = client.start(workflow.name)
            for fault in [*POINTS[turn * 4 :], *POINTS[: turn * 4], None]:
                if theatre.final(run):
                    break
                theatre.perform(run, fault)
            info = client.run(run)
            assert (info.state, info.result) == ("failed" if expected is None else "succeeded", expected), info.error
    assert theatre.deaths > 2
    assert theatre.sql("select * from effect where recorded") == []
    assert theatre.sql("select task_id, step, attempt, pid from effect group by 1, 2, 3, 4 having count(*) > 1") == []
