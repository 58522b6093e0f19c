"""Claims: best priority first, oldest first, each task once, and only from the lines asked for."""

import threading

import pytest

from durable.testing.protocol import Store


def test_claims_go_by_priority_then_age(store: Store) -> None:
    """A later run of a better priority comes first; equals come in the order of their start, across lines."""
    store.register("ship")
    runs = [store.spawn(name, prio=prio) for name, prio in [("order", 5), ("ship", 5), ("order", 2), ("ship", 9)]]
    claimed = store.worker().claim(4)
    assert [task.task_id for task in claimed] == [runs[2], runs[0], runs[1], runs[3]]


def test_a_claim_takes_the_best_of_all_lines_first(store: Store) -> None:
    """A batch smaller than what is ready holds the best rows of all lines together, not some of each."""
    store.register("ship")
    last = store.start_many("order", 5, prio=7)
    first = store.start_many("ship", 5, prio=3)
    worker = store.worker()
    assert {task.task_id for task in worker.claim(5)} == set(first)
    assert {task.task_id for task in worker.claim(5)} == set(last)


def test_a_claim_never_returns_other_lines(store: Store) -> None:
    """Another workflow, another queue and the lines of lone tasks stay where they are."""
    order = store.lines[0]
    store.register("ship")
    store.register("order", queue="other")
    store.start_many("ship", 3)
    store.start("order", queue="other")
    mine = store.spawn("order")
    assert [task.task_id for task in store.worker().claim(10, [{"line": order}])] == [mine]
    assert store.worker().claim(10, [{"line": -order}]) == []


def test_a_horizon_is_a_hint_for_where_to_begin(store: Store) -> None:
    """Rows before the horizon are left out, rows at it and after it are found, in every priority."""
    line = store.lines[0]
    store.start_many("order", 2, prio=5)
    at = store.value("select extract(epoch from max(ready_at))::float8 from durable.ready")
    worker = store.worker()
    assert worker.claim(5, [{"line": line, "prio": 6, "at": at}]) == []
    assert worker.claim(5, [{"line": line, "prio": 5, "at": at + 60}]) == []
    better = store.spawn("order", prio=1)
    found = worker.claim(5, [{"line": line, "prio": 5, "at": at - 1}])
    assert len(found) == 2
    assert better not in {task.task_id for task in found}
    assert [task.task_id for task in worker.claim(5)] == [better]


@pytest.mark.parametrize("other_lines", [0, 1], ids=["one line", "two lines"])
def test_a_horizon_is_exact_among_tasks_of_one_instant(store: Store, other_lines: int) -> None:
    """Whoever starts many at once makes them ready at one time, to the microsecond: a claim begins at the very task."""
    runs = sorted(store.start_many("order", 50, prio=5))
    lines = [{"line": -99 - number} for number in range(other_lines)]
    worker = store.worker()
    for instant in ("2026-11-17 01:23:45.123456+00", "2001-09-09 01:46:40.000001+00", "2199-12-31 23:59:59.999999+00"):
        store.run("update durable.ready set ready_at = %s", instant)
        at = store.value("select date_part('epoch', ready_at) from durable.ready limit 1")
        begin = {"line": store.lines[0], "prio": 5, "at": at, "id": runs[20]}
        [first] = worker.claim(1, [begin, *lines])
        assert first.task_id == runs.pop(20)


def test_concurrent_claims_share_the_tasks(store: Store) -> None:
    """Workers that claim at the same time get each task once, and none is left."""
    runs = store.start_many("order", 300)
    taken: list[str] = []

    def work() -> None:
        with Store(store.dsn) as mine:
            mine.register("order")
            worker = mine.worker()
            while batch := worker.claim(7):
                taken.extend(task.task_id for task in batch)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    rest = [task.task_id for task in store.worker().claim(300)]
    assert sorted(taken + rest) == sorted(runs)


def test_a_claim_slides_past_rows_that_another_is_taking(store: Store) -> None:
    """A claim in an open transaction delays nobody: the next one takes the rows behind it."""
    first, second = store.start_many("order", 2)
    with Store(store.dsn) as other:
        other.register("order")
        mine, theirs = store.worker(), other.worker()
        with store.connection.transaction():
            assert mine.claim_one().task_id == first
            assert theirs.claim_one().task_id == second


@pytest.mark.parametrize("count", [0, 1])
def test_each_claim_raises_the_epoch(store: Store, count: int) -> None:
    """The first claim has epoch 1, and one after a park has the park's epoch plus one."""
    store.spawn("order")
    worker = store.worker()
    task = worker.claim_one()
    for _ in range(count):
        worker.park(task, until=store.value("select extract(epoch from durable.now())::float8"))
        task = worker.claim_one() if worker.apply() else task
    assert task.epoch == 1 + count
