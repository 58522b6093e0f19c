"""Event triggers: workflows that start when events come.

The store puts events aside for them; one look makes runs of what was put aside, in the transaction that takes it away.
Any number of schedulers may look: a trigger is decided by whoever has locked it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import orjson
import psycopg
import structlog
from psycopg.rows import args_row, dict_row
from pydantic import BaseModel, ConfigDict

from durable import faults
from durable.errors import WrongArguments
from highway_dsl.cron import cron_fault
from scheduler.attempts import Trouble, attempt
from scheduler.matching import Caught, Look, Mode, Rule, look
from scheduler.session import Session
from scheduler.timetable import CONTINUOUS, ONCE, Timetable

log = structlog.get_logger("scheduler.triggers")

# In one transaction: so many triggers, and of each of them so many events.
TRIGGERS = 20
EVENTS = 500

SET = "select durable.set_trigger(%s, %s, %s, %s, %s, %s::json, %s, %s, %s, %s)"
LIST = "select * from durable.triggers(%s)"
RUNS = "select * from durable.trigger_run where workflow = %s order by made_at desc, run_id desc limit %s"
DUE = "select * from durable.due_triggers(%s)"
FRESH = "select event_id, emitted_at, matched from durable.fresh_events(%s, %s)"
WAITING = "select event_id, emitted_at, matched from durable.waiting_events(%s, %s, %s, %s)"
FIRED = "select interval_end from durable.trigger_run where workflow = %s and interval_end = any (%s)"
FIRE = "select durable.fire_trigger(%s, %s::json, %s::json, %s::json)"
PAUSE = "select durable.pause_trigger(%s, null, %s)"
NEXT = "select min(look_at) from durable.trigger where not paused"


class TriggerInfo(BaseModel):
    """A trigger as it stands. `waiting`: events that are in no run yet."""

    model_config = ConfigDict(frozen=True)

    workflow: str
    events: list[str]
    mode: Mode
    per: str | None
    timezone: str
    inputs: dict[str, Any]
    queue: str
    prio: int | None
    tags: list[str] | None
    paused: bool
    pause_note: str | None
    since: datetime
    by: str | None
    changed_at: datetime
    waiting: int


class TriggerRun(BaseModel):
    """A run that events have started. `surplus`: events of its interval that came besides."""

    model_config = ConfigDict(frozen=True)

    run_id: UUID
    workflow: str
    event_id: UUID | None
    interval_start: datetime | None
    interval_end: datetime | None
    events: list[UUID]
    surplus: int
    made_at: datetime


class Triggers:
    """What people do with triggers. Give it a DSN, or a connection to act inside its transaction."""

    def __init__(self, on: str | psycopg.AsyncConnection[Any]):
        self._session = Session(on)

    async def set(
        self,
        workflow: str,
        events: Sequence[str],
        *,
        mode: Mode = "any",
        per: str | None = None,
        timezone: str = "UTC",
        inputs: dict[str, Any] | None = None,
        queue: str | None = None,
        prio: int | None = None,
        tags: Sequence[str] | None = None,
        by: str | None = None,
    ) -> bool:
        """Start a workflow on these events; `*` in a name stands for any text. False: nothing changed.

        The payload is the run's input. `all` waits for one event of each name and gives their payloads as `events`;
        `per` is a cron whose data intervals get one run each. Without a queue, its runs go to the workflow's own.
        """
        _check(per, timezone)
        given = orjson.dumps(inputs or {}).decode()
        params = (workflow, list(events), mode, per, timezone, given, queue, prio, list(tags) if tags else None, by)
        return bool(await self._session.value(SET, params))

    async def remove(self, workflow: str, *, by: str | None = None) -> bool:
        """The workflow no longer starts on events. False: it did not."""
        return bool(await self._session.value("select durable.drop_trigger(%s, %s)", (workflow, by)))

    async def pause(self, workflow: str, *, by: str | None = None, note: str | None = None) -> None:
        await self._session.value("select durable.pause_trigger(%s, %s, %s)", (workflow, by, note))

    async def unpause(self, workflow: str, *, keep: bool = False, by: str | None = None) -> int:
        """Start on events again; with `keep` also on those that came meanwhile. How many were skipped."""
        return int(await self._session.value("select durable.unpause_trigger(%s, %s, %s)", (workflow, keep, by)))

    async def list(self, workflow: str | None = None) -> Sequence[TriggerInfo]:
        return [TriggerInfo(**row) for row in await self._session.rows(LIST, (workflow,))]

    async def runs(self, workflow: str, *, limit: int = 50) -> Sequence[TriggerRun]:
        """What events have started, newest first."""
        return [TriggerRun(**row) for row in await self._session.rows(RUNS, (workflow, limit))]


def _check(per: str | None, timezone: str) -> None:
    if per in (ONCE, CONTINUOUS):
        raise WrongArguments(f"per: {per} has no data intervals; write a cron expression, as @daily")
    if per is not None and (fault := cron_fault(per)):
        raise WrongArguments(f"per: {fault}")
    try:
        ZoneInfo(timezone)
    except (KeyError, ValueError, OSError):
        raise WrongArguments(f"timezone: there is no zone {timezone!r}; write it as in Europe/Berlin") from None


class TriggerLooks:
    """The scheduler's part: events that were put aside become runs."""

    async def run_once(self, connection: psycopg.AsyncConnection[Any]) -> int:
        """Look at triggers that have something new; how many there were. Again until it is none."""
        async with connection.transaction():
            async with connection.cursor(row_factory=dict_row) as cursor:
                due = await (await cursor.execute(DUE, (TRIGGERS,))).fetchall()
            for row in due:
                found = await attempt(connection, self._look(connection, row))
                if isinstance(found, Trouble):
                    log.error("a trigger cannot be looked at and was paused", workflow=row["workflow"], error=found)
                    note = f"paused because it cannot be looked at: {found}"
                    await connection.execute(PAUSE, (row["workflow"], note))
                faults.point("trigger.applied")
        return len(due)

    async def next_at(self, connection: psycopg.AsyncConnection[Any]) -> datetime | None:
        """When there is something to do although nothing happens: an interval can no longer be completed."""
        row = await (await connection.execute(NEXT)).fetchone()
        return row[0] if row else None

    async def _look(self, connection: psycopg.AsyncConnection[Any], row: dict[str, Any]) -> None:
        rule = _rule(row)
        async with connection.cursor(row_factory=args_row(_caught)) as cursor:
            fresh = await (await cursor.execute(FRESH, (rule.workflow, EVENTS))).fetchall()
            ends = _ends(rule, fresh)
            waiting: list[Caught] = []
            if rule.mode == "all":
                what = (rule.workflow, ends if rule.per else None, rule.names, EVENTS)
                waiting = await (await cursor.execute(WAITING, what)).fetchall()
        fired = await (await connection.execute(FIRED, (rule.workflow, ends))).fetchall()
        decided = look(rule, fresh, waiting, [end for (end,) in fired])
        await connection.execute(FIRE, (rule.workflow, *_rows(decided)))


def _ends(rule: Rule, events: Sequence[Caught]) -> list[datetime]:
    intervals = (rule.interval(event) for event in events)
    return list({interval[1] for interval in intervals if interval})


def _rule(row: dict[str, Any]) -> Rule:
    per = Timetable.of(cron=row["per"], zone=row["timezone"]) if row["per"] is not None else None
    return Rule(row["workflow"], len(row["events"]), row["mode"], per)


def _caught(event_id: UUID, emitted_at: datetime, matched: list[int]) -> Caught:
    return Caught(event_id, emitted_at, tuple(matched))


def _rows(found: Look) -> tuple[str, str, str]:
    surplus, waiting = ([{"id": event, "end": end} for event, end in part] for part in (found.surplus, found.waiting))
    firings = [firing.row() for firing in found.firings]
    return orjson.dumps(firings).decode(), orjson.dumps(surplus).decode(), orjson.dumps(waiting).decode()
