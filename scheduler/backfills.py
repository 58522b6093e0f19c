"""Backfills: ticks of the past that a person asks for.

A backfill is a stored object with a cursor. One look makes as many runs as it has free slots, in one transaction; it is
over when its cursor has passed every tick and no run of it is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Literal
from uuid import UUID
from zoneinfo import ZoneInfo

import orjson
import psycopg
import structlog
from pydantic import BaseModel, ConfigDict

from durable import faults
from durable.codec import Codec, PlainCodec
from durable.errors import NoSuchRun, WrongArguments
from durable.ids import uuid7
from scheduler.attempts import Trouble, attempt
from scheduler.backfilling import TINY, Past, Planned, Range, Reprocess, Step, careful_step, plan, step
from scheduler.session import Session
from scheduler.store import Connection, Row, fetch, tick_row, timetable_of
from scheduler.ticks import Tick

log = structlog.get_logger("scheduler.backfills")

# A person reads a dry run; and whoever means a million ticks means several backfills.
MOST = 100_000
# So many backfills and ticks of each are looked at in one turn.
BACKFILLS = 1000
TICKS = 500

FACTS = "select * from durable.schedule_fact where workflow = %s and state <> 'removed'"
PAST = "select tick, attempt, state, was from durable.past_ticks(%s, %s, %s, %s)"
LIST = "select * from durable.backfills(%s, %s, %s)"
RUNS = "select tick, attempt, run_id, state from durable.backfill_runs(%s) order by tick, attempt"
CREATE = "select durable.create_backfill(%s::json)"
SWITCH = "select durable.switch_backfill(%s, %s, %s, %s)"
OPEN = "select id from durable.open_backfills(%s) id"
LOCK = "select * from durable.lock_backfill(%s)"
ADVANCE = "select durable.advance_backfill(%s, %s::json, %s, %s, %s, %s)"

State = Literal["running", "paused", "cancelled", "done"]


class Plan(BaseModel):
    """What a backfill would do: every tick of its range, in the order of their making. `owed`: ticks of the range that
    the schedule itself is about to make, and that are left to it."""

    model_config = ConfigDict(frozen=True)

    workflow: str
    first: datetime
    last: datetime
    ticks: tuple[Planned, ...]
    owed: int

    @property
    def made(self) -> list[Planned]:
        return [planned for planned in self.ticks if planned.made]


class BackfillInfo(BaseModel):
    """A backfill with its progress. `runs`: how many of them stand how: open, succeeded, failed, cancelled."""

    model_config = ConfigDict(frozen=True)

    id: UUID
    workflow: str
    first: datetime
    last: datetime
    max_active: int
    reprocess: Reprocess
    newest_first: bool
    prio: int
    state: State
    cursor_at: datetime | None
    total: int
    made: int
    skipped: int
    runs: dict[str, int]
    waiting: str | None
    by: str | None
    note: str | None
    created_at: datetime
    ended_at: datetime | None

    @property
    def left(self) -> int:
        """Ticks that nothing was decided about yet."""
        return self.total - self.made - self.skipped


class BackfillRun(BaseModel):
    """A run of a backfill, and how it stands: open, succeeded, failed or cancelled."""

    model_config = ConfigDict(frozen=True)

    tick: datetime
    attempt: int
    run_id: UUID
    state: str


class Backfills:
    """What people do with backfills. Give it a DSN, or a connection to act inside its transaction."""

    def __init__(self, on: str | psycopg.AsyncConnection[Any]):
        self._session = Session(on)

    async def plan(
        self,
        workflow: str,
        first: datetime,
        last: datetime,
        *,
        reprocess: Reprocess = "none",
        newest_first: bool = False,
    ) -> Plan:
        """What a backfill of the ticks from `first` to `last`, both included, would do now. Changes nothing. A time
        without a zone is one of the schedule's own."""
        async with self._session.open() as connection:
            return await _plan(connection, workflow, first, last, reprocess, newest_first)

    async def create(
        self,
        workflow: str,
        first: datetime,
        last: datetime,
        *,
        limit: int = 1,
        reprocess: Reprocess = "none",
        newest_first: bool = False,
        by: str | None = None,
        note: str | None = None,
    ) -> UUID:
        """Begin a backfill with at most `limit` unfinished runs at a time; its id."""
        if limit < 1:
            raise WrongArguments(f"limit: {limit} is less than one run at a time")
        planned = await self.plan(workflow, first, last, reprocess=reprocess, newest_first=newest_first)
        if not planned.ticks:
            raise WrongArguments(
                f"no tick of {workflow!r} lies between {first.isoformat()} and {last.isoformat()}{_owed(planned)}"
            )
        row = {
            "id": uuid7(),
            "workflow": workflow,
            "first": planned.first,
            "last": planned.last,
            "max_active": limit,
            "reprocess": reprocess,
            "newest_first": newest_first,
            "total": len(planned.ticks),
            "by": by,
            "note": note,
        }
        return UUID(str(await self._session.value(CREATE, (orjson.dumps(row).decode(),))))

    async def list(self, workflow: str | None = None, *, limit: int = 50) -> Sequence[BackfillInfo]:
        """The newest backfills, of one workflow or of all."""
        return [BackfillInfo(**row) for row in await self._session.rows(LIST, (None, workflow, limit))]

    async def show(self, backfill: UUID | str) -> BackfillInfo:
        rows = await self._session.rows(LIST, (backfill, None, 1))
        if not rows:
            raise NoSuchRun(f"no backfill {backfill}. It never existed, or was pruned by retention.")
        return BackfillInfo(**rows[0])

    async def runs(self, backfill: UUID | str) -> Sequence[BackfillRun]:
        """The runs that it has made, by tick."""
        return [BackfillRun(**row) for row in await self._session.rows(RUNS, (backfill,))]

    async def pause(self, backfill: UUID | str, *, by: str | None = None, note: str | None = None) -> None:
        """Make no more runs; those that were made run on."""
        await self._session.value(SWITCH, (backfill, "paused", by, note))

    async def resume(self, backfill: UUID | str, *, by: str | None = None, note: str | None = None) -> None:
        await self._session.value(SWITCH, (backfill, "running", by, note))

    async def cancel(self, backfill: UUID | str, *, by: str | None = None, note: str | None = None) -> None:
        """End it, with the runs that it has made and that have not ended."""
        await self._session.value(SWITCH, (backfill, "cancelled", by, note))


