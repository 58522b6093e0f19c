"""How runs come into the store: spawn, start_runs, register, keys, later starts."""

import json
import threading

import psycopg
import pytest

from durable.ids import uuid7
from durable.testing.protocol import Store


def refused(store: Store, code: str, call: str, *params: object) -> psycopg.Error:
    """The refusal of a call, by our own SQLSTATE."""
    with pytest.raises(psycopg.Error) as caught:
        store.run(call, *params)
    assert caught.value.sqlstate == code
    return caught.value


def test_a_spawned_run_is_ready_with_its_input(store: Store) -> None:
    """Spawn gives a run id, and the run can be claimed at once."""
    run = store.spawn("order", input=json.dumps({"item": 42}), tags=["red", "fast"])
    assert store.state(run) == "ready"
    assert store.rows("select input, tags, run_id = task_id from durable.task") == [
        ({"item": 42}, ["red", "fast"], True)
    ]
    assert store.worker().claim_one().input == {"item": 42}


def test_an_unknown_workflow_is_refused_with_the_known_ones(store: Store) -> None:
    """DU010 names what is registered, and nothing was written."""
    error = refused(store, "DU010", "select durable.spawn('ordre')")
    assert error.diag.message_primary == "unknown workflow 'ordre'"
    assert "Registered are: order" in (error.diag.message_hint or "")
    assert store.value("select count(*) from durable.task") == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "missing 'item'"),
        ({"item": 1, "colour": 2}, "unknown 'colour'"),
        ([1], 'input of \'ship\' is not a JSON object but array'),
    ],
)  # fmt: skip
def test_an_input_that_does_not_fit_is_refused(store: Store, given: object, said: str) -> None:
    """The keys of an input are checked against the registered parameters before anything is written."""
    store.register("ship", params={"required": ["item"], "optional": ["note"], "open": False})
    error = refused(store, "DU013", "select durable.spawn('ship', %s::json)", json.dumps(given))
    assert said in str(error)
    assert store.value("select count(*) from durable.task") == 0


def test_an_open_workflow_takes_unknown_arguments(store: Store) -> None:
    """A workflow with **kwargs is registered as open."""
    store.register("ship", params={"required": ["item"], "optional": [], "open": True})
    store.run("select durable.spawn('ship', '{\"item\": 1, \"colour\": 2}')")
    assert store.value("select count(*) from durable.task") == 1


@pytest.mark.parametrize("prio", [-1, 10])
def test_a_priority_out_of_range_is_refused(store: Store, prio: int) -> None:
    """Priorities are 0 (first) to 9."""
    refused(store, "DU013", "select durable.spawn('order', _prio => %s)", prio)


def test_the_same_key_is_the_same_run(store: Store) -> None:
    """A key is used once per workflow; another workflow has its own keys."""
    store.register("ship")
    first = store.spawn("order", key="42")
    assert store.spawn("order", key="42") == first
    assert store.spawn("ship", key="42") != first
    assert store.value("select count(*) from durable.task") == 2


def test_one_bulk_start_with_a_repeated_key_makes_one_run(store: Store) -> None:
    """Rows of one call that share a key answer with the one run that was made."""
    rows = [{"id": uuid7(), "line": store.lines[0], "key": "k", "scope": "run:order"} for _ in range(3)]
    answers = store.rows("select asked::text, run_id::text from durable.start_runs(%s::json)", json.dumps(rows))
    made = store.column("select task_id::text from durable.task")
    assert len(made) == 1
    assert dict(answers) == {row["id"]: made[0] for row in rows if row["id"] != made[0]}


def test_concurrent_transactions_with_one_key_make_one_run(store: Store) -> None:
    """The second waits for the first: it gets the first's run after a commit, its own after a rollback."""
    for committed in (True, False):
        key = f"commit-{committed}"
        first, answers = psycopg.connect(store.dsn), []
        made = first.execute("select durable.spawn('order', _key => %s)::text", (key,)).fetchone()
        second = threading.Thread(target=spawn_elsewhere, args=(store.dsn, key, answers))
        second.start()
        wait_until_blocked(store)
        first.commit() if committed else first.rollback()
        second.join(10)
        first.close()
        assert (answers == [made[0]]) is committed
        assert store.value("select count(*) from durable.once where key = %s", key) == 1


def spawn_elsewhere(dsn: str, key: str, answers: list[str]) -> None:
    with Store(dsn) as other:
        answers.append(other.spawn("order", key=key))


def wait_until_blocked(store: Store) -> None:
    """Return when one session of this database waits for another's lock."""
    asked = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    while not store.value(asked):
        pass


def test_a_run_started_for_later_is_delayed_until_its_time(store: Store) -> None:
    """It is in no line before its time, and a pass makes it ready after."""
    run = store.spawn("order", start_at=store.value("select now() + interval '1 hour'"))
    worker = store.worker()
    assert (worker.claim(1), store.state(run)) == ([], "delayed")
    assert worker.apply().next_timer == pytest.approx(3600, abs=60)
    store.skip("61 minutes")
    assert [task[0] for task in worker.apply(claim=1).claimed or ()] == [run]


def test_a_start_in_the_past_is_ready_now(store: Store) -> None:
    """A time that is over does not put a run in front of those that wait."""
    first = store.spawn("order")
    late = store.spawn("order", start_at=store.value("select now() - interval '1 hour'"))
    assert [task.task_id for task in store.worker().claim(2)] == [first, late]


def test_registering_again_changes_only_what_changed(store: Store) -> None:
    """Workers that register the same workflow write nothing; a new cap is stored."""
    before = store.rows("select xmin::text, name from durable.workflow")
    line = store.register("order")
    assert store.rows("select xmin::text, name from durable.workflow") == before
    assert store.register("order", max_running=3) == line
    assert store.value("select max_running from durable.workflow") == 3


def test_a_queue_is_made_by_its_first_use(store: Store) -> None:
    """Each queue of a workflow is a line of its own, and concurrent first uses agree on it."""
    found: list[int] = []

    def use() -> None:
        with Store(store.dsn) as other:
            found.append(other.value("select durable.line_of('fresh', 'order')"))

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert (len(found), len(set(found))) == (4, 1)
    assert found[0] not in store.lines


def test_a_deadline_ends_a_run_that_is_not_done(store: Store) -> None:
    """Given with the run or by its workflow; a run that ended in time is not touched."""
    store.register("ship", deadline=3600)
    mine, theirs, done = store.spawn("order", deadline="1 hour"), store.spawn("ship"), store.spawn("ship")
    worker = store.worker()
    for task in worker.claim(3):
        if task.task_id == done:
            worker.end(task)
        else:
            worker.park(task)
    assert store.value("select count(*) from durable.timer") == 2
    store.skip("61 minutes")
    worker.apply()
    worker.apply()
    assert store.states([mine, theirs, done]) == ["failed", "failed", "succeeded"]
    assert store.value("select error ->> 'type' from durable.task where task_id = %s", mine) == "DeadlineExceeded"
    assert store.value("select count(*) from durable.timer") == 0
