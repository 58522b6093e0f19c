"""The statement `record`: one record of a task that the worker holds and that has no news; `flush` does the rest."""

import re
from typing import Any

import psycopg
import pytest

from durable.claims import Claimed
from durable.statements import statement
from durable.testing.protocol import HandWorker, Store

# As psycopg writes parameters.
RECORD = re.sub(r"\$(\d+)", r"%(p\1)s", statement("record"))


@pytest.fixture
def worker(store: Store) -> HandWorker:
    return store.worker()


def record(worker: HandWorker, task: Claimed, pos: int = 0) -> Any:
    given = (worker.id, task.run_id, task.task_id, pos, task.epoch, "step", "charge", None, "1", 3)
    row = worker.store.connection.execute(RECORD, {f"p{n}": value for n, value in enumerate(given, 1)}).fetchone()
    return row and row[0]


def journal(store: Store) -> list[tuple[Any, ...]]:
    return store.rows("select pos, kind, name, body, ms from durable.journal order by pos")


def test_a_record_is_written_like_by_a_flush(store: Store, worker: HandWorker) -> None:
    """The row is that of `flush`, with the store's time."""
    store.spawn("order")
    task = worker.claim_one()
    store.skip("1 day")
    assert record(worker, task) is True
    assert journal(store) == [(0, "step", "charge", 1, 3)]
    assert store.value("select at > now() + interval '23 hours' from durable.journal")


def test_a_record_sent_twice_is_written_once(store: Store, worker: HandWorker) -> None:
    """Its place in the journal is taken."""
    store.spawn("order")
    task = worker.claim_one()
    record(worker, task)
    with pytest.raises(psycopg.errors.UniqueViolation):
        record(worker, task)
    assert len(journal(store)) == 1


def test_a_dead_worker_records_nothing(store: Store, worker: HandWorker) -> None:
    """Whoever lost its lease holds nothing; nor does it when the task is another's."""
    store.spawn("order")
    task = worker.claim_one()
    worker.bury()
    assert (record(worker, task), journal(store)) == (None, [])
    store.worker().claim_one()
    assert (record(worker, task), journal(store)) == (None, [])


def test_an_older_claim_of_the_task_records_nothing(store: Store, worker: HandWorker) -> None:
    """A copy of the task that this worker ran before, and gave back."""
    store.spawn("order")
    older = worker.claim_one()
    worker.flush(effects={"gives": [{"t": older.task_id, "e": older.epoch}]})
    newer = worker.claim_one()
    assert record(worker, older) is None
    assert record(worker, newer) is True
    assert len(journal(store)) == 1


def test_a_record_is_left_to_flush_where_there_is_news(store: Store, worker: HandWorker) -> None:
    """A task that was cancelled meanwhile hears of it with its record, before it goes on."""
    run = store.spawn("order")
    task = worker.claim_one()
    store.run("select durable.cancel(%s)", run)
    worker.apply()
    assert (record(worker, task), journal(store)) == (None, [])


def test_a_reaper_waits_for_a_record_under_way(store: Store, worker: HandWorker) -> None:
    """The task is nobody else's before the record is committed or gone."""
    store.spawn("order")
    task = worker.claim_one()
    with store.connection.transaction(), psycopg.connect(store.dsn, autocommit=True) as reaper:
        record(worker, task)
        reaper.execute("set lock_timeout = '100ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            reaper.execute("delete from durable.held where task_id = %s", (task.task_id,))
