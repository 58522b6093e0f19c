"""A worker process killed with -9 inside each kind of operator, again and again: another finishes the run."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from durable import Settings, SyncDurable, Worker, faults
from interpreter.highway import highway_workflow

from .flows_to_kill import FLOWS, QUEUE, TABLE, Functions

POINTS = (
    *("step.before:1", "step.after:1", "flush.sent:2", "step.after:2", "flush.after:2", "park.before:1"),
    *("flush.before:3", "park.after:1", "pass.sent:2", "flush.sent:3", "end.before:1", "end.after:1"),
)
# A transaction step has no flush of its own.
IN_TRANSACTIONS = (
    *("step.before:1", "transaction.before:1", "transaction.after:1", "step.before:2", "transaction.after:2"),
    *("park.before:1", "transaction.before:1", "end.before:1", "end.after:1"),
)
# What a worker comes to for all of its runs together, and what only transaction steps and continuations come to.
EVERYWHERE = (
    *("claim.before", "claim.after", "resume.before", "pass.before", "pass.sent", "pass.after"),
    *("transaction.before", "transaction.after"),
)


def serve(dsn: str, fault: str | None, log: str) -> None:
    """The process's main function."""
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 1)
    faults.arm(fault)
    flows = [highway_workflow(workflow, Functions(dsn)) for workflow, _ in FLOWS.values()]
    settings = Settings(lease_seconds=5, poll_seconds=0.1, idle_poll_seconds=0.2, quarantine_after=1000)
    asyncio.run(Worker(dsn, flows, queues=("default", QUEUE), settings=settings).run())


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
        self.work(fault, lambda: self.final(run))
        self.deaths += not self.final(run)
        # A task that was lost twice waits until it can run alone; these are lost far more often.
        self.sql("update durable.task set lost = 0 where finished_at is null")
        self.bury()

    def work(self, fault: str | None, done: Callable[[], bool]) -> bool:
        """A worker works until it is killed at a point, or until something holds; whether it was killed there."""
        process = multiprocessing.get_context("fork").Process(target=serve, args=(self.dsn, fault, str(self._log)))
        process.start()
        try:
            _until(lambda: process.exitcode is not None or done(), lambda: f"{fault}\n{self._told()}")
            return process.exitcode is not None
        finally:
            process.kill()
            process.join()

    def bury(self) -> None:
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


@pytest.fixture
def theatre(durable_dsn: str, tmp_path: Path) -> Theatre:
    log = tmp_path / "worker.log"
    log.touch()
    theatre = Theatre(durable_dsn, log)
    theatre.sql(TABLE)
    return theatre


@pytest.fixture
def client(theatre: Theatre) -> Iterator[SyncDurable]:
    known = [highway_workflow(workflow, Functions(theatre.dsn)) for workflow, _ in FLOWS.values()]
    with SyncDurable(theatre.dsn, workflows=known) as client:
        yield client


def ended_right(client: SyncDurable, run: str, kind: str) -> None:
    info, expected = client.run(run), FLOWS[kind][1]
    assert (info.state, info.result) == ("failed" if expected is None else "succeeded", expected), (kind, info.error)


def broke_no_law(theatre: Theatre) -> None:
    """No step ran after its record was committed, none twice in one process, and every booking has its record."""
    assert theatre.sql("select * from effect where recorded") == []
    assert theatre.sql("select task_id, step, attempt, pid from effect group by 1, 2, 3, 4 having count(*) > 1") == []
    recorded = """
        select t.task_id, j.name from durable.journal j join durable.task t using (task_id)
        join durable.line l using (line) where l.workflow = 'kill_transaction' and j.kind = 'step' order by 1, 2"""
    assert theatre.sql("select task_id, step from booking order by 1, 2") == theatre.sql(recorded)


@pytest.mark.parametrize("kind", FLOWS)
def test_a_run_survives_kills_inside_any_operator(theatre: Theatre, client: SyncDurable, kind: str) -> None:
    """However often its worker is killed, the run comes to its end; no step runs after its record was committed."""
    points = IN_TRANSACTIONS if kind == "transaction" else POINTS
    for turn in range(2):
        run = client.start(FLOWS[kind][0].name)
        for fault in [*points[turn * 4 :], *points[: turn * 4], None]:
            if theatre.final(run):
                break
            theatre.perform(run, fault)
        ended_right(client, run, kind)
    assert theatre.deaths > 2
    broke_no_law(theatre)


@pytest.mark.parametrize("point", EVERYWHERE)
def test_runs_survive_losses_at_a_point_that_all_of_them_come_to(
    theatre: Theatre, client: SyncDurable, point: str
) -> None:
    """One run of every kind, and three workers in turn killed at this point, each later than the last: all runs come to
    their end."""
    runs = {kind: client.start(workflow.name) for kind, (workflow, _) in FLOWS.items()}

    def all_final() -> bool:
        return not theatre.sql("select 1 from durable.task where finished_at is null")

    deaths = 0
    for count in (1, 2, 4):
        deaths += theatre.work(f"{point}:{count}", all_final)
        theatre.bury()
    theatre.work(None, all_final)
    for kind, run in runs.items():
        ended_right(client, run, kind)
    assert deaths >= 2
    broke_no_law(theatre)


@pytest.mark.parametrize("kind", ["task", "foreach spawned", "events", "child workflow", "activity", "transaction"])
def test_a_task_that_is_lost_again_and_again_still_ends(theatre: Theatre, client: SyncDurable, kind: str) -> None:
    """The same task is lost with three workers, nobody forgives it that, and it ends once it can run alone."""
    run = client.start(FLOWS[kind][0].name)
    # Killed in the middle of a step, whatever was recorded before; the next worker comes to the same step first.
    for count in (2, 1, 1):
        assert theatre.work(f"step.before:{count}", lambda: theatre.final(run))
        theatre.bury()
    assert theatre.sql("select max(lost) from durable.task")[0][0] >= 2
    theatre.work(None, lambda: theatre.final(run))
    ended_right(client, run, kind)
    broke_no_law(theatre)