class BackfillLooks:
    """The scheduler's part: runs are made as slots free."""

    def __init__(self, *, codec: Codec | None = None):
        self._codec = codec or PlainCodec()

    async def run_once(self, connection: Connection) -> int:
        """Look at every backfill that has a slot free, each in a transaction of its own; how many came further."""
        found = await fetch(connection, OPEN, (BACKFILLS,))
        return sum([await self._look(connection, row["id"]) for row in found])

    async def next_at(self, connection: Connection) -> datetime | None:
        """Never: the end of a run and the hand of a person tell of themselves."""
        return None

    async def _look(self, connection: Connection, backfill: UUID) -> bool:
        """Whether it came further. One that cannot be looked at says so and waits."""
        async with connection.transaction():
            rows = await fetch(connection, LOCK, (backfill,))
            came = await attempt(connection, self._advance(connection, rows[0])) if rows else False
            if isinstance(came, Trouble):
                log.error("a backfill cannot be looked at", backfill=str(backfill), error=came)
                await connection.execute(ADVANCE, (backfill, "[]", 0, None, str(came), False))
                came = False
            faults.point("backfill.applied")
        return came

    async def _advance(self, connection: Connection, row: Row) -> bool:
        decided, over = await _decide(connection, row)
        came = bool(decided.decided) or over or decided.waiting != row["waiting"]
        if came:
            await connection.execute(ADVANCE, (row["id"], *self._params(row, decided), over))
        return came

    def _params(self, row: Row, decided: Step) -> tuple[Any, ...]:
        made = [one for one in decided.decided if one.made]
        own = {"backfill": row["id"], "active_cap": f"b:{row['id']}"}
        row = {**row, "active_cap": None}
        ticks = [
            tick_row(row, Tick(one.tick, one.start), self._codec, kind="backfill", attempt=one.attempt) | own
            for one in made
        ]
        return orjson.dumps(ticks).decode(), len(decided.decided) - len(made), decided.cursor, decided.waiting


