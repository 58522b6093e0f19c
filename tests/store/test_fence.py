"""The fence and epochs: a worker without its lease changes nothing, and a write is applied once."""

import psycopg
import pytest

from durable.claims import Claimed
from durable.testing.protocol import HandWorker, Store, wait_row


def assert_fenced(call: object) -> None:
    with pytest.raises(psycopg.Error) as caught:
        call()  # type: ignore[operator]
    assert caught.value.sqlstate == "DU001"


def test_a_worker_without_its_lease_changes_nothing(store: Store) -> None:
    """Every write of a worker that was declared dead is refused, and its tasks belong to others."""
    run = store.spawn("order")
    worker = store.worker()
    task = worker.claim_one()
    assert worker.bury() == 1
    for call in (
        lambda: worker.record(task, 0, "step", "charge"),
        lambda: worker.end(task),
        lambda: worker.park(task),
        lambda: worker.apply(),
        lambda: worker.claim(1),
        lambda: store.run("select * from durable.renew(%s)", worker.id),
    ):
        assert_fenced(call)
    assert store.state(run) == "ready"
    assert store.value("select count(*) from durable.journal") == 0
    assert store.worker().claim_one().epoch == task.epoch + 1


def test_a_worker_that_beats_is_not_buried(store: Store) -> None:
    """A reaper names the beat that it watched; a newer one saves the worker."""
    worker = store.worker()
    store.run("select * from durable.renew(%s)", worker.id)
    assert store.value("select durable.bury(%s, 0)", worker.id) is None
    assert worker.claim(1) == []


def test_a_flush_that_was_applied_is_not_applied_again(store: Store) -> None:
    """The same number answers null: a lost answer costs nothing and doubles nothing."""
    store.spawn("order")
    worker = store.worker()
    task = worker.claim_one()
    row = {"t": task.task_id, "p": 0, "e": 1, "k": "step", "n": "charge", "b": 1}
    assert worker.flush(journal=[row], number=7) is not None
    assert worker.flush(journal=[row], number=7) is None
    assert worker.flush(journal=[row | {"p": 1}], number=6) is None
    assert store.column("select pos from durable.journal") == [0]


def test_channels_number_their_writes_apart(store: Store) -> None:
    """A number that one channel has used says nothing about the others."""
    worker = store.worker()
    assert worker.flush(channel=0, number=5) is not None
    assert worker.flush(channel=1, number=5) is not None
    assert worker.flush(channel=0, number=5) is None


def test_held_by_is_the_truth_after_a_lost_answer(store: Store) -> None:
    """What a lost claim took is found again, with its epoch; and so is what a wait met in a flush whose answer was
    lost, also in the first epoch of a task."""
    run = store.spawn("order")
    worker = store.worker()
    task = worker.claim_one()
    [row] = store.value("select durable.held_by(%s)", worker.id)
    assert (row[0], row[2], row[10]) == (run, 1, None)
    store.emit("paid", 42)
    worker.flush(effects={"waits": [wait_row(task, "w", "paid")]})
    [found] = [Claimed(*row) for row in store.value("select durable.held_by(%s)", worker.id)]
    assert [(key, outcome["payload"]) for key, outcome, _ in found.waits or ()] == [("w", 42)]
    assert found.wakes == 1


def again(store: Store, worker: HandWorker) -> tuple[object, object]:
    """A task's claim before and after a park, by the same worker."""
    store.spawn("order")
    old = worker.claim_one()
    worker.park(old, until=0)
    worker.apply()
    return old, worker.claim_one()


@pytest.mark.parametrize("move", ["park", "end"])
def test_a_stale_epoch_changes_nothing(store: Store, move: str) -> None:
    """A park or end that was meant for an earlier claim does not touch the task that runs now."""
    worker = store.worker()
    old, new = again(store, worker)
    getattr(worker, move)(old)
    assert store.state(old.task_id) == "running"
    assert store.rows("select epoch from durable.held") == [(new.epoch,)]
    worker.end(new)
    assert store.state(old.task_id) == "succeeded"


def test_a_stale_give_back_changes_nothing(store: Store) -> None:
    """Giving back an earlier claim leaves the task with its holder."""
    worker = store.worker()
    old, _ = again(store, worker)
    worker.flush(effects={"gives": [{"t": old.task_id, "e": old.epoch}]})
    assert store.state(old.task_id) == "running"


def test_another_workers_task_cannot_be_ended(store: Store) -> None:
    """Only the holder may end or park a task, whatever epoch is named."""
    store.spawn("order")
    holder, other = store.worker(), store.worker()
    task = holder.claim_one()
    other.end(task)
    other.park(task)
    assert store.state(task.task_id) == "running"


