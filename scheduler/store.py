"""Schedules between the store and the decisions: rows become rules and facts, decisions become one statement.

The one rule: what was decided is applied in the transaction that locked the schedule and read the facts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfoNotFoundError

import orjson
import psycopg
import structlog
from orjson import Fragment
from psycopg.rows import dict_row

from durable import codec, faults
from durable.codec import Codec, PlainCodec
from scheduler.deciding import FALLBACK, Decision, Facts, Note, Rule, Span, decide, upcoming
from scheduler.ticks import Tick, inputs_of, run_of
from scheduler.timetable import Timetable

log = structlog.get_logger("durable.scheduler")

Connection = psycopg.AsyncConnection[Any]
Row = dict[str, Any]

GRACE = timedelta(seconds=60)
# So many schedules in one transaction: five hundred that are due at midnight are one.
BATCH = 1000

LOOK = "select * from durable.look_at_schedules(%s)"
SPANS = "select * from durable.owed_span where workflow = any (%s) order by until"
APPLY = "select durable.apply_looks(%s::json, %s::json, %s::json, %s::json, %s::json)"
NEXT = "select durable.next_look() as next_at"
LOCAL = "select * from durable.schedule_fact where state = 'active' and timezone <> 'UTC' and next_at > now"
EARLIER = "select durable.look_earlier(%s::json)"


class TickLooks:
    """The scheduler's first part: ticks that are due become runs."""

    def __init__(self, *, grace: timedelta = GRACE, batch: int = BATCH, codec: Codec | None = None):
        self._grace = grace
        self._batch = batch
        self._codec = codec or PlainCodec()

    async def run_once(self, connection: Connection) -> int:
        """Look at the schedules that are due, in one transaction; how many there were. Again until it is none."""
        async with connection.transaction():
            rows = await fetch(connection, LOOK, (self._batch,))
            if rows:
                await self._decide(connection, rows)
        faults.point("look.after")
        return len(rows)

    async def next_at(self, connection: Connection) -> datetime | None:
        """When the first schedule is to be looked at."""
        rows = await fetch(connection, NEXT)
        found: datetime | None = rows[0]["next_at"]
        return found

    async def refresh(self, connection: Connection) -> None:
        """Compute anew when to look at schedules in zones with a clock of their own: the rules of a zone may have come
        with this very program."""
        due = [(row["workflow"], _next_tick(row)) for row in await fetch(connection, LOCAL)]
        await connection.execute(EARLIER, (json_rows({"workflow": name, "at": at} for name, at in due if at),))

    async def _decide(self, connection: Connection, rows: Sequence[Row]) -> None:
        spans = await spans_of(connection, [row["workflow"] for row in rows if row["has_spans"]])
        faults.point("look.before")
        decided = [(row, self._decide_one(row, spans.get(row["workflow"], ()))) for row in rows]
        faults.point("look.decided")
        await apply(connection, decided, self._codec)
        faults.point("look.applied")

    def _decide_one(self, row: Row, spans: tuple[Span, ...]) -> Decision:
        try:
            return decide(rule_of(row, spans), facts_of(row, self._grace))
        except (ValueError, ZoneInfoNotFoundError) as exc:
            # One schedule that this program cannot read must not stop the others.
            log.error("a schedule cannot be read", workflow=row["workflow"], error=str(exc))
            waits = f"this scheduler cannot read it: {exc}"
            return Decision(next_at=row["now"] + FALLBACK, waiting=waits)


def _next_tick(row: Row) -> datetime | None:
    try:
        return upcoming(rule_of(row), row["now"])
    except (ValueError, ZoneInfoNotFoundError):
        return None  # the look at it says so


async def fetch(connection: Connection, sql: str, params: Sequence[Any] = ()) -> list[Row]:
    async with connection.cursor(row_factory=dict_row) as cursor:
        return await (await cursor.execute(sql.encode(), params)).fetchall()


async def spans_of(connection: Connection, workflows: list[str]) -> dict[str, tuple[Span, ...]]:
    """What former timetables still owe, by workflow."""
    found: dict[str, tuple[Span, ...]] = {}
    for row in await fetch(connection, SPANS, (workflows,)) if workflows else ():
        name = row["workflow"]
        span = Span(
            timetable=_timetable(row["cron"], row["every"], row["timezone"], row["start_date"], None),
            after=row["after"],
            until=row["until"],
            version=row["version"],
            inputs=row["inputs"],
        )
        found[name] = (*found.get(name, ()), span)
    return found


