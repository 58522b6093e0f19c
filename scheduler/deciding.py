"""What one look at a schedule does: which ticks become runs, which are skipped and why, and when to look again.

Pure: the same rule and facts give the same decision, so that a scheduler that dies before its commit loses nothing. The
one rule: the cursor only moves forward, over ticks that were made or whose skip is noted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from scheduler.ticks import Tick, share_of
from scheduler.timetable import Timetable

TINY = timedelta(microseconds=1)
NEVER = datetime.max.replace(tzinfo=UTC) - timedelta(days=2)
# The most ticks that one look makes of one schedule, where no cap says less: others have their turn in between.
BURST = 100
# How soon a schedule is looked at again that waits for nothing but the end of a run, should nobody tell of it.
FALLBACK = timedelta(minutes=1)

NO_SLOT = "no slot is free"
PAST_OPEN = "the run of the tick before has not ended"
PAST_FAILED = "the run of the tick before did not succeed"

MISSED = "no scheduler ran when they were due"
WINDOW = "older than the catchup window"
PAUSED = "due while the schedule was paused"
NEWER = "no slot was free before the next tick was due"
LATEST = "only the latest missed tick is made"
LATE = "made later than its time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Ticks that were owed when the timetable was changed. They keep the version and inputs of their time."""

    timetable: Timetable
    after: datetime
    until: datetime
    version: str | None = None
    inputs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A schedule as far as a decision needs it."""

    workflow: str
    timetable: Timetable
    since: datetime
    cursor: datetime | None = None
    seen: datetime | None = None
    start_date: datetime | None = None
    end_date: datetime | None = None
    catchup: Literal["false", "true", "latest"] = "false"
    window: timedelta | None = None
    overlap: Literal["queue", "skip", "cancel_old", "allow"] = "skip"
    jitter: timedelta | None = None
    depends_on_past: bool = False
    once_done: bool = False
    spans: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the store knows at the moment of the look. `slots` None: no cap; `runs`: its unfinished runs that could be
    cancelled, the oldest first; `past`: how the run of the last tick ended, "open" if it has not, None without one."""

    now: datetime
    grace: timedelta
    active: int = 0
    slots: int | None = None
    past: str | None = None
    runs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A line of the history. `follows`: the tick before `first`, so that neighbouring notes of a kind become one."""

    kind: str
    text: str
    first: datetime | None = None
    last: datetime | None = None
    ticks: int | None = None
    follows: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What one look does. `spans`: how far each old span came, by its end; None: nothing of it is left."""

    make: tuple[Tick, ...] = ()
    cancel: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()
    cursor: datetime | None = None
    seen: datetime | None = None
    next_at: datetime | None = None
    waiting: str | None = None
    ended: bool = False
    spans: Mapping[datetime, datetime | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Owed:
    """Ticks after one instant and not after another: what nobody has decided yet."""

    timetable: Timetable
    after: datetime
    until: datetime

    @property
    def first(self) -> datetime | None:
        tick = self.timetable.next_after(self.after)
        return tick if tick is not None and tick <= self.until else None

    @property
    def last(self) -> datetime | None:
        tick = self.timetable.at_or_before(self.until)
        return tick if tick is not None and tick > self.after else None

    def count(self) -> int:
        return self.timetable.count(self.after, self.until)

    def take(self, limit: int) -> list[datetime]:
        return self.timetable.ticks(self.after, self.until, limit)

    def newest(self, count: int) -> datetime | None:
        """The tick before the newest `count` of them: where they begin; None if there are no more than that."""
        tick = self.last
        for _ in range(count):
            tick = tick and self.timetable.last_before(tick)
        return tick if tick is not None and tick > self.after else None

    def skip(self, last: datetime | None, why: str) -> tuple[Owed, tuple[Note, ...]]:
        """The rest behind an instant, and the note of those up to it."""
        first = self.first
        end = last and self.timetable.at_or_before(min(last, self.until))
        if first is None or end is None or end < first:
            return self, ()
        ticks = self.timetable.count(self.after, end)
        before = self.timetable.last_before(first)
        note = Note(kind="skipped", text=why, first=first, last=end, ticks=ticks, follows=before)
        return replace(self, after=end), (note,)


def decide(rule: Rule, facts: Facts) -> Decision:
    """One look at a schedule."""
    if rule.timetable.kind == "continuous":
        return _decide_continuous(rule, facts)
    old = _old_ticks(rule, facts)
    behind = any(old.spans.values())
    owed, skipped = owed_now(rule, facts)
    full = replace(facts, active=facts.active + len(old.make)) if old.make else facts
    free, waiting = (0, old.waiting) if behind else _room(rule, full)
    if rule.depends_on_past and old.make:
        free, waiting = 0, PAST_OPEN
    owed, outrun, cancel = _overlap(rule, full, owed, free)
    made = owed.take(1 if cancel else free)
    left = replace(owed, after=made[-1]) if made else owed
    return _settled(
        rule,
        full,
        left,
        Decision(
            make=(*old.make, *(Tick(tick, owed.timetable.interval(tick)[0]) for tick in made)),
            cancel=cancel,
            notes=(*skipped, *outrun, *_late(rule, facts, owed, made)),
            waiting=None if left.first is None and not behind else waiting,
            spans=old.spans,
        ),
    )


def owed_now(rule: Rule, facts: Facts) -> tuple[Owed, tuple[Note, ...]]:
    """The ticks that are due and to be made, whatever the slots; and notes of those that catchup leaves out."""
    owed = Owed(rule.timetable, _begin(rule), due(rule, facts.now))
    if rule.catchup == "true":
        return owed.skip(facts.now - rule.window - TINY if rule.window else None, WINDOW)
    if rule.timetable.kind == "once" or _in_time(rule, owed):
        return owed, ()
    owed, outrun = owed.skip(rule.seen, NEWER)
    if rule.catchup == "latest":
        owed, missed = owed.skip(owed.newest(1), LATEST)
    else:
        owed, missed = owed.skip(_too_late(rule, facts), MISSED)
    return owed, (*outrun, *missed)


def due(rule: Rule, now: datetime) -> datetime:
    """Up to which instant ticks are due: a tick's jitter has passed, and the schedule has not ended."""
    newest = rule.timetable.at_or_before(now)
    if newest is not None and newest + delay_of(rule, newest) > now:
        now = newest - TINY
    return now if rule.end_date is None else min(now, rule.end_date)


def delay_of(rule: Rule, tick: datetime) -> timedelta:
    """How much later than its time a tick is made: its own share of the jitter, never as far as the next tick."""
    if rule.jitter is None:
        return timedelta(0)
    following = rule.timetable.next_after(tick)
    most = rule.jitter if following is None else min(rule.jitter, following - tick)
    return most * share_of(rule.workflow, tick)


def upcoming(rule: Rule, after: datetime) -> datetime | None:
    """The first tick that is still to come after an instant."""
    tick = rule.timetable.next_after(max(after, _begin(rule)))
    return tick if tick is None or rule.end_date is None or tick <= rule.end_date else None


def count_owed(rule: Rule, facts: Facts) -> int:
    """How many ticks are due and wait to be made."""
    old = sum(Owed(span.timetable, span.after, span.until).count() for span in rule.spans)
    return old + owed_now(rule, facts)[0].count()


def resume(rule: Rule, facts: Facts) -> Decision:
    """What the end of a pause does: without catchup, the ticks of the pause are gone."""
    if rule.catchup != "false" or rule.timetable.kind in ("continuous", "once"):
        return Decision(cursor=rule.cursor, seen=rule.seen, next_at=facts.now)
    owed = Owed(rule.timetable, _begin(rule), due(rule, facts.now))
    rest, notes = owed.skip(owed.until, PAUSED)
    return _settled(rule, facts, rest, Decision(notes=notes))


def skip_next(rule: Rule, facts: Facts, why: str) -> Decision:
    """Leave out the tick that would be made next, owed or still to come."""
    tick = upcoming(rule, _begin(rule))
    if tick is None:
        return Decision(cursor=rule.cursor, seen=rule.seen, next_at=facts.now)
    owed, notes = Owed(rule.timetable, _begin(rule), tick).skip(tick, why)
    following = upcoming(rule, tick)
    at = following and max(facts.now, following + delay_of(rule, following))
    return Decision(cursor=owed.after, seen=rule.seen, notes=notes, next_at=at, ended=following is None)


def _begin(rule: Rule) -> datetime:
    """Ticks up to here are decided, or never counted."""
    if rule.timetable.kind != "once":
        return rule.since if rule.cursor is None else max(rule.cursor, rule.since)
    if rule.once_done:
        return NEVER
    # Its tick may be the very instant from which it counts.
    return max(rule.cursor or rule.since - TINY, rule.since - TINY)


def _in_time(rule: Rule, owed: Owed) -> bool:
    """Whether a scheduler has seen these ticks before, so that they were not missed but wait for a slot. What came
    while an older one was in line stands behind it; without a line only the newest waits."""
    if rule.seen is None:
        return False
    tick = owed.first if rule.overlap in ("queue", "allow") else owed.last
    return tick is not None and tick <= rule.seen


def _too_late(rule: Rule, facts: Facts) -> datetime | None:
    """The last tick that was missed by more than the grace."""
    tick = rule.timetable.last_before(facts.now - facts.grace)
    # A tick's own delay is no lateness.
    if tick is not None and tick + delay_of(rule, tick) >= facts.now - facts.grace:
        return rule.timetable.last_before(tick)
    return tick


def _room(rule: Rule, facts: Facts) -> tuple[int, str | None]:
    """How many ticks may start now, and what the next one waits for."""
    if rule.depends_on_past and facts.past not in (None, "succeeded"):
        return 0, PAST_OPEN if facts.past == "open" else PAST_FAILED
    free = BURST
    if facts.slots is not None and rule.overlap != "allow":
        free = max(0, min(free, facts.slots - facts.active))
    if rule.depends_on_past:
        return min(free, 1), PAST_OPEN if free else NO_SLOT
    return free, NO_SLOT if free < BURST else None


def _overlap(rule: Rule, facts: Facts, owed: Owed, free: int) -> tuple[Owed, tuple[Note, ...], tuple[str, ...]]:
    """What is left of the owed ticks when there is no slot for all of them, and which runs make way for the newest."""
    notes: tuple[Note, ...] = ()
    if rule.overlap == "skip" or (rule.overlap == "cancel_old" and rule.catchup != "true"):
        owed, notes = owed.skip(owed.newest(max(free, 1)), NEWER)
    if rule.overlap != "cancel_old" or free > 0 or facts.slots is None or owed.first is None or owed.first != owed.last:
        return owed, notes, ()
    if rule.depends_on_past and facts.past not in (None, "succeeded"):
        return owed, notes, ()
    many = facts.active + 1 - facts.slots
    return owed, notes, facts.runs[:many] if len(facts.runs) >= many else ()


def _settled(rule: Rule, facts: Facts, left: Owed, so_far: Decision) -> Decision:
    """The rest of a decision: the cursor, when to look again, and whether this was the end."""
    begin = _begin(rule)
    done = replace(so_far, cursor=rule.cursor if left.after == begin else left.after, seen=left.until)
    behind = left.first is not None or any(done.spans.values())
    if behind and done.waiting is None:
        return replace(done, next_at=facts.now)
    following = upcoming(rule, max(left.until, left.after))
    if following is not None:
        return replace(done, next_at=following + delay_of(rule, following))
    if done.waiting is not None:
        return replace(done, next_at=facts.now + FALLBACK)
    text = "its end_date has passed" if rule.end_date is not None else "no tick is left"
    return replace(done, ended=True, notes=(*done.notes, Note(kind="ended", text=text)))


def _late(rule: Rule, facts: Facts, owed: Owed, made: list[datetime]) -> tuple[Note, ...]:
    late = [tick for tick in made if tick + delay_of(rule, tick) < facts.now - facts.grace]
    if not late:
        return ()
    before = owed.timetable.last_before(late[0])
    return (Note(kind="late", text=LATE, first=late[0], last=late[-1], ticks=len(late), follows=before),)


def _old_ticks(rule: Rule, facts: Facts) -> Decision:
    """What the spans of former timetables give: the oldest first, as far as there is room."""
    make: list[Tick] = []
    spans: dict[datetime, datetime | None] = {}
    waiting = None
    for span in rule.spans:
        free, waiting = _room(rule, replace(facts, active=facts.active + len(make)))
        owed = Owed(span.timetable, span.after, span.until)
        made = [] if rule.depends_on_past and make else owed.take(free)
        make += [Tick(tick, owed.timetable.interval(tick)[0], span.version, span.inputs) for tick in made]
        left = replace(owed, after=made[-1]) if made else owed
        spans[span.until] = None if left.first is None else left.after
    return Decision(make=tuple(make), spans=spans, waiting=waiting)


def _decide_continuous(rule: Rule, facts: Facts) -> Decision:
    """The end of one run is the tick of the next."""
    if rule.start_date is not None and facts.now < rule.start_date:
        return Decision(cursor=rule.cursor, next_at=rule.start_date)
    if rule.end_date is not None and facts.now > rule.end_date:
        note = Note(kind="ended", text="its end_date has passed")
        return Decision(cursor=rule.cursor, ended=True, notes=(note,))
    again = facts.now + FALLBACK
    if rule.depends_on_past and facts.past not in (None, "open", "succeeded"):
        return Decision(cursor=rule.cursor, next_at=again, waiting=PAST_FAILED)
    if facts.active >= 1:
        return Decision(cursor=rule.cursor, next_at=again, waiting=PAST_OPEN)
    # After a clock that went back: never an instant that was a tick before.
    at = facts.now if rule.cursor is None else max(facts.now, rule.cursor + timedelta(milliseconds=1))
    tick = Tick(at, rule.cursor or max(rule.since, rule.start_date or rule.since))
    return Decision(make=(tick,), cursor=at, next_at=again, waiting=PAST_OPEN)
