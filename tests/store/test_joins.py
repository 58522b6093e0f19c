"""Waits for children: all, first failure, any."""

from typing import Any

import pytest

from durable.claims import Claimed
from durable.testing.protocol import Store, wait_row


class Family:
    """A parked parent and its running children."""

    def __init__(self, store: Store, count: int, mode: str, *, wait_first: bool = True):
        self.store = store
        self.worker = store.worker()
        store.spawn("order")
        self.parent = self.worker.claim_one()
        ids = self.worker.spawn(self.parent, "order", count)
        self._wait = wait_row(self.parent, "join", mode=mode, kids=ids)
        self.children: dict[str, Claimed] = {task.task_id: task for task in self.worker.claim(count)}
        self.ids = ids
        if wait_first:
            self.wait()

    def wait(self) -> None:
        self.worker.park(self.parent, waits=[self._wait])
        self.worker.apply()

    def end(self, number: int, state: str = "succeeded") -> None:
        self.worker.end(self.children[self.ids[number]], state)

    @property
    def outcome(self) -> Any:
        self.worker.apply()
        return self.store.value("select outcome from durable.wait where key = 'join'")


@pytest.mark.parametrize("state", ["succeeded", "failed"])
def test_all_waits_for_the_last_one(store: Store, state: str) -> None:
    """Whatever the children come to, `all` is over when none is open."""
    family = Family(store, 3, "all")
    for number in (0, 1):
        family.end(number, state)
        assert family.outcome is None
    family.end(2)
    assert family.outcome == {"done": True}
    assert store.state(family.parent.task_id) == "ready"


def test_first_failure_wakes_at_the_first_that_did_not_succeed(store: Store) -> None:
    """It names the child; one that succeeded does not wake the parent."""
    family = Family(store, 3, "first_failure")
    family.end(0)
    assert family.outcome is None
    family.end(1, "failed")
    assert family.outcome == {"first": family.ids[1]}


def test_first_failure_without_a_failure_is_over_at_the_end(store: Store) -> None:
    family = Family(store, 2, "first_failure")
    family.end(0)
    family.end(1)
    assert family.outcome == {"done": True}


def test_any_wakes_at_the_first_that_ends(store: Store) -> None:
    family = Family(store, 3, "any")
    family.end(2)
    assert family.outcome == {"first": family.ids[2]}


@pytest.mark.parametrize(
    ("mode", "state"), [("all", None), ("first_failure", "failed"), ("any", "succeeded"), ("any", "failed")]
)
def test_children_that_ended_before_the_wait_are_seen(store: Store, mode: str, state: str | None) -> None:
    """A wait that comes after its children looks through them once."""
    family = Family(store, 2, mode, wait_first=False)
    family.end(0, state or "succeeded")
    if state is None:
        family.end(1)
    family.worker.apply()
    family.wait()
    assert family.outcome == ({"done": True} if state is None else {"first": family.ids[0]})


def test_the_outcome_of_a_join_never_changes(store: Store) -> None:
    """A second failure does not replace the first."""
    family = Family(store, 3, "first_failure")
    family.end(1, "failed")
    assert family.outcome == {"first": family.ids[1]}
    family.end(0, "failed")
    family.end(2)
    assert family.outcome == {"first": family.ids[1]}
    assert store.value("select wakes from durable.task where task_id = %s", family.parent.task_id) == 1


def test_the_last_two_children_cannot_both_miss_the_parent(store: Store) -> None:
    """Each ends in a transaction that does not see the other; the parent wakes all the same."""
    family = Family(store, 2, "all")
    with Store(store.dsn) as one, Store(store.dsn) as two:
        first, second = (family.children[child] for child in family.ids)
        other = two.worker()
        two.run("update durable.held set worker_id = %s where task_id = %s", other.id, second.task_id)
        with one.connection.transaction(), two.connection.transaction():
            family.worker.on(one).end(first)
            other.end(second)
    assert family.outcome == {"done": True}


def test_children_of_a_parent_that_ended_are_stopped(store: Store) -> None:
    """Nothing goes on below a run that is over."""
    family = Family(store, 2, "all", wait_first=False)
    family.worker.end(family.parent)
    told = family.worker.apply().told
    assert sorted(row[0] for row in told) == sorted(family.ids)
    assert {row[2] for row in told} == {"cancel:its parent ended"}


def test_results_of_children_are_read_by_their_ids(store: Store) -> None:
    """read_children answers in id order, by span or by list."""
    family = Family(store, 2, "all")
    family.end(0)
    family.end(1, "failed")
    rows = store.value("select durable.read_children(null, null, %s::uuid[])", family.ids)
    assert [(row[0], row[1]) for row in rows] == [(family.ids[0], "succeeded"), (family.ids[1], "failed")]
    assert store.value("select durable.read_children(%s, %s, null)", *family.ids) == rows
