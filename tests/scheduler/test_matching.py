"""What a look at an event trigger decides, without a store."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from scheduler.matching import Caught, Look, Rule, look
from scheduler.timetable import Timetable

DAY = datetime(2026, 6, 1, tzinfo=UTC)
DAILY = Timetable.of(cron="@daily")


def event(number: int, *matched: int, hours: float = 0) -> Caught:
    return Caught(UUID(int=number), DAY + timedelta(hours=hours, seconds=number), matched or (1,))


def fired(found: Look) -> list[list[int]]:
    """Which events each run is of."""
    return [[event.int for _, event in firing.events] for firing in found.firings]


def test_any_makes_a_run_of_each_event() -> None:
    """Without an interval every event is a run of its own, whichever name it fits."""
    found = look(Rule("w", 2), [event(1, 1), event(2, 2), event(3, 1, 2)])
    assert fired(found) == [[1], [2], [3]]


def test_any_per_interval_makes_a_run_of_the_first_event() -> None:
    """Later events of the interval are counted and make no run; the next interval has its own."""
    rule = Rule("w", 1, "any", DAILY)
    found = look(rule, [event(1, hours=1), event(2, hours=2), event(3, hours=25)])
    assert fired(found) == [[1], [3]]
    assert [firing.interval for firing in found.firings] == [
        (DAY, DAY + timedelta(days=1)),
        (DAY + timedelta(days=1), DAY + timedelta(days=2)),
    ]
    assert found.surplus == [(UUID(int=2), DAY + timedelta(days=1))]


def test_an_interval_that_has_its_run_gets_no_other() -> None:
    """What an earlier look has fired stays fired."""
    found = look(Rule("w", 1, "any", DAILY), [event(1, hours=1)], fired=[DAY + timedelta(days=1)])
    assert (found.firings, len(found.surplus)) == ([], 1)


def test_an_event_at_a_tick_opens_the_next_interval() -> None:
    """An interval holds its beginning and not its end."""
    at_tick = Caught(UUID(int=1), DAY, (1,))
    assert Rule("w", 1, "any", DAILY).interval(at_tick) == (DAY, DAY + timedelta(days=1))


def test_all_per_interval_waits_for_each_name() -> None:
    """Events of different intervals never meet; what waits is taken up by the look that completes it."""
    rule = Rule("w", 2, "all", DAILY)
    first = look(rule, [event(1, 1, hours=1), event(2, 2, hours=25)])
    assert (first.firings, len(first.waiting)) == ([], 2)
    second = look(rule, [event(3, 2, hours=3)], [event(1, 1, hours=1)])
    assert fired(second) == [[1, 3]]


def test_an_event_that_fits_several_names_stands_for_each() -> None:
    """One event may complete a set alone."""
    assert fired(look(Rule("w", 2, "all", DAILY), [event(1, 1, 2)])) == [[1, 1]]


def test_all_without_an_interval_takes_the_oldest_of_each_name() -> None:
    """Sets are made in the order of time, and what is left over waits."""
    fresh = [event(3, 2), event(4, 2), event(5, 2)]
    found = look(Rule("w", 2, "all"), fresh, [event(1, 1), event(2, 1)])
    assert fired(found) == [[1, 3], [2, 4]]
    assert found.waiting == [(UUID(int=5), None)]


matches = st.sampled_from([(1,), (2,), (3,), (1, 2), (2, 3)])


@given(st.lists(matches, max_size=30), st.integers(1, 7), st.booleans())
def test_an_event_is_in_one_run_at_most_and_nothing_is_lost(kinds: list[tuple[int, ...]], size: int, per: bool) -> None:
    """However events are cut into looks, each is in one run, surplus, or waits; and what waits holds no full set."""
    rule = Rule("w", 3, "all", DAILY if per else None)
    events = [event(number, *kind, hours=number) for number, kind in enumerate(kinds, 1)]
    known, waiting = {e.event_id: e for e in events}, dict[UUID, Caught]()
    ends, used, surplus = set[datetime](), list[UUID](), set[UUID]()
    for at in range(0, len(events), size):
        found = look(rule, events[at : at + size], list(waiting.values()), ends)
        used += [e for firing in found.firings for e in {e for _, e in firing.events}]
        surplus |= {e for e, _ in found.surplus}
        ends |= {firing.interval[1] for firing in found.firings if firing.interval}
        waiting |= {e: known[e] for e, _ in found.waiting}
        waiting = {e: caught for e, caught in waiting.items() if e not in used}
    assert len(used) == len(set(used))
    assert {*used, *surplus, *waiting} == set(known)
    assert not look(rule, [], list(waiting.values()), ends).firings
