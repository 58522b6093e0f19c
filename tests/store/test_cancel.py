"""Cancel: a run ends with everything below it, and starts no further step."""

import pytest

from durable.testing.protocol import HandWorker, Store, wait_row


@pytest.fixture
def worker(store: Store) -> HandWorker:
    return store.worker()


def cancel(store: Store, task: str, reason: str = "no longer wanted") -> None:
    store.run("select durable.cancel(%s, %s)", task, reason)


def settle(worker: HandWorker) -> None:
    while worker.apply().signalled:
        pass


def test_a_run_nobody_has_claimed_is_cancelled_at_once(store: Store, worker: HandWorker) -> None:
    """It leaves its line and says who wanted it to end."""
    run = store.spawn("order")
    cancel(store, run)
    settle(worker)
    assert store.state(run) == "cancelled"
    assert store.value("select error from durable.task") == {"type": "Cancelled", "message": "no longer wanted"}
    assert worker.claim(1) == []


def test_a_running_task_is_told_to_stop_in_every_flush(store: Store, worker: HandWorker) -> None:
    """Until it has ended: a lost answer does not lose the cancel."""
    store.spawn("order")
    task = worker.claim_one()
    cancel(store, task.task_id)
    worker.apply()
    for _ in range(2):
        [[told, _, stop, _]] = worker.flush().told
        assert (told, stop) == (task.task_id, "cancel:no longer wanted")
    assert worker.park(task).refused[0][2] == "cancel:no longer wanted"
    worker.end(task, "cancelled")
    assert worker.flush().told is None


@pytest.mark.parametrize("cleanup", [False, True])
def test_a_parked_task_ends_or_cleans_up(store: Store, worker: HandWorker, cleanup: bool) -> None:
    """Without a cleanup it ends where it is; with one it becomes ready, and its claim says why."""
    store.register("order", has_cleanup=cleanup)
    run = store.spawn("order")
    task = worker.claim_one()
    worker.park(task, until=9e9, waits=[wait_row(task, "w", "paid")])
    cancel(store, run)
    assert (worker.apply().lines or []) == ([task.line] if cleanup else [])
    assert store.state(run) == ("ready" if cleanup else "cancelled")
    assert store.value("select count(*) from durable.timer") == 0
    assert [claimed.stop for claimed in worker.claim(1)] == (["cancel:no longer wanted"] if cleanup else [])


def test_a_cleanup_waits_for_its_running_slot(store: Store, worker: HandWorker) -> None:
    """A cancelled run that cleans up runs like any other: the cap on running runs holds."""
    store.register("order", has_cleanup=True, max_running=1)
    first, second = store.start("order"), store.start("order")
    settle(worker)
    worker.park(worker.claim_one())
    settle(worker)
    assert store.state(second) == "ready"
    cancel(store, first)
    settle(worker)
    assert store.states([first, second]) == ["queued", "ready"]
    worker.end(worker.claim_one())
    settle(worker)
    assert worker.claim_one().stop == "cancel:no longer wanted"


@pytest.mark.parametrize("kind", ["delayed", "queued"])
def test_a_run_that_has_not_begun_is_cancelled(store: Store, worker: HandWorker, kind: str) -> None:
    """Its timer, its place in a cap's queue and its slot are gone with it."""
    store.register("order", max_active_runs=1, has_cleanup=True)
    store.start("order")
    settle(worker)
    at = "2990-01-01T00:00:00Z" if kind == "delayed" else None
    run = store.start("order", at=at)
    assert store.state(run) == kind
    cancel(store, run)
    settle(worker)
    assert store.state(run) == "cancelled"
    assert store.rows("select * from durable.timer") == store.rows("select * from durable.cap_queue") == []


def test_everything_below_is_cancelled(store: Store, worker: HandWorker) -> None:
    """Children and their children, whatever they do at that moment."""
    run = store.spawn("order")
    root = worker.claim_one()
    children = worker.spawn(root, "order", 2)
    first, second = worker.claim(2)
    [grandchild] = worker.spawn(first, "order")
    worker.park(first)
    cancel(store, run)
    worker.apply()
    assert store.states([first.task_id, grandchild]) == ["cancelled", "cancelled"]
    assert {row[0] for row in worker.flush().told} == {run, second.task_id}
    assert set(children) == {first.task_id, second.task_id}


def test_cancelling_what_is_over_changes_nothing(store: Store, worker: HandWorker) -> None:
    """The first end stays."""
    run = store.spawn("order")
    worker.end(worker.claim_one(), result=7)
    cancel(store, run)
    settle(worker)
    assert store.rows("select state::text, result, error from durable.task") == [("succeeded", 7, None)]


def test_a_cancel_of_a_locked_task_is_applied_later(store: Store, worker: HandWorker) -> None:
    """The signal stays until the task can be locked."""
    run = store.spawn("order")
    cancel(store, run)
    with Store(store.dsn) as other, other.connection.transaction():
        other.run("select from durable.task where task_id = %s for update", run)
        worker.apply()
    assert store.state(run) == "ready"
    settle(worker)
    assert store.state(run) == "cancelled"


def test_an_unknown_run_is_refused(store: Store) -> None:
    """DU011, and no signal is left."""
    with pytest.raises(Exception, match="no run 00000000") as caught:
        cancel(store, "00000000-0000-7000-8000-000000000000")
    assert caught.value.sqlstate == "DU011"


def test_a_pass_names_the_others_that_have_news(store: Store) -> None:
    """Whoever runs a task that was cancelled is named until it has been told; not to itself."""
    run = store.spawn("order")
    holder, other = store.worker(), store.worker()
    holder.claim_one()
    store.run("select durable.cancel(%s)", run)
    assert other.apply().others == [holder.id]
    assert other.apply().others == [holder.id]
    passed = holder.apply()
    assert (passed.others, [told[0] for told in passed.told or []]) == (None, [run])
    assert other.apply().others is None