def test_a_given_back_task_is_ready_and_charged_to_nobody(store: Store) -> None:
    """A drained worker returns its tasks; the next claim replays from the journal."""
    store.spawn("order")
    worker = store.worker()
    task = worker.claim_one()
    worker.flush(effects={"gives": [{"t": task.task_id, "e": task.epoch}]})
    assert store.rows("select lost, lost_alone from durable.task") == [(0, 0)]
    assert worker.claim_one().epoch == 2


def test_a_task_that_was_never_begun_goes_back_to_its_place(store: Store) -> None:
    """In front of those that became ready after it."""
    first, second = store.start_many("order", 2)
    worker = store.worker()
    task = worker.claim_one()
    [[at]] = store.rows(
        "select extract(epoch from ready_at)::float8 from durable.task where task_id = %s", task.task_id
    )
    worker.flush(effects={"gives": [{"t": task.task_id, "e": task.epoch, "a": at}]})
    assert [worker.claim_one().task_id for _ in range(2)] == [first, second]


def test_leaving_gives_everything_back(store: Store) -> None:
    """A worker that goes of its own will leaves no held task, no fence and no blame."""
    runs = store.start_many("order", 3)
    worker = store.worker()
    worker.claim(3)
    assert store.value("select durable.leave(%s)", worker.id) == 3
    assert store.states(runs) == ["ready"] * 3
    assert store.column("select lost from durable.task") == [0, 0, 0]
    assert_fenced(lambda: worker.claim(1))


def test_a_task_lost_twice_runs_alone(store: Store) -> None:
    """After two lost workers it stands in the line of lone tasks, which an ordinary claim never sees."""
    store.spawn("order")
    for _ in range(2):
        worker = store.worker()
        worker.claim_one()
        worker.bury()
    worker = store.worker()
    assert worker.claim(1) == []
    [task] = worker.claim(1, [{"line": -store.lines[0]}], alone=True)
    assert (task.from_line, task.line) == (-store.lines[0], store.lines[0])


def test_only_losses_while_alone_count_towards_quarantine(store: Store) -> None:
    """A task that takes down its worker three times while it runs alone is failed, and says what to do."""
    run = store.spawn("order")
    alone = [{"line": -store.lines[0]}]
    for loss in range(5):
        worker = store.worker()
        [_] = worker.claim(1, alone if loss >= 2 else None, alone=loss >= 2)
        worker.bury(quarantine=3)
    assert store.state(run) == "failed"
    error = store.value("select error from durable.task")
    assert error["type"] == "Quarantined"
    assert "durable runs retry" in error["message"]
    assert store.value("select count(*) from durable.held") + store.value("select count(*) from durable.ready") == 0
    store.run("select durable.retry(%s)", run)
    assert store.rows("select lost, lost_alone from durable.task") == [(0, 0)]
    assert store.worker().claim_one().task_id == run


def test_a_quarantined_child_wakes_its_parent(store: Store) -> None:
    """Its parent sees a failed child like any other."""
    store.spawn("order")
    worker = store.worker()
    parent = worker.claim_one()
    [child] = worker.spawn(parent, "order")
    worker.park(parent, waits=[wait_row(parent, "join", mode="all", kids=[child])])
    worker.apply()
    doomed = store.worker()
    doomed.claim_one()
    store.run("update durable.held set alone = true where task_id = %s", child)
    doomed.bury(quarantine=1)
    assert [row[0] for row in worker.apply(claim=1).claimed or ()] == [parent.task_id]


def test_a_write_in_flight_ends_before_its_worker_is_buried(store: Store) -> None:
    """A reaper waits for a flush in progress (at most a second), then finds its record; it never interrupts it."""
    store.spawn("order")
    worker = store.worker()
    task = worker.claim_one()
    with Store(store.dsn) as other:
        with other.connection.transaction():
            worker.on(other).record(task, 0, "step", "charge")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                worker.bury()
        assert worker.bury() == 1
    assert store.column("select name from durable.journal") == ["charge"]


def test_a_transaction_step_holds_up_no_reaper(store: Store) -> None:
    """The fence is passed last: before that a worker with an open transaction step is buried at once, and the step
    then finds its fence gone and writes nothing."""
    store.run("create table sold (item int)")
    store.spawn("order")
    worker = store.worker()
    task = worker.claim_one()
    row = f'{{"t": "{task.task_id}", "p": 0, "e": 1, "k": "step", "n": "charge", "b": null}}'
    step = psycopg.connect(store.dsn)
    step.execute("insert into sold values (1)")
    assert worker.bury() == 1
    with pytest.raises(psycopg.Error) as caught:
        step.execute("select durable.record_in_transaction(%s, 1, 1, %s, null)", (worker.id, row))
    step.close()
    assert caught.value.sqlstate == "DU001"
    assert store.rows("select * from sold") == store.rows("select * from durable.journal") == []
