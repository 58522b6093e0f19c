"""The watch over other workers: silence is judged only by what was seen without a gap."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from durable.beat import Watch

LEASE = 10.0


def watched(*looks: tuple[float, int]) -> list[tuple[str, int]]:
    """What a watch says after it has seen one worker's beats at these times."""
    watch = Watch(LEASE)
    found: list[tuple[str, int]] = []
    for now, beat in looks:
        found = watch.silent({"w": beat}, now)
    return found


def test_a_beat_that_stands_still_for_a_lease_is_silence() -> None:
    assert watched((0, 1), (4, 1), (8, 1)) == []
    assert watched((0, 1), (4, 1), (8, 1), (10, 1)) == [("w", 1)]


def test_every_new_beat_begins_a_new_lease() -> None:
    assert watched((0, 1), (4, 1), (8, 2), (12, 2), (16, 2)) == []
    assert watched((0, 1), (4, 1), (8, 2), (12, 2), (16, 2), (18, 2)) == [("w", 2)]


def test_who_was_away_knows_nothing() -> None:
    """A stall of the watcher itself, or of the database, says nothing about the others."""
    assert watched((0, 1), (4, 1), (60, 1)) == []
    assert watched((0, 1), (4, 1), (60, 1), (64, 1), (68, 1), (70, 1)) == [("w", 1)]


def test_a_worker_that_left_is_forgotten() -> None:
    """When one of the same id comes back, it has a whole lease again."""
    watch = Watch(LEASE)
    watch.silent({"w": 1}, 0)
    watch.silent({}, 4)
    watch.silent({"w": 1}, 8)
    assert watch.silent({"w": 1}, 12) == []


def test_workers_are_judged_one_by_one() -> None:
    watch = Watch(LEASE)
    for now in (0, 4, 8):
        watch.silent({"dead": 3, "alive": now}, now)
    assert watch.silent({"dead": 3, "alive": 9}, 10) == [("dead", 3)]


@given(st.lists(st.tuples(st.floats(0.1, 30), st.booleans()), min_size=1, max_size=60))
def test_nobody_is_silent_who_was_not_watched_for_a_whole_lease(looks: list[tuple[float, bool]]) -> None:
    """Whatever the times of the looks: silence means a lease of looks, none half a lease apart, and no new beat."""
    watch, now, beat, since, last = Watch(LEASE), 0.0, 0, 0.0, 0.0
    watch.silent({"w": beat}, now)
    for rest, moved in looks:
        now, beat = now + rest, beat + moved
        if moved or now - last > LEASE / 2:
            since = now
        last = now
        assert bool(watch.silent({"w": beat}, now)) is (now - since >= LEASE)
