"""Caps: how many runs are active or running is exact, whoever admits."""

import threading
from typing import Any

import pytest

from durable.testing.protocol import HandWorker, Store


@pytest.fixture
def worker(store: Store) -> HandWorker:
    return store.worker()


def admitted(store: Store, worker: HandWorker) -> int:
    """How many tasks hold their slots, after passes have nothing left to do."""
    settle(worker)
    return int(store.value("select count(*) from durable.task where state = 'active'"))


def settle(worker: HandWorker) -> None:
    for _ in range(50):
        passed = worker.apply()
        if not passed.signalled and not passed.more:
            return
    raise AssertionError("signals that never end")


CAPS = ["max_active_runs", "max_running", "max_active_per_key", "max_running_per_key"]


@pytest.mark.parametrize("cap", CAPS)
def test_a_cap_admits_so_many_and_the_next_when_one_ends(store: Store, worker: HandWorker, cap: str) -> None:
    """The rest is queued, and the oldest follows whoever ends."""
    store.register("order", **{cap: 2})
    runs = [store.start("order", cap="k") for _ in range(4)]
    assert store.states(runs) == ["queued"] * 4
    settle(worker)
    assert store.states(runs) == ["ready", "ready", "queued", "queued"]
    worker.end(worker.claim_one())
    settle(worker)
    assert store.states(runs) == ["succeeded", "ready", "ready", "queued"]
    assert store.value("select count(*) from durable.hold") == 2


def test_keys_have_caps_of_their_own(store: Store, worker: HandWorker) -> None:
    """A full key does not hold up another; a run without a key falls under no cap by key."""
    store.register("order", max_active_per_key=1)
    runs = [store.start("order", cap=key) for key in ("a", "a", "b", None)]
    settle(worker)
    assert store.states(runs) == ["ready", "queued", "ready", "ready"]


def test_a_better_priority_is_admitted_first(store: Store, worker: HandWorker) -> None:
    store.register("order", max_active_runs=1)
    low, high = store.start("order", prio=8), store.start("order", prio=1)
    settle(worker)
    assert store.states([low, high]) == ["queued", "ready"]


@pytest.mark.parametrize(("cap", "while_parked"), [("max_active_runs", "queued"), ("max_running", "ready")])
def test_a_park_gives_up_a_running_slot_and_keeps_an_active_one(
    store: Store, worker: HandWorker, cap: str, while_parked: str
) -> None:
    """Active means from start to end, running means while it runs."""
    store.register("order", **{cap: 1})
    _, second = store.start("order"), store.start("order")
    settle(worker)
    worker.park(worker.claim_one())
    settle(worker)
    assert store.state(second) == while_parked


def test_a_woken_task_stands_in_line_for_its_running_slot(store: Store, worker: HandWorker) -> None:
    """It gave the slot to another and takes it again before it is ready."""
    store.register("order", max_running=1)
    first, second = store.start("order"), store.start("order")
    settle(worker)
    worker.park(worker.claim_one(), until=0)
    settle(worker)
    assert store.states([first, second]) == ["queued", "ready"]
    worker.end(worker.claim_one())
    settle(worker)
    assert worker.claim_one().task_id == first


@pytest.mark.parametrize("cap", CAPS)
def test_raising_a_cap_admits_whoever_stands_in_line(store: Store, worker: HandWorker, cap: str) -> None:
    """At once, not only when the next slot is freed; without a cap all of them."""
    store.register("order", **{cap: 1})
    runs = [store.start("order", cap="k") for _ in range(4)]
    assert admitted(store, worker) == 1
    store.register("order", **{cap: 3})
    assert admitted(store, worker) == 3
    store.register("order")
    assert admitted(store, worker) == len(runs)


