"""Deadlines of schedules: what has not ended so long after its tick, or was never begun, raises an alert.

The deadline of a tick is decided once, when it is over, by whoever has locked the schedule's watch; the alert and the
start of its callback are in that same transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import orjson
import psycopg
import structlog
from pydantic import BaseModel, ConfigDict

from durable import faults
from scheduler.attempts import Trouble, attempt
from scheduler.deciding import MISSED, NEWER
from scheduler.session import Session
from scheduler.store import Connection, Row, fetch, timetable_of
from scheduler.timetable import Timetable

log = structlog.get_logger("scheduler.deadlines")

WATCHES = 200
# The ticks of one schedule that one look decides: those that never started stand in one alert.
TICKS = 20_000

WATCH = "select durable.watch_deadlines()"
DUE = "select * from durable.due_deadlines(%s)"
MADE = "select * from durable.deadline_ticks(%s, %s, %s, %s)"
LEFT_OUT = "select * from durable.left_out(%s, %s, %s)"
NEXT_MADE = "select durable.next_deadline_tick(%s, %s) as tick"
RAISE = "select durable.raise_alerts(%s, %s::json, %s, %s)"
POSTPONE = "select durable.postpone_watch(%s, '1 minute')"
NEXT = "select min(next_at) as next_at from durable.deadline_watch"
LIST = "select * from durable.alerts(%s, %s)"


class AlertInfo(BaseModel):
    """An alert. `kind`: late (its run had not ended), not started (in time), or skipped, for want of a slot or of a
    scheduler. Ticks of the last two kinds that were found together stand in one alert, from `tick` to `last_tick`."""

    model_config = ConfigDict(frozen=True)

    id: UUID
    workflow: str
    tick: datetime
    last_tick: datetime
    ticks: int
    kind: str
    run_id: UUID | None
    due_at: datetime
    raised_at: datetime
    callback: str | None
    callback_run: UUID | None
    callback_note: str | None


class Alerts:
    """What was raised. Give it a DSN, or a connection to look inside its transaction."""

    def __init__(self, on: str | psycopg.AsyncConnection[Any]):
        self._session = Session(on)

    async def list(self, workflow: str | None = None, *, limit: int = 50) -> Sequence[AlertInfo]:
        """The newest alerts, of one workflow or of all."""
        return [AlertInfo(**row) for row in await self._session.rows(LIST, (workflow, limit))]


@dataclass(frozen=True, slots=True)
class Made:
    """The run of a tick; `ended` None: it has not."""

    tick: datetime
    run_id: UUID
    made: datetime
    ended: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What is known of the ticks of a schedule whose deadline is over. `missing`: owed and not begun; `left_out`:
    skipped although nobody asked for that."""

    deadline: timedelta
    made: Sequence[Made]
    missing: Sequence[datetime] = ()
    left_out: Sequence[datetime] = ()


def alerts_of(seen: Watched) -> list[dict[str, Any]]:
    """The alerts that are to be raised. Pure. A run that was only made when its deadline was over did not start: after
    a long rest of the scheduler there may be thousands of them."""
    late = [one for one in seen.made if one.ended is None or one.ended > one.tick + seen.deadline]
    in_time = [one for one in late if one.made <= one.tick + seen.deadline]
    missing = sorted([*seen.missing, *(one.tick for one in late if one.made > one.tick + seen.deadline)])
    alerts = [_alert("late", [one.tick], seen.deadline, one.run_id) for one in in_time]
    for kind, ticks in (("not started", missing), ("skipped", seen.left_out)):
        if ticks:
            alerts.append(_alert(kind, ticks, seen.deadline))
    return alerts


def _alert(kind: str, ticks: Sequence[datetime], deadline: timedelta, run: UUID | None = None) -> dict[str, Any]:
    return {
        "kind": kind,
        "tick": ticks[0],
        "last_tick": ticks[-1],
        "ticks": len(ticks),
        "due_at": ticks[0] + deadline,
        "run_id": run,
    }


class DeadlineLooks:
    """The scheduler's part: deadlines that are over are decided."""

    async def run_once(self, connection: Connection) -> int:
        """Look at the schedules of which a deadline is over; how many there were. Again until it is none."""
        await connection.execute(WATCH)
        async with connection.transaction():
            due = await fetch(connection, DUE, (WATCHES,))
            for row in due:
                found = await attempt(connection, self._look(connection, row))
                if isinstance(found, Trouble):
                    log.error("deadlines cannot be decided, and wait", workflow=row["workflow"], error=found)
                    await connection.execute(POSTPONE, (row["workflow"],))
                faults.point("deadline.applied")
        return len(due)

    async def next_at(self, connection: Connection) -> datetime | None:
        """When the next deadline is over."""
        at: datetime | None = (await fetch(connection, NEXT))[0]["next_at"]
        return at

    async def _look(self, connection: Connection, row: Row) -> None:
        timetable, until = timetable_of(row), row["now"] - row["deadline"]
        made = await fetch(connection, MADE, (row["workflow"], row["cursor_at"], until, TICKS))
        if len(made) == TICKS:
            until = made[-1]["tick"]
        begin = row["cursor_at"] if row["cron"] == "@once" else max(row["cursor_at"], row["since"])
        ticks = timetable.ticks(begin, until, TICKS)
        if len(ticks) == TICKS:
            until = min(until, ticks[-1])
        seen = await _watched(connection, row, [one for one in made if one["tick"] <= until], ticks)
        alerts = orjson.dumps(alerts_of(seen)).decode()
        cursor = max(until, row["cursor_at"])
        await connection.execute(
            RAISE, (row["workflow"], alerts, cursor, await _next(connection, row, timetable, cursor))
        )


async def _watched(connection: Connection, row: Row, made: Sequence[Row], ticks: Iterable[datetime]) -> Watched:
    runs = {one["tick"] for one in made}
    without = [tick for tick in ticks if tick not in runs and (row["end_date"] is None or tick <= row["end_date"])]
    undecided = max(row["schedule_cursor"] or row["since"], row["since"])
    decided = [tick for tick in without if tick <= undecided]
    return Watched(
        deadline=row["deadline"],
        made=[Made(one["tick"], one["run_id"], one["made_at"], one["finished_at"]) for one in made],
        missing=[] if row["paused"] or row["state"] != "active" else [tick for tick in without if tick > undecided],
        left_out=await _left_out(connection, row["workflow"], decided) if decided else [],
    )


async def _left_out(connection: Connection, workflow: str, ticks: Sequence[datetime]) -> list[datetime]:
    """Those of these ticks that were skipped although nobody asked for it."""
    spans = await fetch(connection, LEFT_OUT, (workflow, ticks[0] - timedelta(microseconds=1), ticks[-1]))
    unasked = [(span["first_tick"], span["last_tick"]) for span in spans if span["note"] in (MISSED, NEWER)]
    return [tick for tick in ticks if any(first <= tick <= last for first, last in unasked)]


async def _next(connection: Connection, row: Row, timetable: Timetable, cursor: datetime) -> datetime | None:
    """When the first deadline behind the cursor is over."""
    made = (await fetch(connection, NEXT_MADE, (row["workflow"], cursor)))[0]["tick"]
    following = timetable.next_after(cursor if row["cron"] == "@once" else max(cursor, row["since"]))
    ticks = [tick for tick in (made, following) if tick is not None]
    return min(ticks) + row["deadline"] if ticks else None
