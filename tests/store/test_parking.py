"""Parking: a waiting task holds no slot, and nothing that happens meanwhile is lost."""

import psycopg
import pytest

from durable.testing.protocol import Store, wait_row


def now(store: Store) -> float:
    return float(store.value("select extract(epoch from durable.now())::float8"))


def test_a_parked_task_is_nobodys_and_wakes_at_its_time(store: Store) -> None:
    """Parked rows stand in no line; a pass after the time makes them ready, with the next epoch."""
    run = store.spawn("order")
    worker = store.worker()
    task = worker.claim_one()
    worker.park(task, until=now(store) + 30 * 86400)
    assert store.state(run) == "parked"
    assert worker.apply(claim=1).claimed is None
    store.skip("31 days")
    [row] = worker.apply(claim=1).claimed
    assert (row[0], row[2]) == (run, task.epoch + 1)
    assert store.value("select count(*) from durable.timer") == 0


def test_a_park_is_refused_by_a_wake_that_came_first(store: Store) -> None:
    """Whatever woke the task since its worker last looked refuses the park, and the answer says what it was."""
    run = store.spawn("order")
    worker = store.worker()
    task = worker.claim_one()
    worker.flush(effects={"waits": [wait_row(task, "w", "paid")]})
    store.emit("paid", {"sum": 7})
    worker.apply()
    [[refused, wakes, stop, [[key, outcome, _]]]] = worker.park(task).refused
    assert (refused, wakes, stop, key, outcome["payload"]) == (run, task.wakes + 1, None, "w", {"sum": 7})
    assert store.state(run) == "running"
    assert worker.park(task, wakes=wakes).refused is None
    assert store.state(run) == "parked"


def test_a_running_task_is_told_of_news_once(store: Store) -> None:
    """The holder's next flush brings what happened; the one after brings nothing."""
    store.spawn("order")
    worker = store.worker()
    task = worker.claim_one()
    worker.flush(effects={"waits": [wait_row(task, "w", "paid")]})
    store.emit("paid")
    assert [row[0] for row in worker.apply().told] == [task.task_id]
    assert worker.flush().told is None


def test_a_flush_does_not_wait_for_a_pass_that_has_news(store: Store, durable_dsn: str) -> None:
    """The pass locks rows of several tasks, as the flush would: each is told of when the pass has committed."""
    for _ in range(2):
        store.spawn("order")
    worker = store.worker()
    first, second = worker.claim_one(), worker.claim_one()
    for task in (first, second):
        worker.flush(effects={"waits": [wait_row(task, "w", task.task_id)]})
    store.emit(first.task_id)
    store.worker().apply()
    with psycopg.connect(durable_dsn) as passing:
        passing.execute("update durable.held set news = true where task_id = %s", [second.task_id])
        assert [row[0] for row in worker.flush().told] == [first.task_id]
    assert [row[0] for row in worker.flush().told] == [second.task_id]


def test_a_wake_of_its_own_makes_a_parked_task_ready(store: Store) -> None:
    """Code that goes on under a parked task asks for the task back."""
    run = store.spawn("order")
    worker = store.worker()
    task = worker.claim_one()
    worker.park(task)
    worker.flush(effects={"wakes": [{"r": run, "t": run}]})
    assert store.state(run) == "parked"
    worker.apply()
    assert store.state(run) == "ready"


def test_an_event_takes_the_timer_of_its_wait_away(store: Store) -> None:
    """A task that was woken early is not woken again at the time it had parked until."""
    store.spawn("order")
    worker = store.worker()
    task = worker.claim_one()
    worker.park(task, until=now(store) + 3600, waits=[wait_row(task, "w", "paid", until=now(store) + 3600)])
    store.emit("paid")
    worker.apply()
    assert store.value("select count(*) from durable.timer") == 0


def test_many_due_timers_fire_in_batches(store: Store) -> None:
    """A pass fires so many timers and says that there is more."""
    store.start_many("order", 25)
    worker = store.worker()
    at = now(store)
    worker.flush(parks=[{"t": task.task_id, "e": 1, "w": 0, "u": at} for task in worker.claim(25)])
    store.skip("1 second")
    assert [worker.apply(limit=10).more for _ in range(3)] == [True, True, False]
    assert len(worker.claim(100)) == 25


def test_a_record_refused_by_a_second_history_keeps_the_first(store: Store) -> None:
    """The key of a record is its task and position: a second record there is refused, never written over."""
    store.spawn("order")
    worker = store.worker()
    task = worker.claim_one()
    worker.record(task, 0, "step", "charge", 1)
    with pytest.raises(Exception, match="journal_pkey"):
        worker.record(task, 0, "step", "charge", 2)
    assert store.column("select body from durable.journal") == [1]


def test_time_that_is_skipped_kills_no_worker(store: Store) -> None:
    """The test clock moves timers and deadlines, never leases: beats are counted, not timed."""
    worker = store.worker()
    store.skip("400 days")
    store.run("select * from durable.renew(%s)", worker.id)
    assert worker.claim(1) == []
    before = store.value("select durable.now()")
    store.skip("-400 days")
    assert store.value("select %s - durable.now() > interval '399 days'", before)
