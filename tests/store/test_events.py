"""Events: whoever waits gets the oldest event that this wait step has not received, exactly once."""

import threading
from typing import Any
from uuid import RFC_4122

import pytest

from durable.claims import Claimed
from durable.testing.protocol import HandWorker, Store, wait_row


@pytest.fixture
def worker(store: Store) -> HandWorker:
    return store.worker()


def task_of(store: Store, worker: HandWorker) -> Claimed:
    store.spawn("order")
    return worker.claim_one()


def register(worker: HandWorker, task: Claimed, key: str, name: str = "paid", **more: Any) -> Any:
    """Register a wait; what it met at once, if anything."""
    met = worker.flush(effects={"waits": [wait_row(task, key, name, **more)]}).met
    return met and met[0][3]["payload"]


def received(store: Store, task: Claimed, key: str) -> Any:
    """The payload that a wait has come to, or its timeout, or None while it is open."""
    outcome = store.value("select outcome from durable.wait where task_id = %s and key = %s", task.task_id, key)
    return outcome and outcome.get("payload", outcome)


def test_an_event_emitted_before_the_wait_is_received(store: Store, worker: HandWorker) -> None:
    """The wait finds it in the log and is met in the very flush that registers it."""
    store.emit("paid", 1)
    assert register(worker, task_of(store, worker), "w") == 1


def test_an_event_emitted_after_the_wait_is_received(store: Store, worker: HandWorker) -> None:
    """The pass finds the waiter."""
    task = task_of(store, worker)
    assert register(worker, task, "w") is None
    store.emit("paid", 1)
    worker.apply()
    assert received(store, task, "w") == 1


def test_an_event_that_commits_between_look_and_wait_is_received(store: Store, worker: HandWorker) -> None:
    """Neither saw the other; each has left a signal, and the pass of the later one sees both."""
    task = task_of(store, worker)
    with Store(store.dsn) as other:
        with other.connection.transaction():
            other.emit("paid", 1)
            assert register(worker, task, "w") is None
            worker.apply()
        assert received(store, task, "w") is None
    worker.apply()
    assert received(store, task, "w") == 1


def test_events_are_received_oldest_first_and_never_twice_by_a_step(store: Store, worker: HandWorker) -> None:
    """Each later wait of the same step gets the next event, whether it came before or after the wait."""
    task = task_of(store, worker)
    for number in (1, 2):
        store.emit("paid", number)
    assert [register(worker, task, f"w#{turn}", step="s") for turn in range(3)] == [1, 2, None]
    store.emit("paid", 3)
    worker.apply()
    assert received(store, task, "w#2") == 3


def test_waits_of_one_step_at_the_same_time_get_different_events(store: Store, worker: HandWorker) -> None:
    """Two open waits of a step share one event only if there is only one."""
    task = task_of(store, worker)
    keys = ["w", "w#2", "w#3"]
    worker.flush(effects={"waits": [wait_row(task, key, "paid", step="s") for key in keys]})
    for number in (1, 2):
        store.emit("paid", number)
    for _ in range(3):
        worker.apply()
    assert sorted(str(received(store, task, key)) for key in keys) == ["1", "2", "None"]


def test_waits_of_one_step_in_one_flush_get_different_events(store: Store, worker: HandWorker) -> None:
    """The same for events that are there already: one is met at once, the others by passes."""
    task = task_of(store, worker)
    for number in (1, 2):
        store.emit("paid", number)
    worker.flush(effects={"waits": [wait_row(task, key, "paid", step="s") for key in ("w", "w#2")]})
    worker.apply()
    assert sorted([received(store, task, "w"), received(store, task, "w#2")]) == [1, 2]


def test_another_step_is_independent(store: Store, worker: HandWorker) -> None:
    """Every wait step of every run receives the event for itself."""
    one, two = task_of(store, worker), task_of(store, worker)
    register(worker, one, "w", step="s")
    register(worker, one, "x", step="t")
    register(worker, two, "w", step="s")
    store.emit("paid", 1)
    worker.apply()
    assert [received(store, one, "w"), received(store, one, "x"), received(store, two, "w")] == [1, 1, 1]


def test_since_leaves_older_events_out(store: Store, worker: HandWorker) -> None:
    """`since` narrows a wait to events emitted from then on."""
    store.emit("paid", 1)
    later = float(store.value("select extract(epoch from durable.now())::float8"))
    store.skip("1 minute")
    task = task_of(store, worker)
    assert register(worker, task, "w", since=later + 1) is None
    store.emit("paid", 2)
    worker.apply()
    assert received(store, task, "w") == 2


def test_the_same_event_key_emits_once(store: Store) -> None:
    """A key stands for one event of its name."""
    first = store.emit("paid", 1, key="k")
    assert store.emit("paid", 2, key="k") == first
    assert store.emit("shipped", 1, key="k") != first
    assert store.value("select count(*) from durable.event where name = 'paid'") == 1


def test_an_event_needs_a_name(store: Store) -> None:
    """An empty name is refused before anything is written."""
    with pytest.raises(Exception, match="an event needs a name"):
        store.emit("")