def test_lowering_a_cap_evicts_nobody_and_admits_nobody(store: Store, worker: HandWorker) -> None:
    """Those inside stay; the next is admitted when fewer than the new cap are left."""
    store.register("order", max_active_runs=3)
    for _ in range(5):
        store.start("order")
    assert admitted(store, worker) == 3
    store.register("order", max_active_runs=1)
    tasks = worker.claim(3)
    for task, left in zip(tasks, (2, 1, 1), strict=True):
        worker.end(task)
        assert admitted(store, worker) == left


def test_a_task_takes_all_its_slots_or_none(store: Store, worker: HandWorker) -> None:
    """One that waits for its key's slot does not hold a slot of the workflow meanwhile."""
    store.register("order", max_active_runs=2, max_active_per_key=1)
    runs = [store.start("order", cap=key) for key in ("a", "a", "b")]
    settle(worker)
    assert store.states(runs) == ["ready", "queued", "ready"]


@pytest.mark.parametrize("cap", ["max_active_runs", "max_running"])
def test_a_child_under_its_parents_cap_does_not_wait_for_it(store: Store, worker: HandWorker, cap: str) -> None:
    """A cap of 1 would wait for itself: the child uses the active slot of its parent."""
    store.register("order", **{cap: 1})
    store.start("order")
    settle(worker)
    parent = worker.claim_one()
    [child] = worker.spawn(parent, "order")
    worker.park(parent)
    settle(worker)
    assert store.state(child) == "ready"


def test_a_run_started_for_later_is_admitted_at_its_time(store: Store, worker: HandWorker) -> None:
    """It holds no slot before, and stands in line after."""
    store.register("order", max_active_runs=1)
    later = store.spawn("order", start_at=store.value("select now() + interval '1 hour'"))
    first = store.start("order")
    settle(worker)
    assert store.states([later, first]) == ["delayed", "ready"]
    store.skip("2 hours")
    settle(worker)
    assert store.state(later) == "queued"
    worker.end(worker.claim_one())
    settle(worker)
    assert store.state(later) == "ready"


def test_a_slot_is_not_lost_with_its_worker(store: Store, worker: HandWorker) -> None:
    """A hold belongs to the task: it survives the worker, and nobody else is admitted for it."""
    store.register("order", max_active_runs=1)
    first, second = store.start("order"), store.start("order")
    settle(worker)
    worker.claim_one()
    worker.bury()
    settle(store.worker())
    assert store.states([first, second]) == ["ready", "queued"]


def test_a_queued_task_that_is_locked_for_a_moment_is_admitted_later(store: Store, worker: HandWorker) -> None:
    """A pass that cannot lock the task leaves the free slot's signal for the next one."""
    store.register("order", max_active_runs=1)
    run = store.start("order")
    with Store(store.dsn) as other, other.connection.transaction():
        other.run("select from durable.task where task_id = %s for update", run)
        worker.apply()
    settle(worker)
    assert store.state(run) == "ready"


