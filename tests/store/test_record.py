"""The statement `record`: a flush of one record, with the same fence and the same news."""

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


def record(worker: HandWorker, task: Claimed, number: int, pos: int = 0) -> Any:
    given = (worker.id, 0, number, task.run_id, task.task_id, pos, task.epoch, "step", "charge", None, "1", 3)
    row = worker.store.connection.execute(RECORD, {f"p{n}": value for n, value in enumerate(given, 1)}).fetchone()
    return row and row[0]


def journal(store: Store) -> list[tuple[Any, ...]]:
    return store.rows("select pos, kind, name, body, ms from durable.journal order by pos")


def test_a_record_is_written_like_by_a_flush(store: Store, worker: HandWorker) -> None:
    """The row is that of `flush`, with the store's time; there is nothing to tell."""
    store.spawn("order")
    task = worker.claim_one()
    store.skip("1 day")
    assert record(worker, task, 100) is False
    assert journal(store) == [(0, "step", "charge", 1, 3)]
    assert store.value("select at > now() + interval '23 hours' from durable.journal")


def test_a_record_sent_twice_is_written_once(store: Store, worker: HandWorker) -> None:
    """Under the same number it was applied before: nothing is written, and the answer is nothing."""
    store.spawn("order")
    task = worker.claim_one()
    record(worker, task, 100)
    assert record(worker, task, 100, pos=1) is None
    assert len(journal(store)) == 1


def test_a_dead_worker_records_nothing(store: Store, worker: HandWorker) -> None:
    """Whoever lost its lease is told so, and its record is not there."""
    store.spawn("order")
    task = worker.claim_one()
    store.run("delete from durable.fence")
    with pytest.raises(psycopg.Error, match="lost its lease") as caught:
        record(worker, task, 100)
    assert (caught.value.sqlstate, journal(store)) == ("DU001", [])


def test_a_record_says_that_there_is_news(store: Store, worker: HandWorker) -> None:
    """A task that was cancelled meanwhile hears of it before it goes on."""
    run = store.spawn("order")
    task = worker.claim_one()
    store.run("select durable.cancel(%s)", run)
    worker.apply()
    assert record(worker, task, 100) is True