def test_a_timeout_that_came_first_stays(store: Store, worker: HandWorker) -> None:
    """A late event never flips a wait that timed out, and is still there for the next wait of the step."""
    task = task_of(store, worker)
    register(worker, task, "w", step="s")
    expired = {"expired": [{"r": task.run_id, "t": task.task_id, "k": "w"}]}
    assert worker.flush(effects=expired).met[0][3] == {"timeout": True}
    store.emit("paid", 1)
    worker.apply()
    assert received(store, task, "w") == {"timeout": True}
    assert register(worker, task, "w#2", step="s") == 1


def test_an_event_that_came_first_stays(store: Store, worker: HandWorker) -> None:
    """A timeout after the event answers with the event."""
    task = task_of(store, worker)
    register(worker, task, "w")
    store.emit("paid", 1)
    worker.apply()
    expired = {"expired": [{"r": task.run_id, "t": task.task_id, "k": "w"}]}
    assert worker.flush(effects=expired).met[0][3]["payload"] == 1


def test_a_consumed_wait_is_gone(store: Store, worker: HandWorker) -> None:
    """The record that holds the outcome takes the wait row away."""
    store.emit("paid", 1)
    task = task_of(store, worker)
    register(worker, task, "w")
    worker.record(task, 0, "event", "w", 1, consumed=[{"r": task.run_id, "t": task.task_id, "k": "w"}])
    assert store.value("select count(*) from durable.wait") == 0


def park_waiters(store: Store, worker: HandWorker, count: int, **more: Any) -> list[str]:
    """So many parked tasks that wait for `paid`."""
    store.start_many("order", count)
    tasks = worker.claim(count)
    worker.flush(
        effects={"waits": [wait_row(task, "w", "paid", **more) for task in tasks]},
        parks=[{"t": task.task_id, "e": task.epoch, "w": 0} for task in tasks],
    )
    drain(worker)
    return [task.task_id for task in tasks]


def drain(worker: HandWorker) -> int:
    """Pass until nothing is left to do; how many passes it took."""
    for count in range(1, 100):
        passed = worker.apply()
        if not passed.more and not passed.signalled:
            return count
    raise AssertionError("signals that never end")


def test_more_waiters_than_one_pass_takes_are_woken_in_batches(store: Store, worker: HandWorker) -> None:
    """One event, 1,300 waiters: every one is woken, each once, and no pass takes more than its limit."""
    park_waiters(store, worker, 1300)
    store.emit("paid", 1)
    assert drain(worker) >= 3
    tasks = worker.claim(2000)
    assert len({task.task_id for task in tasks}) == len(tasks) == 1300
    assert {task.wakes for task in tasks} == {1}


def test_waiters_that_want_nothing_of_this_event_hide_nobody(store: Store, worker: HandWorker) -> None:
    """Waits in front that the event does not fit (they want a later one) do not keep it from those behind."""
    future = float(store.value("select extract(epoch from now())::float8")) + 9e6
    park_waiters(store, worker, 600, since=future)
    behind = park_waiters(store, worker, 5)
    store.emit("paid", 1)
    drain(worker)
    assert sorted(task.task_id for task in worker.claim(100)) == sorted(behind)


def test_emits_and_waits_in_any_order_meet_exactly_once(store: Store, worker: HandWorker) -> None:
    """Emitters in open transactions, waiters and several passes at once: each waiter wakes, once."""
    store.start_many("order", 120)
    tasks = worker.claim(120)
    names = [f"e{number}" for number in range(30)]

    def emit() -> None:
        with Store(store.dsn) as other:
            for name in names:
                with other.connection.transaction():
                    other.emit(name, 1)
                    other.run("select pg_sleep(0.001)")

    def wait() -> None:
        with Store(store.dsn) as other:
            mine = worker.on(other)
            for number, task in enumerate(tasks):
                mine.park(task, waits=[wait_row(task, "w", names[number % 30])])

    def apply(stop: threading.Event) -> None:
        with Store(store.dsn) as other:
            passer = other.worker()
            while not stop.is_set():
                passer.apply(timers=False)

    stop = threading.Event()
    threads = [threading.Thread(target=emit), threading.Thread(target=wait)]
    passers = [threading.Thread(target=apply, args=(stop,)) for _ in range(2)]
    for thread in [*threads, *passers]:
        thread.start()
    for thread in threads:
        thread.join(30)
    stop.set()
    for thread in passers:
        thread.join(30)
    drain(worker)
    outcomes = store.rows("select outcome is not null, t.wakes from durable.wait w join durable.task t using (task_id)")
    assert outcomes == [(True, 1)] * 120
    assert store.value("select count(*) from durable.signal") == 0


def test_ids_of_one_session_are_in_the_order_of_their_making(store: Store) -> None:
    """Events that are emitted one after the other are received in that order, within a millisecond too."""
    made = [row[0] for row in store.rows("select durable.uuid7() from generate_series(1, 2000) n order by n")]
    stamps = [str(one)[:18] for one in made]
    assert stamps == sorted(stamps)
    assert {(one.version, one.variant) for one in made} == {(7, RFC_4122)}
    assert len(set(stamps)) > 1
