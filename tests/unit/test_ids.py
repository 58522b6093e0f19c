"""Ids: time-ordered, unique, and a group of children named by its ends."""

from __future__ import annotations

import os
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable import ids


def test_ids_are_uuids_of_version_7() -> None:
    """PostgreSQL and every other reader take them for what they are."""
    parsed = [uuid.UUID(ids.uuid7()) for _ in range(5000)]
    assert {(one.version, one.variant) for one in parsed} == {(7, uuid.RFC_4122)}


def test_ids_are_unique() -> None:
    """Also across refills of the pool of randomness."""
    assert len({ids.uuid7() for _ in range(50_000)}) == 50_000


def test_later_ids_are_greater(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids of later milliseconds sort behind earlier ones, as text and as numbers."""
    ticks = iter(range(1_700_000_000_000_000_000, 1_800_000_000_000_000_000, 10**15))
    monkeypatch.setattr(ids.time, "time_ns", lambda: next(ticks))
    made = [ids.uuid7() for _ in range(100)]
    assert made == sorted(made) == [str(one) for one in sorted(map(uuid.UUID, made))]


def test_fine_ids_keep_the_order_within_a_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    """A microsecond later is greater; they are ids of version 7 like the others."""
    ticks = iter(range(1_700_000_000_000_000_000, 1_700_000_000_002_000_000, 250))
    # Twice an id: once for its fraction, once for its noise.
    pairs = (tick for tick in ticks for _ in range(2))
    monkeypatch.setattr(ids.time, "time_ns", lambda: next(pairs))
    made = [ids.fine_uuid7() for _ in range(2000)]
    assert made[::4] == sorted(made[::4])
    assert {(one.version, one.variant) for one in map(uuid.UUID, made)} == {(7, uuid.RFC_4122)}


@given(st.integers(0, 300))
def test_children_are_counted_on_from_the_first(count: int) -> None:
    """Consecutive, in order, valid, and within the span of first and last."""
    first = ids.group_start()
    children = ids.child_ids(first, count)
    assert children == sorted(set(children))
    assert [uuid.UUID(child).int - uuid.UUID(first).int for child in children] == list(range(count))
    assert {uuid.UUID(child).version for child in children} <= {7}


def test_groups_do_not_overlap() -> None:
    """A group has room for four thousand million children before the next one could begin."""
    starts = {ids.group_start() for _ in range(5000)}
    assert len(starts) == 5000
    assert {start[-8:] for start in starts} == {"00000000"}


def test_a_forked_process_makes_ids_of_its_own() -> None:
    """A child must not hand out the ids that its parent is about to make."""
    ids.uuid7()
    ours, theirs = os.pipe()
    if (child := os.fork()) == 0:
        os.write(theirs, b"".join(ids.uuid7().encode() for _ in range(50)))
        os._exit(0)
    os.waitpid(child, 0)
    data = os.read(ours, 10_000).decode()
    made = {data[at : at + 36] for at in range(0, len(data), 36)}
    assert len(made) == 50
    assert {one[14:] for one in made}.isdisjoint(ids.uuid7()[14:] for _ in range(60))
