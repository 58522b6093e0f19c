"""Retention: what ended long ago goes, with all that belongs to it, and nothing else does."""

import pytest

from durable.testing.protocol import HandWorker, Store, wait_row

LATER = "durable.now() + interval '1 day'"


@pytest.fixture
def worker(store: Store) -> HandWorker:
    return store.worker()


def prune(store: Store, before: str = LATER, limit: int = 500) -> tuple[object, ...]:
    [row] = store.rows(f"select runs, events, keys from durable.prune({before}, {limit})")
    return row


def rows_left(store: Store) -> dict[str, int]:
    """How many rows each table holds, besides definitions and workers."""
    tables = store.column(
        "select relname from pg_class where relnamespace = 'durable'::regnamespace and relkind = 'r'"
        " and relname not in ('alembic_version', 'workflow', 'line', 'worker', 'fence', 'clock')"
    )
    counts = {table: store.value(f"select count(*) from durable.{table}") for table in tables}
    return {table: count for table, count in counts.items() if count}


def test_a_pruned_run_leaves_nothing_behind(store: Store, worker: HandWorker) -> None:
    """Records, values, log lines, progress, waits, deliveries, children and its key go with it."""
    store.register("order", max_active_runs=5)
    store.emit("paid", 1)
    run = store.start("order", key="k", scope="run:order", tags=["red"], deadline=3600)
    worker.apply()
    task = worker.claim_one()
    [child] = worker.spawn(task, "order")
    ids = {"r": run, "t": run}
    worker.record(
        task, 0, "step", "charge", 1,
        values=[{"r": run, "h": "h", "b": 1}],
        logs=[ids | {"i": child, "l": "info", "m": "hello"}],
        progress=[ids | {"d": 1, "o": 2, "n": None}],
        waits=[wait_row(task, "w", "paid")],
    )  # fmt: skip
    worker.apply()
    worker.end(worker.claim_one())
    worker.end(task)
    worker.apply()
    assert prune(store) == (1, 1, 1)
    assert rows_left(store) == {}


def test_only_what_ended_before_is_pruned(store: Store, worker: HandWorker) -> None:
    """Young, running, parked, queued and delayed runs stay, with their keys."""
    store.spawn("order", key="old")
    worker.end(worker.claim_one())
    store.skip("31 days")
    kept = [store.spawn("order", key=str(number)) for number in range(3)]
    worker.end(worker.claim_one())
    worker.park(worker.claim_one())
    kept.append(store.spawn("order", start_at=store.value("select durable.now() + interval '1 day'")))
    assert prune(store, "durable.now() - interval '30 days'") == (1, 0, 1)
    assert sorted(store.column("select task_id::text from durable.task")) == sorted(kept)
    assert store.value("select count(*) from durable.once") == 3


def test_a_key_lives_as_long_as_its_run(store: Store, worker: HandWorker) -> None:
    """The same key starts a new run only after the old one was pruned."""
    first = store.spawn("order", key="k")
    worker.end(worker.claim_one())
    assert store.spawn("order", key="k") == first
    prune(store)
    assert store.spawn("order", key="k") != first


def test_a_batch_is_small_and_begins_with_the_oldest(store: Store, worker: HandWorker) -> None:
    """Never more runs than asked for, and the next batch goes on where this one ended."""
    runs = store.start_many("order", 5)
    for task in worker.claim(5):
        worker.end(task)
    [(pruned, reached, _)] = store.rows(f"select * from durable.prune_runs({LATER}, 2)")
    left = store.column("select task_id::text from durable.task order by finished_at")
    assert (pruned, len(left)) == (2, 3)
    assert store.rows(f"select pruned from durable.prune_runs({LATER}, 9, %s)", reached) == [(3,)]
    assert set(left) < set(runs)


def test_a_run_with_a_child_that_goes_on_stays(store: Store, worker: HandWorker) -> None:
    """The child's records belong to the run: they are needed until it has cleaned up."""
    store.spawn("order")
    parent = worker.claim_one()
    worker.spawn(parent, "order")
    child = worker.claim_one()
    worker.record(child, 0, "step", "charge")
    worker.end(parent)
    assert prune(store)[0] == 0
    worker.end(child, "cancelled")
    assert prune(store)[0] == 1
    assert store.value("select count(*) from durable.journal") == 0


def test_an_event_that_a_pass_has_to_look_at_is_not_pruned(store: Store, worker: HandWorker) -> None:
    """After a long outage a waiter still receives what was emitted before it."""
    store.spawn("order")
    task = worker.claim_one()
    worker.park(task, waits=[wait_row(task, "w", "paid")])
    store.emit("paid", 1)
    store.skip("40 days")
    assert prune(store)[1] == 0
    worker.apply()
    assert store.value("select outcome -> 'payload' from durable.wait") == 1
    assert prune(store)[1] == 1


def test_events_of_a_name_that_is_always_waited_for_are_pruned(store: Store, worker: HandWorker) -> None:
    """An open wait has looked at every older event; it must not keep them for ever."""
    store.spawn("order")
    task = worker.claim_one()
    for number in range(3):
        store.emit("paid", number)
        worker.flush(effects={"waits": [wait_row(task, f"w{number}", "paid", step="s")]})
    worker.flush(effects={"waits": [wait_row(task, "next", "paid", step="s")]})
    worker.apply()
    assert prune(store)[1] == 3
    store.emit("paid", 3)
    worker.apply()
    assert store.value("select outcome -> 'payload' from durable.wait where key = 'next'") == 3


def test_only_one_prunes_at_a_time(store: Store, worker: HandWorker) -> None:
    """A second pruner does not wait and does nothing: it is answered null."""
    store.spawn("order")
    worker.end(worker.claim_one())
    with Store(store.dsn) as other, other.connection.transaction():
        other.run(f"select durable.prune_runs({LATER})")
        assert store.rows(f"select pruned from durable.prune_runs({LATER})") == [(None,)]
    assert store.value("select count(*) from durable.task") == 0
