"""What one look at an event trigger does. Pure: from events that were put aside to runs, and to what goes on waiting.

An event is in at most one run of a workflow. `any` makes a run of each event, or of the first one of a data interval.
`all` makes a run when every name has an event: of one interval, or of the oldest that are in no run yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from scheduler.ids import run_id_of
from scheduler.timetable import Timetable

Mode = Literal["any", "all"]


@dataclass(frozen=True, slots=True)
class Caught:
    """An event that was put aside. `matched`: the names of the trigger that it fits, counted from 1."""

    event_id: UUID
    emitted_at: datetime
    matched: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """What a trigger asks for."""

    workflow: str
    names: int
    mode: Mode = "any"
    per: Timetable | None = None

    def interval(self, event: Caught) -> tuple[datetime, datetime] | None:
        """The data interval that an event falls into; one that comes at a tick opens the next interval."""
        if self.per is None:
            return None
        end = self.per.next_after(event.emitted_at)
        return self.per.interval(end) if end is not None else None


@dataclass(frozen=True, slots=True)
class Firing:
    """A run to be made: which event stands for which name, and of what interval."""

    run_id: UUID
    events: tuple[tuple[int, UUID], ...]
    interval: tuple[datetime, datetime] | None = None

    def row(self) -> dict[str, Any]:
        start, end = self.interval or (None, None)
        return {
            "run": self.run_id,
            "start": start,
            "end": end,
            "events": [{"n": number, "id": event} for number, event in self.events],
        }


@dataclass(slots=True)
class Look:
    """What was decided. `surplus` came besides, in an interval that needed it no more."""

    firings: list[Firing] = field(default_factory=list)
    surplus: list[tuple[UUID, datetime | None]] = field(default_factory=list)
    waiting: list[tuple[UUID, datetime | None]] = field(default_factory=list)


def look(rule: Rule, fresh: Sequence[Caught], waiting: Sequence[Caught] = (), fired: Iterable[datetime] = ()) -> Look:
    """Decide about events that are `fresh`, beside those that wait; `fired`: ends of intervals that have their run."""
    if rule.per is not None:
        return _per_interval(rule, fresh, waiting, set(fired))
    if rule.mode == "all":
        return _sets(rule, fresh, waiting)
    return Look([_firing(rule, {event.matched[0]: event}, None) for event in fresh])


def _per_interval(rule: Rule, fresh: Sequence[Caught], waiting: Sequence[Caught], fired: set[datetime]) -> Look:
    found, open_sets = Look(), _open_sets(rule, waiting)
    for event in fresh:
        interval = rule.interval(event)
        if interval is None:
            continue
        end = interval[1]
        chosen = open_sets.setdefault(end, {})
        new = [number for number in event.matched if number not in chosen]
        if end in fired or not new:
            found.surplus.append((event.event_id, end))
            continue
        chosen |= dict.fromkeys(new, event)
        if rule.mode == "any" or len(chosen) == rule.names:
            found.firings.append(_firing(rule, {new[0]: event} if rule.mode == "any" else chosen, interval))
            fired.add(end)
    for end, chosen in open_sets.items():
        if end not in fired:
            found.waiting += [(event, end) for event in dict.fromkeys(event.event_id for event in chosen.values())]
    return found


def _open_sets(rule: Rule, waiting: Sequence[Caught]) -> dict[datetime, dict[int, Caught]]:
    """The events that wait, by the end of their interval and the names that they stand for."""
    sets: dict[datetime, dict[int, Caught]] = {}
    for event in sorted(waiting, key=_age):
        interval = rule.interval(event)
        if interval is not None:
            chosen = sets.setdefault(interval[1], {})
            chosen |= {number: event for number in event.matched if number not in chosen}
    return sets


def _sets(rule: Rule, fresh: Sequence[Caught], waiting: Sequence[Caught]) -> Look:
    """The oldest events of every name make a run together, as often as there is one of each."""
    found, used = Look(), set[UUID]()
    pool = sorted((*waiting, *fresh), key=_age, reverse=True)
    queues = {number: [event for event in pool if number in event.matched] for number in range(1, rule.names + 1)}
    while all(_drop_used(queue, used) for queue in queues.values()):
        chosen = {number: queue[-1] for number, queue in queues.items()}
        found.firings.append(_firing(rule, chosen, None))
        used |= {event.event_id for event in chosen.values()}
    found.waiting = [(event.event_id, None) for event in fresh if event.event_id not in used]
    return found


def _drop_used(queue: list[Caught], used: set[UUID]) -> bool:
    """Whether something is left of a queue, whose oldest event stands last."""
    while queue and queue[-1].event_id in used:
        queue.pop()
    return bool(queue)


def _firing(rule: Rule, chosen: dict[int, Caught], interval: tuple[datetime, datetime] | None) -> Firing:
    events = tuple((number, event.event_id) for number, event in sorted(chosen.items()))
    what = [interval[1].isoformat()] if interval else [str(event) for _, event in events]
    at = max(event.emitted_at for event in chosen.values())
    return Firing(run_id_of(at, rule.workflow, "event", *what), events, interval)


def _age(event: Caught) -> tuple[datetime, UUID]:
    return event.emitted_at, event.event_id