@pytest.mark.parametrize("cap", CAPS)
def test_concurrent_passes_never_exceed_a_cap(store: Store, cap: str) -> None:
    """Workers that admit, run and end at the same time: the cap holds at every moment, and every run ends."""
    store.register("order", **{cap: 3})
    for number in range(60):
        store.start("order", cap=f"k{number % 2}")
    most: list[int] = []
    threads = [threading.Thread(target=drain, args=(store.dsn, most)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert store.value("select count(*) from durable.task where state = 'succeeded'") == 60
    assert max(most) <= 3
    assert store.value("select count(*) from durable.hold") == 0


def drain(dsn: str, most: list[int]) -> None:
    """Work until every run has ended, and watch how many slots of a cap are taken."""
    with Store(dsn) as store:
        store.run("set deadlock_timeout = '50ms'")
        store._lines["default", "order"] = store.value("select line from durable.line")
        worker = store.worker()
        while store.value("select exists (select from durable.task where finished_at is null)"):
            attempt(worker, most)


def attempt(worker: HandWorker, most: list[int]) -> None:
    """One round of a worker; a lock that another pass holds is tried again, as the runtime does."""
    from psycopg import errors

    try:
        worker.apply()
        for task in worker.claim(2):
            worker.end(task)
    except (errors.LockNotAvailable, errors.DeadlockDetected):
        return
    counts: list[Any] = worker.store.column("select count(*) from durable.hold group by cap_key")
    most.append(max(counts, default=0))


def test_a_run_may_count_under_a_cap_of_its_own(store: Store, worker: HandWorker) -> None:
    """Named by the start instead of the workflow's: it has its own limit, and takes no slot from the others."""
    store.register("order", max_active_runs=1)
    store.run("insert into durable.cap (cap_key, slots) values ('b:x', 2)")
    own = [store.start("order", active_cap="b:x") for _ in range(3)]
    usual = [store.start("order") for _ in range(2)]
    settle(worker)
    assert store.states(own) == ["ready", "ready", "queued"]
    assert store.states(usual) == ["ready", "queued"]


def test_a_cap_of_its_own_holds_for_a_workflow_without_caps(store: Store, worker: HandWorker) -> None:
    store.run("insert into durable.cap (cap_key, slots) values ('b:x', 1)")
    runs = [store.start("order", active_cap="b:x"), store.start("order", active_cap="b:x"), store.start("order")]
    settle(worker)
    assert store.states(runs) == ["ready", "queued", "ready"]


def test_a_run_may_be_outside_the_active_cap_but_not_outside_the_running_one(store: Store, worker: HandWorker) -> None:
    """An empty name means no active cap; how many run at once stays exact."""
    store.register("order", max_active_runs=1)
    runs = [store.start("order", active_cap="") for _ in range(3)]
    assert store.states(runs) == ["ready"] * 3
    store.register("paced", max_active_runs=1, max_running=2)
    paced = [store.start("paced", active_cap="") for _ in range(3)]
    settle(worker)
    assert store.states(paced) == ["ready", "ready", "queued"]


def test_a_limit_beside_the_workflow_goes_before_its_own(store: Store, worker: HandWorker) -> None:
    """It caps a workflow that has none, and replaces the one that it has."""
    store.run("insert into durable.cap (cap_key, slots) values ('a:order', 2)")
    runs = [store.start("order") for _ in range(3)]
    settle(worker)
    assert store.states(runs) == ["ready", "ready", "queued"]
    store.register("order", max_active_runs=1)
    worker.end(worker.claim_one())
    settle(worker)
    assert store.states(runs) == ["succeeded", "ready", "ready"]


def test_a_held_cap_admits_nobody_until_it_is_let_go(store: Store, worker: HandWorker) -> None:
    store.register("order", max_active_runs=5)
    store.run("insert into durable.cap (cap_key, held) values ('a:order', true)")
    run = store.start("order")
    settle(worker)
    assert store.state(run) == "queued"
    store.run("select durable.release_runs('order')")
    settle(worker)
    assert store.state(run) == "ready"


def test_a_child_under_its_parents_own_cap_uses_its_slot(store: Store, worker: HandWorker) -> None:
    """As with the workflow's cap: otherwise one slot would wait for itself."""
    store.register("order", max_active_runs=1)
    store.run("insert into durable.cap (cap_key, slots) values ('b:x', 1)")
    store.start("order", active_cap="b:x")
    settle(worker)
    [child] = worker.spawn(worker.claim_one(), "order", active_cap="b:x")
    settle(worker)
    assert store.state(child) == "ready"


def test_a_queued_task_names_who_holds_its_slots(store: Store, worker: HandWorker) -> None:
    """For each cap that it waits for, with the limit; one that waits for nothing names nobody."""
    store.register("order", max_active_runs=1)
    first, second = store.start("order"), store.start("order")
    settle(worker)
    sql = "select cap_key, slots, run_id::text, workflow from durable.holders(%s)"
    assert store.rows(sql, second) == [("a:order", 1, first, "order")]
    assert store.rows(sql, first) == []