async def _decide(connection: Connection, row: Row) -> tuple[Step, bool]:
    """What a look at a locked backfill does, and whether that was all."""
    of = Range(timetable_of(row), row["first"], row["last"], row["newest_first"])
    free = row["max_active"] - row["active"]
    ticks = of.ticks(row["cursor_at"], TICKS)
    if not ticks:
        return Step(()), row["active"] == 0
    if row["depends_on_past"]:
        before = of.timetable.last_before(ticks[0]) or ticks[0]
        past = await _past(connection, row["workflow"], [before, *ticks], row["created_at"])
        return careful_step(of, plan(of, ticks, past, row["reprocess"]), past, free), False
    past = await _past(connection, row["workflow"], ticks, row["created_at"])
    return step(plan(of, ticks, past, row["reprocess"]), free), False


async def _plan(
    connection: Connection, workflow: str, first: datetime, last: datetime, reprocess: Reprocess, newest_first: bool
) -> Plan:
    rows = await fetch(connection, FACTS, (workflow,))
    if not rows:
        raise WrongArguments(f"{workflow!r} has no schedule, so there are no ticks to make; set a schedule first")
    row = rows[0]
    _check(row, newest_first)
    first, last = (
        moment if moment.tzinfo else moment.replace(tzinfo=ZoneInfo(row["timezone"])) for moment in (first, last)
    )
    if first > last:
        raise WrongArguments(f"the range begins at {first.isoformat()}, after its end at {last.isoformat()}")
    timetable, until = timetable_of(row), min(last, _until(row))
    of = Range(timetable, first, until, newest_first)
    if of.count() > MOST:
        raise WrongArguments(f"{of.count():,} ticks are more than a backfill takes ({MOST:,}); make several of them")
    ticks = of.ticks(None, MOST)
    past = await _past(connection, workflow, ticks, row["now"])
    owed = timetable.count(max(first - TINY, until), min(last, row["now"]))
    return Plan(
        workflow=workflow, first=first, last=max(first, until), ticks=tuple(plan(of, ticks, past, reprocess)), owed=owed
    )


def _check(row: Row, newest_first: bool) -> None:
    if row["cron"] in ("@once", "@continuous"):
        raise WrongArguments(f"{row['workflow']!r} is scheduled {row['cron']}: it has no ticks of the past")
    if newest_first and row["depends_on_past"]:
        raise WrongArguments(
            f"newest_first: each tick of {row['workflow']!r} depends on the one before; make them oldest first"
        )


def _until(row: Row) -> datetime:
    """The last instant whose ticks are a backfill's: what comes after it the schedule makes by itself."""
    mine: datetime = row["now"] if row["end_date"] is None else min(row["now"], row["end_date"])
    if row["paused"] or row["state"] != "active":
        return mine
    decided: datetime = max(row["since"], row["cursor_at"] or row["since"])
    return min(mine, decided)


def _owed(planned: Plan) -> str:
    return f", besides {planned.owed} that its schedule makes by itself" if planned.owed else ""


async def _past(
    connection: Connection, workflow: str, ticks: Iterable[datetime], then: datetime
) -> dict[datetime, Past]:
    span = sorted(ticks)
    if not span:
        return {}
    rows = await fetch(connection, PAST, (workflow, span[0], span[-1], then))
    return {row["tick"]: Past(row["attempt"], row["state"], row["was"]) for row in rows}