def rule_of(row: Row, spans: tuple[Span, ...] = ()) -> Rule:
    """The rule in a row of `durable.schedule_fact`."""
    return Rule(
        workflow=row["workflow"],
        timetable=timetable_of(row),
        since=row["since"],
        cursor=row["cursor_at"],
        seen=row["seen_at"],
        start_date=row["start_date"],
        end_date=row["end_date"],
        catchup=row["catchup"],
        window=row["catchup_window"],
        overlap=row["overlap"],
        jitter=row["jitter"],
        depends_on_past=row["depends_on_past"],
        once_done=row["once_done"],
        spans=spans,
    )


def facts_of(row: Row, grace: timedelta) -> Facts:
    """The facts in a row of `durable.schedule_fact`."""
    return Facts(
        now=row["now"],
        grace=grace,
        active=row["active"],
        slots=row["slots"],
        past=row["past"],
        runs=tuple(str(run) for run in row["victims"]),
    )


def timetable_of(row: Row) -> Timetable:
    since = row["since"] if row["cron"] == "@once" else None
    return _timetable(row["cron"], row["every"], row["timezone"], row["start_date"], since)


@lru_cache(maxsize=4096)
def _timetable(
    cron: str | None, every: timedelta | None, zone: str, start: datetime | None, since: datetime | None
) -> Timetable:
    return Timetable.of(cron=cron, every=every, zone=zone, start_date=start, since=since)


async def apply(connection: Connection, decided: Iterable[tuple[Row, Decision]], codec: Codec) -> list[str]:
    """What was decided about schedules that this transaction has locked; the runs that were made."""
    decided = list(decided)
    params = (
        json_rows(_look_row(row, decision) for row, decision in decided),
        json_rows(tick_row(row, tick, codec) for row, decision in decided for tick in decision.make),
        json_rows(note_row(row["workflow"], note) for row, decision in decided for note in decision.notes),
        json_rows(
            {"run": run, "reason": "a newer tick of its schedule is due"}
            for _, decision in decided
            for run in decision.cancel
        ),
        json_rows(
            {"workflow": row["workflow"], "until": until, "after": after}
            for row, decision in decided
            for until, after in decision.spans.items()
        ),
    )
    (made,) = await (await connection.execute(APPLY, params)).fetchone() or ([],)
    return [str(run) for run in made]


def tick_row(
    row: Row,
    tick: Tick,
    codec: Codec,
    *,
    kind: str = "schedule",
    attempt: int = 0,
    more: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A tick as `durable.make_ticks` takes it; `more`: inputs that go before the schedule's own."""
    own = row["inputs"] if tick.inputs is None else tick.inputs
    return {
        "workflow": row["workflow"],
        "tick": tick.at,
        "attempt": attempt,
        "run": run_of(row["workflow"], tick.at, attempt),
        "start": tick.start,
        "kind": kind,
        "version": tick.version,
        "queue": row["queue"],
        "prio": row["prio"],
        "tags": row["tags"],
        "active_cap": row["active_cap"] if kind == "schedule" else None,
        "input": sealed(inputs_of(tick, {**own, **(more or {})}, row["params"]), codec),
    }


def sealed(value: dict[str, Any], with_codec: Codec) -> Fragment:
    """An input as the store keeps it."""
    return Fragment(codec.sealed_with(with_codec, codec.encode(value)))


def note_row(workflow: str, note: Note, by: str | None = None) -> dict[str, Any]:
    return {
        "workflow": workflow,
        "kind": note.kind,
        "text": note.text,
        "first": note.first,
        "last": note.last,
        "ticks": note.ticks,
        "follows": note.follows,
        "by": by,
    }


def _look_row(row: Row, decision: Decision) -> dict[str, Any]:
    return {
        "workflow": row["workflow"],
        "cursor": decision.cursor,
        "seen": decision.seen,
        "next_at": decision.next_at,
        "waiting": decision.waiting,
        "ended": decision.ended,
        "made": bool(decision.make),
    }


def json_rows(rows: Any) -> str:
    """Anything as the JSON parameter of a statement."""
    return orjson.dumps(rows, default=list).decode()
