"""psql, a trigger or another language speak the protocol inside their own transactions, and hold up nobody."""

import threading

import psycopg
import pytest

from durable.testing.protocol import HandWorker, Store, wait_row


@pytest.fixture
def worker(store: Store) -> HandWorker:
    return store.worker()


LEVELS = ["read committed", "repeatable read", "serializable"]


@pytest.mark.parametrize("level", LEVELS)
def test_what_a_transaction_did_is_there_if_and_only_if_it_commits(
    store: Store, worker: HandWorker, level: str
) -> None:
    """Spawn, emit and cancel next to a business insert: all of it or nothing, at any isolation level."""
    store.run("create table sold (item int)")
    victim = store.spawn("order")
    for commit in (False, True):
        with psycopg.connect(store.dsn) as mine:
            mine.execute(f"set transaction isolation level {level}")
            mine.execute("insert into sold values (1)")
            mine.execute("select durable.spawn('order'), durable.emit('paid'), durable.cancel(%s)", (victim,))
            mine.commit() if commit else mine.rollback()
        while worker.apply().signalled:
            pass
        found = store.rows("select (select count(*) from sold), (select count(*) from durable.event)")
        assert (found, store.state(victim)) == ([(commit, commit)], "cancelled" if commit else "ready")
    assert store.value("select count(*) from durable.run where state = 'ready'") == 1


def test_an_open_transaction_delays_no_flush_and_no_pass(store: Store, worker: HandWorker) -> None:
    """Someone has spawned, emitted and cancelled and does not commit: every kind of write of a worker goes through."""
    store.start_many("order", 4)
    running, waiting, ending, parking = worker.claim(4)
    worker.park(waiting, waits=[wait_row(waiting, "w", "paid")])
    with psycopg.connect(store.dsn) as idle:
        for task in (running, waiting, ending, parking):
            idle.execute("select durable.cancel(%s)", (task.task_id,))
        idle.execute("select durable.spawn('order', _queue => 'fresh'), durable.emit('paid'), durable.spawn('order')")
        worker.record(running, 0, "step", "charge", 1)
        worker.flush(effects={"events": [{"i": running.task_id, "n": "paid", "b": 1, "r": running.run_id}]})
        worker.end(ending)
        worker.park(parking, until=0, waits=[wait_row(parking, "v", "paid")])
        assert waiting.task_id in {row[0] for row in worker.apply(claim=5).claimed}
        assert worker.bury() > 0
        idle.rollback()


def test_emitters_of_one_name_do_not_wait_for_each_other(store: Store) -> None:
    """Any number of open transactions may emit the same event name, and each other's in any order."""
    with psycopg.connect(store.dsn) as one, psycopg.connect(store.dsn) as two:
        for session, names in ((one, ("a", "b")), (two, ("b", "a"))):
            session.execute("set lock_timeout = '5s'")
            for name in names:
                session.execute("select durable.emit(%s)", (name,))
        one.commit()
        two.commit()
    assert store.value("select count(*) from durable.event") == 4


def test_a_run_can_be_started_by_a_trigger(store: Store, worker: HandWorker) -> None:
    """A row in a business table is a run, exactly once."""
    store.run("""
        create table sold (item int primary key);
        create function sell() returns trigger language plpgsql as
          'begin perform durable.spawn(''order'', json_build_object(''item'', new.item)); return new; end';
        create trigger sold after insert on sold for each row execute function sell()""")
    store.run("insert into sold values (1), (2)")
    assert sorted(task.input["item"] for task in worker.claim(5)) == [1, 2]


def test_a_person_can_look_with_plain_sql(store: Store, worker: HandWorker) -> None:
    """durable.run and durable.branch speak the words that people use."""
    run = store.spawn("order", input='{"item": 1}')
    assert store.rows("select run_id::text, workflow, queue, state, input from durable.run") == [
        (run, "order", "default", "ready", {"item": 1})
    ]
    parent = worker.claim_one()
    [child] = worker.spawn(parent, "order")
    assert store.rows("select state, worker_id::text from durable.run") == [("running", worker.id)]
    assert store.column("select task_id::text from durable.branch where parent_id = %s", run) == [child]


def test_a_function_search_path_does_not_matter(store: Store, worker: HandWorker) -> None:
    """Everything is schema-qualified: a session with any search_path can use the store."""
    store.run("create schema mine; set search_path = mine, pg_catalog")
    run = store.spawn("order")
    store.emit("paid")
    store.run("select durable.cancel(%s)", run)
    worker.apply()
    assert store.state(run) == "cancelled"


def test_notifications_are_sent_with_the_commit_and_can_be_left_out(store: Store) -> None:
    """A commit hints once; with _notify => false a busy producer leaves it to polling."""
    heard = listen(store.dsn, "select durable.spawn('order', _notify => false), durable.emit('a', _notify => false)")
    assert heard == []
    assert listen(store.dsn, "select durable.spawn('order')") == [f"r{store.lines[0]}"]


def listen(dsn: str, statement: str) -> list[str]:
    """What is notified when a statement commits."""
    with psycopg.connect(dsn, autocommit=True) as ear, psycopg.connect(dsn, autocommit=True) as mouth:
        ear.execute("listen durable_work")
        mouth.execute(statement)
        mouth.execute("notify durable_work, 'end'")
        heard: list[str] = []
        for notice in ear.notifies(timeout=10):
            if notice.payload == "end":
                break
            heard.append(notice.payload)
        return heard


def test_concurrent_retries_of_one_run_make_it_ready_once(store: Store, worker: HandWorker) -> None:
    """The second waits for the first and is refused."""
    run = store.spawn("order")
    worker.end(worker.claim_one(), "failed")
    outcomes: list[str] = []

    def retry() -> None:
        with Store(store.dsn) as other:
            try:
                other.run("select durable.retry(%s)", run)
                outcomes.append("done")
            except psycopg.Error as error:
                outcomes.append(str(error.sqlstate))

    threads = [threading.Thread(target=retry) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert sorted(outcomes) == ["DU012", "DU012", "done"]
    assert len(worker.claim(5)) == 1
