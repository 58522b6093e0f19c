"""What a person does to a run that ended: retry and fork."""

import json

import pytest

from durable.claims import Claimed
from durable.testing.protocol import HandWorker, Store, wait_row

FAILED = {"type": "Boom", "message": "it failed", "step": "ship", "pos": 1}


@pytest.fixture
def worker(store: Store) -> HandWorker:
    return store.worker()


def failed(store: Store, worker: HandWorker) -> Claimed:
    """A run that charged, failed to ship, and ended."""
    store.spawn("order", input=json.dumps({"item": 1}), tags=["red"], prio=3)
    task = worker.claim_one()
    worker.record(task, 0, "step", "charge", "paid")
    worker.record(task, 1, "failed", "ship", FAILED)
    worker.end(task, "failed", error=FAILED)
    return task


def journal(store: Store, task: str) -> list[tuple[object, ...]]:
    positions, kinds, names, _ = store.value("select durable.read_journal(%s, %s)", task, task)
    return list(zip(positions or [], kinds or [], names or [], strict=True))


def test_a_retried_run_goes_on_from_the_step_that_failed(store: Store, worker: HandWorker) -> None:
    """Records stay; a retry record names the failure that no longer counts; the next claim replays."""
    run = failed(store, worker).task_id
    store.run("select durable.retry(%s)", run)
    assert store.state(run) == "ready"
    again = worker.claim_one()
    assert (again.task_id, again.stop, again.epoch > 1) == (run, None, True)
    assert journal(store, run) == [(0, "step", "charge"), (1, "failed", "ship"), (2, "retry", "retry")]
    assert store.value("select body from durable.journal where kind = 'retry'") == {"void": 1}
    assert store.rows("select result, error, finished_at from durable.task") == [(None, None, None)]


@pytest.mark.parametrize(("end", "hint"), [(None, "Cancel it first"), ("succeeded", "Use fork")])
def test_only_failed_and_cancelled_runs_are_retried(
    store: Store, worker: HandWorker, end: str | None, hint: str
) -> None:
    """DU012 says what state it is in and what to do instead."""
    run = store.spawn("order")
    task = worker.claim_one()
    if end:
        worker.end(task, end)
    with pytest.raises(Exception, match="only failed or cancelled runs are retried") as caught:
        store.run("select durable.retry(%s)", run)
    assert caught.value.sqlstate == "DU012"
    assert hint in caught.value.diag.message_hint


def test_a_retry_takes_the_failed_child_along(store: Store, worker: HandWorker) -> None:
    """The child that failed the run goes on, and so do those that were stopped by its end; others stay ended."""
    store.spawn("order")
    parent = worker.claim_one()
    children = worker.spawn(parent, "order", 3)
    good, bad, stopped = worker.claim(3)
    worker.end(good)
    worker.end(bad, "failed")
    worker.end(parent, "failed", error={"type": "Boom", "message": "x", "child": bad.task_id, "pos": 0})
    worker.apply()
    worker.end(stopped, "cancelled", error={"type": "Cancelled", "message": "its parent ended"})
    store.run("select durable.retry(%s)", parent.task_id)
    assert store.states(children) == ["succeeded", "ready", "ready"]
    assert store.state(parent.task_id) == "ready"
    again = {task.task_id: task for task in worker.claim(3)}
    worker.park(again[parent.task_id], waits=[wait_row(parent, "j", mode="all", kids=children)])
    worker.end(again[bad.task_id])
    worker.end(again[stopped.task_id])
    worker.apply()
    assert worker.claim_one().task_id == parent.task_id


def test_a_retry_takes_back_every_failure_that_the_error_names(store: Store, worker: HandWorker) -> None:
    """In the task and in those below it, which may have succeeded; a run that it started goes by its own error."""
    store.spawn("order")
    parent = worker.claim_one()
    [child] = worker.spawn(parent, "order")
    unit = worker.claim_one()
    worker.record(unit, 0, "failed", "inside", {"pos": 0})
    worker.end(unit, result="with a failure inside")
    for pos in (1, 2, 3):
        worker.record(parent, pos, "failed", f"step{pos}", {"pos": pos})
    voids = {parent.task_id: [1, 3], child: [0]}
    worker.end(parent, "failed", error={"type": "Boom", "message": "x", "pos": 1, "voids": voids})
    store.run("select durable.retry(%s)", parent.task_id)
    assert store.states([parent.task_id, child]) == ["ready", "ready"]
    retries = store.rows("select task_id::text, body from durable.journal where kind = 'retry' order by task_id")
    assert sorted(retries) == sorted([(parent.task_id, {"void": 1, "voids": [1, 3]}), (child, {"void": 0})])


def test_a_retried_run_takes_its_slot_again(store: Store, worker: HandWorker) -> None:
    """It stands in line like a new one."""
    store.register("order", max_active_runs=1)
    store.start("order")
    worker.apply()
    run = worker.claim_one()
    worker.end(run, "failed")
    other = store.start("order")
    worker.apply()
    store.run("select durable.retry(%s)", run.task_id)
    worker.apply()
    assert store.states([run.task_id, other]) == ["queued", "ready"]


def test_a_fork_takes_over_what_came_before(store: Store, worker: HandWorker) -> None:
    """A new run with the records before a position, the same input, tags and priority."""
    old = failed(store, worker).task_id
    new = str(store.value("select durable.fork(%s, 1)", old))
    assert journal(store, new) == [(0, "step", "charge")]
    assert store.rows("select input, tags, prio, state from durable.run where run_id = %s", new) == [
        ({"item": 1}, ["red"], 3, "ready")
    ]
    assert worker.claim_one().epoch > 1
    assert store.state(old) == "failed"


def test_a_fork_may_have_another_input(store: Store, worker: HandWorker) -> None:
    """It is checked like that of a new run."""
    store.register("order", params={"required": ["item"], "optional": [], "open": False})
    old = failed(store, worker).task_id
    new = store.value("select durable.fork(%s, 0, %s::json)", old, json.dumps({"item": 2}))
    assert store.value("select input from durable.run where run_id = %s", new) == {"item": 2}
    with pytest.raises(Exception, match="missing 'item'"):
        store.run("select durable.fork(%s, 0, '{}')", old)


def test_large_values_come_along_with_a_fork(store: Store, worker: HandWorker) -> None:
    """Values are kept per run, so that pruning one run cannot break another."""
    store.spawn("order")
    task = worker.claim_one()
    worker.record(task, 0, "step", "big", {"$durable": {"ref": "h"}}, values=[{"r": task.run_id, "h": "h", "b": "x"}])
    worker.end(task)
    new = store.value("select durable.fork(%s, 1)", task.run_id)
    store.run("delete from durable.value where run_id = %s", task.run_id)
    assert store.value("select durable.read_values(%s, array['h'])", new) == {"h": "x"}


@pytest.mark.parametrize("call", ["retry(%s)", "fork(%s, 0)"])
def test_an_unknown_run_is_refused(store: Store, call: str) -> None:
    with pytest.raises(Exception, match="no run") as caught:
        store.run(f"select durable.{call}", "00000000-0000-7000-8000-000000000000")
    assert caught.value.sqlstate == "DU011"
