"""What one look at a schedule does, as laws of a pure function. The numbers are those of the cases of scheduling."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.deciding import (
    LATE,
    LATEST,
    MISSED,
    NEWER,
    NO_SLOT,
    PAST_FAILED,
    PAST_OPEN,
    PAUSED,
    TINY,
    WINDOW,
    Decision,
    Facts,
    Rule,
    Span,
    count_owed,
    decide,
    delay_of,
    resume,
    skip_next,
)
from scheduler.ticks import run_of
from scheduler.timetable import Timetable

GRACE = timedelta(seconds=60)


def at(day: int, hour: int = 0, minute: int = 0, second: int = 0) -> datetime:
    """An instant of June 2026."""
    return datetime(2026, 6, 1, hour, minute, second, tzinfo=UTC) + timedelta(days=day - 1)


def rule(cron: str | None = "0 0 * * *", *, start: datetime | None = None, **more: Any) -> Rule:
    since = more.pop("since", at(1))
    timetable = Timetable.of(cron=cron, every=more.pop("every", None), start_date=start, since=since)
    return Rule(workflow="w", timetable=timetable, start_date=start, since=since, **more)


def facts(now: datetime, **more: Any) -> Facts:
    return Facts(now=now, grace=GRACE, **more)


def made(decision: Decision) -> list[datetime]:
    return [tick.at for tick in decision.make]


def skips(decision: Decision) -> list[tuple[str, int | None]]:
    return [(note.text, note.ticks) for note in decision.notes if note.kind == "skipped"]


def after(old: Rule, decision: Decision) -> Rule:
    """The rule as the store has it after a decision."""
    spans = [
        replace(span, after=decision.spans[span.until] or span.after)
        for span in old.spans
        if decision.spans.get(span.until) is not None
    ]
    return replace(
        old,
        cursor=max(filter(None, (old.cursor, decision.cursor)), default=None),
        seen=max(filter(None, (old.seen, decision.seen)), default=None),
        once_done=old.once_done or (old.timetable.kind == "once" and bool(decision.make)),
        spans=tuple(spans),
    )


def test_a_tick_is_made_when_it_is_due_and_the_next_look_is_at_the_next() -> None:
    """One tick, its interval, and a cursor that stands on it."""
    decision = decide(rule(), facts(at(2)))
    assert [(tick.at, tick.start) for tick in decision.make] == [(at(2), at(1))]
    assert (decision.cursor, decision.next_at, decision.waiting) == (at(2), at(3), None)
    assert decision.notes == ()


def test_nothing_is_made_before_its_time() -> None:
    """A look that comes early changes nothing but when to look."""
    decision = decide(rule(), facts(at(1, 23, 59, 59)))
    assert (made(decision), decision.cursor, decision.next_at) == ([], None, at(2))


@pytest.mark.parametrize(("late", "runs"), [(0, 1), (60, 1), (61, 0)])
def test_without_catchup_a_tick_fires_within_the_grace_only(late: int, runs: int) -> None:
    """29: a restart or a deploy does not lose a tick; a longer downtime does, with a row that says so."""
    decision = decide(rule(), facts(at(2) + timedelta(seconds=late)))
    assert len(decision.make) == runs
    assert skips(decision) == ([] if runs else [(MISSED, 1)])
    assert decision.cursor == at(2)


def test_without_catchup_downtime_is_one_note_with_count_and_range() -> None:
    """29: ten thousand ticks are not ten thousand rows."""
    decision = decide(rule("* * * * *", cursor=at(1)), facts(at(8, 0, 0, 30)))
    assert made(decision) == [at(8) - timedelta(minutes=0)]
    note = decision.notes[0]
    assert (note.kind, note.text, note.ticks, note.first, note.last) == (
        "skipped", MISSED, 7 * 1440 - 1, at(1, 0, 1), at(7, 23, 59),
    )  # fmt: skip


def test_latest_makes_the_newest_missed_tick() -> None:
    """29: one run after any downtime, the others in one note."""
    decision = decide(rule("0 * * * *", catchup="latest", cursor=at(1)), facts(at(8, 5, 30)))
    assert made(decision) == [at(8, 5)]
    assert skips(decision) == [(LATEST, 7 * 24 + 4)]


def test_catchup_makes_all_oldest_first_as_slots_allow() -> None:
    """27: with one slot it is one tick, and the rest is owed."""
    old = rule(start=at(1, 10), catchup="true", overlap="queue", since=at(1, 10) - TINY)
    decision = decide(old, facts(at(10, 15, 30), slots=1))
    assert made(decision) == [at(3)]
    assert decision.waiting == NO_SLOT
    assert count_owed(after(old, decision), facts(at(10, 15, 30))) == 7


def test_a_catchup_window_skips_what_is_older() -> None:
    """28: only the ticks of the last day are owed; one note has the others."""
    old = rule("* * * * *", catchup="true", overlap="queue", window=timedelta(days=1), cursor=at(1))
    decision = decide(old, facts(at(8), slots=1))
    assert made(decision) == [at(7)]
    assert skips(decision) == [(WINDOW, 6 * 1440 - 1)]


@pytest.mark.parametrize(
    ("catchup", "overlap", "expected"), [("false", "skip", [8]), ("true", "queue", [3, 4, 5, 6, 7, 8])]
)
def test_when_a_slot_frees_after_six_ticks(catchup: Any, overlap: Any, expected: list[int]) -> None:
    """44, 45: without catchup the newest only and five are noted; with it all six in order."""
    state = rule(catchup=catchup, overlap=overlap, cursor=at(2), seen=at(2))
    skipped: Counter[str] = Counter()
    for day in range(3, 9):
        decision = decide(state, facts(at(day), active=1, slots=1))
        assert (made(decision), decision.waiting) == ([], NO_SLOT)
        skipped.update({text: count or 0 for text, count in skips(decision)})
        state = after(state, decision)
    ran: list[datetime] = []
    while decision.waiting is not None:
        decision = decide(state, facts(at(8, 12), active=0, slots=1))
        ran += made(decision)
        state = after(state, decision)
    assert ran == [at(day) for day in expected]
    assert skipped == ({NEWER: 5} if overlap == "skip" else {})


def test_a_late_tick_is_noted() -> None:
    """A tick that waited for its slot says that it is late."""
    decision = decide(rule(cursor=at(2), seen=at(3)), facts(at(3, 5), slots=1))
    assert made(decision) == [at(3)]
    assert [(note.kind, note.text) for note in decision.notes] == [("late", LATE)]


def test_cancel_old_makes_way_for_the_newest() -> None:
    """The oldest runs are asked to end, as many as the cap needs; a manual run is never one of them."""
    old = rule(overlap="cancel_old", cursor=at(2), seen=at(2))
    decision = decide(old, facts(at(3), active=2, slots=2, runs=("a", "b")))
    assert (made(decision), decision.cancel) == ([at(3)], ("a",))
    waits = decide(old, facts(at(3), active=1, slots=1, runs=()))
    assert (made(waits), waits.cancel, waits.waiting) == ([], (), NO_SLOT)


def test_allow_knows_no_cap_and_comes_in_bursts() -> None:
    """Runs may pile up, a hundred a look, so that others have their turn in between."""
    old = rule("* * * * *", overlap="allow", catchup="true", cursor=at(1))
    decision = decide(old, facts(at(2), active=7, slots=1))
    assert (len(decision.make), decision.waiting, decision.next_at) == (100, None, at(2))


@pytest.mark.parametrize(
    ("past", "waiting"), [("failed", PAST_FAILED), ("cancelled", PAST_FAILED), ("open", PAST_OPEN)]
)
def test_depends_on_past_waits_for_success(past: str, waiting: str) -> None:
    """52: the new tick waits and says why; the first is exempt; success lets one through at a time."""
    old = rule(depends_on_past=True, overlap="queue", catchup="true", cursor=at(2), seen=at(2))
    decision = decide(old, facts(at(5), past=past, slots=1))
    assert (made(decision), decision.waiting) == ([], waiting)
    assert made(decide(old, facts(at(5), past="succeeded", slots=1))) == [at(3)]
    assert made(decide(replace(old, cursor=None), facts(at(5), past=None, slots=1))) == [at(2)]


def test_an_end_date_ends_the_schedule() -> None:
    """23: with catchup what lies before it is still owed; then, or at once without catchup, the end."""
    off = decide(rule(end_date=at(5, 12)), facts(at(10)))
    assert (made(off), off.ended, skips(off)) == ([], True, [(MISSED, 4)])
    state = rule(end_date=at(5, 12), catchup="true", overlap="queue")
    ran: list[datetime] = []
    for _ in range(4):
        decision = decide(state, facts(at(10), slots=1))
        ran += made(decision)
        state = after(state, decision)
    assert (ran, decision.ended) == ([at(2), at(3), at(4), at(5)], True)


def test_a_clock_that_goes_back_fires_nothing_again() -> None:
    """30: the last tick was the 12th and it is the 10th: the next is the 13th."""
    decision = decide(rule(cursor=at(12), seen=at(12)), facts(at(10)))
    assert (made(decision), decision.cursor, decision.next_at) == ([], at(12), at(13))


@pytest.mark.parametrize(("catchup", "expected"), [("false", []), ("latest", [4]), ("true", [2, 3, 4])])
def test_unpausing(catchup: Any, expected: list[int]) -> None:
    """39, 40: without catchup nothing until the next tick; latest gives one run; with catchup all are owed."""
    state = rule(catchup=catchup, overlap="queue", cursor=at(1))
    resumed = resume(state, facts(at(4, 12)))
    assert skips(resumed) == ([(PAUSED, 3)] if catchup == "false" else [])
    assert made(decide(after(state, resumed), facts(at(4, 12)))) == [at(day) for day in expected]


def test_once_is_once() -> None:
    """56: it fires even if nobody looked at its time, and never again, whatever is deployed later."""
    state = rule("@once", since=at(3))
    decision = decide(state, facts(at(9)))
    assert (made(decision), decision.ended) == ([at(3)], True)
    again = replace(after(state, decision), timetable=Timetable.of(cron="@once", since=at(20)), since=at(20))
    assert made(decide(again, facts(at(25)))) == []


def test_continuous_follows_its_own_end() -> None:
    """55: the end of a run is the tick of the next, and no instant is a tick twice."""
    state = rule("@continuous")
    first = decide(state, facts(at(3)))
    assert (made(first), first.waiting) == ([at(3)], PAST_OPEN)
    state = after(state, first)
    assert made(decide(state, facts(at(3, 1), active=1, slots=1))) == []
    assert made(decide(state, facts(at(3, 2), active=0, slots=1))) == [at(3, 2)]
    assert made(decide(state, facts(at(2), active=0, slots=1)))[0] > at(3)


def test_what_was_owed_when_the_timetable_changed_comes_first() -> None:
    """35: with the version and inputs of its time, in order, before the ticks of the new timetable."""
    span = Span(timetable=Timetable.of(cron="0 0 * * *"), after=at(2), until=at(4), version="old", inputs={"a": 1})
    state = rule("0 * * * *", since=at(4, 15, 30), spans=(span,), catchup="true", overlap="queue")
    ran = []
    for _ in range(4):
        decision = decide(state, facts(at(4, 17, 10), slots=1))
        ran += [(tick.at, tick.version) for tick in decision.make]
        state = after(state, decision)
    assert ran == [(at(3), "old"), (at(4), "old"), (at(4, 16), None), (at(4, 17), None)]
    assert state.spans == ()


def test_skip_next_takes_one_tick_out() -> None:
    """A person may leave out the next tick, and only that."""
    state = rule(cursor=at(2))
    decision = skip_next(state, facts(at(2, 12)), "skipped by ann")
    assert skips(decision) == [("skipped by ann", 1)]
    assert made(decide(after(state, decision), facts(at(3)))) == []
    assert made(decide(after(state, decision), facts(at(4)))) == [at(4)]


CRONS = st.sampled_from(["* * * * *", "*/7 * * * *", "0 * * * *", "0 3 * * *", "30 1-3 * * 1", "@continuous", "@once"])


@settings(deadline=None)
@given(CRONS, st.timedeltas(timedelta(seconds=1), timedelta(days=2)), st.integers(0, 5000))
def test_jitter_delays_a_tick_less_than_to_the_next(cron: str, jitter: timedelta, minutes: int) -> None:
    """57: the delay belongs to the tick, and never reaches the next one."""
    state = rule(cron, jitter=jitter)
    tick = state.timetable.next_after(at(1) + timedelta(minutes=minutes))
    if tick is None:
        return
    delay = delay_of(state, tick)
    following = state.timetable.next_after(tick)
    assert timedelta(0) <= delay < jitter
    assert delay == delay_of(state, tick)
    assert following is None or tick + delay < following
    assert made(decide(replace(state, cursor=tick - TINY), facts(tick + delay - TINY))) == []
    assert made(decide(replace(state, cursor=tick - TINY), facts(tick + delay))) == [tick]


SLOTS = st.one_of(st.none(), st.integers(1, 3))


@settings(deadline=None)
@given(
    cron=st.sampled_from(["*/5 * * * *", "0 * * * *", "7,9,50 * * * *"]),
    catchup=st.sampled_from(["false", "true", "latest"]),
    overlap=st.sampled_from(["queue", "skip", "cancel_old", "allow"]),
    jitter=st.one_of(st.none(), st.timedeltas(timedelta(seconds=1), timedelta(minutes=10))),
    window=st.one_of(st.none(), st.timedeltas(timedelta(minutes=1), timedelta(hours=3))),
    past=st.booleans(),
    slots=SLOTS,
    steps=st.lists(st.tuples(st.integers(-7200, 14400), st.integers(0, 3)), max_size=25),
)
def test_every_tick_is_decided_exactly_once(
    cron: str, catchup: Any, overlap: Any, jitter: Any, window: Any, past: bool, slots: Any, steps: list[Any]
) -> None:
    """Whatever policy, slots and clock do: each tick behind the cursor was made or noted as skipped, and once."""
    state = rule(cron, catchup=catchup, overlap=overlap, jitter=jitter, window=window, depends_on_past=past)
    now, active = at(1), 0
    ran: list[datetime] = []
    skipped = 0
    for seconds, ended in steps:
        now += timedelta(seconds=seconds)
        active = max(0, active - ended)
        runs = tuple(f"r{n}" for n in range(active))
        decision = decide(state, facts(now, active=active, slots=slots, runs=runs, past="succeeded" if ran else None))
        assert decision.cursor is None or state.cursor is None or decision.cursor >= state.cursor
        assert decision.next_at is not None
        ran += made(decision)
        skipped += sum(count or 0 for _, count in skips(decision))
        active += len(decision.make)
        assert slots is None or overlap == "allow" or not decision.make or active - len(decision.cancel) <= slots
        state = after(state, decision)
    assert ran == sorted(set(ran))
    assert len(ran) + skipped == (state.timetable.count(at(1), state.cursor) if state.cursor else 0)


@settings(deadline=None)
@given(st.text(min_size=1), st.datetimes(datetime(1990, 1, 1), datetime(2100, 1, 1)), st.integers(0, 3))
def test_the_run_of_a_tick_is_always_the_same(workflow: str, tick: datetime, attempt: int) -> None:
    """34: made again it has the same id, in the layout of a UUIDv7 of the tick's time; any other tick has another."""
    moment = tick.replace(tzinfo=UTC)
    run = run_of(workflow, moment, attempt)
    assert run == run_of(workflow, moment, attempt)
    assert (run[14], run[19] in "89ab") == ("7", True)
    assert int(run.replace("-", "")[:12], 16) == (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(
        milliseconds=1
    )
    others = {run_of(workflow + "x", moment, attempt), run_of(workflow, moment, attempt + 1)}
    assert run not in others
