"""What people do with schedules: set, look, pause, trigger, skip. The command and the API stand on this.

The one rule: whoever changes a schedule holds it locked and decides by the same functions as the scheduler.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, Protocol

import psycopg

from durable.codec import Codec, PlainCodec
from durable.errors import WrongArguments, WrongState
from durable.link import connect
from durable.reads import refusal
from scheduler import deciding
from scheduler.deciding import Note, count_owed, owed_now, upcoming
from scheduler.info import NoteInfo, ScheduleInfo, TickInfo, Upcoming
from scheduler.store import (
    GRACE,
    Connection,
    Row,
    apply,
    facts_of,
    fetch,
    json_rows,
    note_row,
    rule_of,
    sealed,
    spans_of,
    tick_row,
)
from scheduler.ticks import GIVEN, Tick, inputs_of, takes

LOCK = "select * from durable.lock_schedule(%s)"
FACT = "select * from durable.schedule_fact where workflow = %s"
FACTS = "select * from durable.schedule_fact where state <> 'removed' order by workflow"
BARE = (
    "select name as workflow, params, version as current_version, durable.now() as now, '{}'::json as inputs,"
    " queue, null as prio, null as tags, null as active_cap from durable.workflow where name = %s"
)
PUT = "select durable.put_schedule(%s::json)"
KEEP = "select durable.keep_owed(%s, %s, %s)"
NOTE = "select durable.note_ticks(n) from json_array_elements(%s::json) n"
LAST_ATTEMPT = (
    "select run_id, attempt from durable.tick where workflow = %s and tick = %s order by attempt desc limit 1"
)
MAKE = "select durable.make_ticks(%s::json) as made"
SPAWN = (
    "select durable.spawn(_workflow => %s, _input => %s::json, _queue => %s, _prio => %s, _tags => %s)::text as run_id"
)
HISTORY = "select * from durable.schedule_note where workflow in (%s, '*') order by at desc, id desc limit %s"
TICKS = (
    "select i.*, coalesce(r.state, i.outcome) as state"
    " from durable.tick i left join durable.run r on r.run_id = i.run_id"
    " where i.workflow = %s order by i.tick desc, i.attempt desc limit %s"
)
HOLDERS = "select task_id from durable.hold where cap_key = %s order by slot"

# What of a definition can be changed without beginning anew.
TERMS = (
    "end_date", "catchup", "catchup_window", "overlap", "jitter", "deadline", "on_deadline", "depends_on_past",
    "inputs", "queue", "prio", "tags", "origin",
)  # fmt: skip


class Definition(Protocol):
    """A sound schedule, as the store is given it."""

    def row(self) -> dict[str, Any]: ...


class Schedules:
    """Give it a DSN, or a connection to act inside its transaction."""

    def __init__(self, on: str | psycopg.AsyncConnection[Any], *, grace: timedelta = GRACE, codec: Codec | None = None):
        self._on = on
        self._grace = grace
        self._codec = codec or PlainCodec()

    # ---------------------------------------------------------------- setting

    async def set(self, workflow: str, schedule: Definition, *, by: str | None = None) -> bool:
        """Give a workflow its schedule. False: it had exactly this one. A changed timetable counts from now on; what
        the old one owed stays owed, with the version of its time."""
        given = schedule.row()
        async with self._changing() as connection:
            had = await fetch(connection, LOCK, (workflow,))
            bare = (await fetch(connection, BARE, (workflow,)))[0]
            _check_inputs(workflow, bare["params"], given["inputs"])
            old = had[0] if had else None
            since, note = _counts_from(old, given, bare["now"])
            if note is None:
                return False
            if old is not None and since == bare["now"]:
                await self._keep_owed(connection, old)
            row = {**given, "workflow": workflow, "since": since, "by": by, "version": bare["current_version"]}
            await connection.execute(PUT, (json_rows(row),))
            await connection.execute(NOTE, (json_rows([note_row(workflow, note, by)]),))
        return True

    async def remove(self, workflow: str, *, by: str | None = None) -> bool:
        """No more ticks. What ran stays in the history. False: there was no schedule."""
        async with self._changing() as connection:
            (removed,) = await fetch(connection, "select durable.remove_schedule(%s, %s) as it", (workflow, by))
        return bool(removed["it"])

    async def pause(self, workflow: str, *, by: str | None = None, note: str | None = None, hold: bool = False) -> bool:
        """No more ticks until `unpause`; with `hold`, runs that stand in line for a slot stay there. False: it was
        paused before."""
        async with self._changing() as connection:
            await self._locked(connection, workflow)
            sql = "select durable.pause_schedule(%s, %s, %s, %s) as it"
            (paused,) = await fetch(connection, sql, (workflow, by, note, hold))
        return bool(paused["it"])

    async def unpause(self, workflow: str, *, by: str | None = None, note: str | None = None) -> bool:
        """Let ticks count again; those of the pause run only if catchup asks for them. False: it was not paused."""
        async with self._changing() as connection:
            row, rule = await self._locked(connection, workflow)
            if not row["paused"]:
                return False
            await apply(connection, [(row, deciding.resume(rule, facts_of(row, self._grace)))], self._codec)
            await connection.execute("select durable.unpause_schedule(%s, %s, %s)", (workflow, by, note))
        return True

    async def skip_next(self, workflow: str, *, by: str | None = None) -> datetime | None:
        """Leave out the tick that would be made next; which one it was."""
        async with self._changing() as connection:
            row, rule = await self._locked(connection, workflow)
            decision = deciding.skip_next(rule, facts_of(row, self._grace), f"skipped by {by or 'a person'}")
            await apply(connection, [(row, decision)], self._codec)
        return decision.notes[0].last if decision.notes else None

    # ---------------------------------------------------------------- running

    async def trigger(
        self,
        workflow: str,
        *,
        inputs: Mapping[str, Any] | None = None,
        at: datetime | None = None,
        rerun: bool = False,
        by: str | None = None,
    ) -> str:
        """Start a run by hand, paused or not; its id. `at` is the logical time it stands for: a tick that has a run
        already is refused, unless it is to be run again."""
        if at is not None and at.tzinfo is None:
            raise WrongArguments(f"the logical time {at.isoformat()} has no zone; write it as in 2026-06-01T00:00:00Z")
        async with self._changing() as connection:
            row = await self._row_of(connection, workflow)
            if at is None:
                run = await self._start_now(connection, row, inputs or {})
            else:
                run = await self._start_tick(connection, row, at, inputs or {}, rerun)
            note = Note(kind="triggered", text=f"run {run} was started by hand", first=at, last=at)
            await connection.execute(NOTE, (json_rows([note_row(workflow, note, by)]),))
        return run

    # ---------------------------------------------------------------- looking

    async def list(self) -> Sequence[ScheduleInfo]:
        """Every schedule, by name."""
        async with self._open() as connection:
            rows = await fetch(connection, FACTS)
            return [await self._info(connection, row) for row in rows]

    async def show(self, workflow: str) -> ScheduleInfo:
        """One schedule: what it owes, what comes next, and why an owed tick does not start."""
        async with self._open() as connection:
            return await self._info(connection, await self._known(connection, FACT, workflow))

    async def next(self, workflow: str, count: int = 10) -> Sequence[Upcoming]:
        """The ticks that are still to come."""
        async with self._open() as connection:
            row = await self._known(connection, FACT, workflow)
        rule = rule_of(row)
        found: list[Upcoming] = []
        tick = upcoming(rule, row["now"])
        while tick is not None and len(found) < count:
            begin = rule.timetable.interval(tick)[0]
            found.append(Upcoming(tick=tick, starts_at=tick + deciding.delay_of(rule, tick), interval_start=begin))
            tick = upcoming(rule, tick)
        return found

    async def owed(self, workflow: str) -> int:
        """How many ticks are due and have no run yet."""
        return (await self.show(workflow)).owed

    async def history(self, workflow: str, limit: int = 50) -> Sequence[NoteInfo]:
        """What happened to a schedule, newest first."""
        async with self._open() as connection:
            return [NoteInfo(**row) for row in await fetch(connection, HISTORY, (workflow, limit))]

    async def ticks(self, workflow: str, limit: int = 50) -> Sequence[TickInfo]:
        """Which runs the ticks became, newest first."""
        async with self._open() as connection:
            return [TickInfo(**row) for row in await fetch(connection, TICKS, (workflow, limit))]

    # ---------------------------------------------------------------- inside

    async def _keep_owed(self, connection: Connection, old: Row) -> None:
        """What the old timetable still owes, kept apart from the new one."""
        if old["state"] != "active" or old["paused"] or old["cron"] in ("@once", "@continuous"):
            return
        owed, notes = owed_now(rule_of(old), facts_of(old, self._grace))
        if old["overlap"] in ("skip", "cancel_old"):
            owed, outrun = owed.skip(owed.newest(1), deciding.NEWER)
            notes = (*notes, *outrun)
        await connection.execute(NOTE, (json_rows([note_row(old["workflow"], note) for note in notes]),))
        if owed.last is not None:
            await connection.execute(KEEP, (old["workflow"], owed.after, owed.last))

    async def _start_now(self, connection: Connection, row: Row, inputs: Mapping[str, Any]) -> str:
        now = row["now"]
        body = sealed(inputs_of(Tick(now, now), {**row["inputs"], **inputs}, row["params"]), self._codec)
        params = (
            row["workflow"],
            json_rows(body),
            row["queue"],
            5 if row["prio"] is None else row["prio"],
            row["tags"],
        )
        return str((await fetch(connection, SPAWN, params))[0]["run_id"])

    async def _start_tick(
        self, connection: Connection, row: Row, at: datetime, inputs: Mapping[str, Any], rerun: bool
    ) -> str:
        had = await fetch(connection, LAST_ATTEMPT, (row["workflow"], at))
        if had and not rerun:
            raise _taken(at, had[0]["run_id"])
        attempt = had[0]["attempt"] + 1 if had else 0
        begin = rule_of(row).timetable.interval(at)[0] if "cron" in row else at
        tick = tick_row(row, Tick(at, begin), self._codec, kind="manual", attempt=attempt, more=inputs)
        (made,) = await fetch(connection, MAKE, (json_rows([tick]),))
        if not made["made"]:
            raise _taken(at, tick["run"])
        return str(tick["run"])

    async def _info(self, connection: Connection, row: Row) -> ScheduleInfo:
        spans = await spans_of(connection, [row["workflow"]]) if row["has_spans"] else {}
        rule = rule_of(row, spans.get(row["workflow"], ()))
        waits = row["waiting"] is not None
        cap = row["active_cap"] or f"a:{row['workflow']}"
        holders = await fetch(connection, HOLDERS, (cap,)) if waits else []
        return ScheduleInfo(
            **{name: row[name] for name in ScheduleInfo.model_fields if name in row},
            max_active_runs=row["own_slots"],
            owed=0 if row["state"] != "active" else count_owed(rule, facts_of(row, self._grace)),
            next_tick=upcoming(rule, row["now"]) if row["state"] == "active" else None,
            holders=[holder["task_id"] for holder in holders],
        )

    async def _locked(self, connection: Connection, workflow: str) -> tuple[Row, deciding.Rule]:
        row = await self._known(connection, LOCK, workflow)
        spans = await spans_of(connection, [workflow]) if row["has_spans"] else {}
        return row, rule_of(row, spans.get(workflow, ()))

    async def _known(self, connection: Connection, sql: str, workflow: str) -> Row:
        rows = await fetch(connection, sql, (workflow,))
        if not rows or rows[0]["state"] == "removed":
            raise WrongState(f"{workflow!r} has no schedule; give it one with `durable schedules set {workflow}`")
        return rows[0]

    async def _row_of(self, connection: Connection, workflow: str) -> Row:
        """A workflow's schedule, or what stands for one."""
        rows = await fetch(connection, FACT, (workflow,)) or await fetch(connection, BARE, (workflow,))
        if not rows:
            await fetch(
                connection, "select durable.line_of('default', %s)", (workflow,)
            )  # refused, with the known names
        return rows[0]

    @asynccontextmanager
    async def _changing(self) -> AsyncIterator[Connection]:
        async with self._open() as connection, connection.transaction():
            try:
                yield connection
            except psycopg.Error as exc:
                raise refusal(exc) from None

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Connection]:
        if not isinstance(self._on, str):
            yield self._on
            return
        connection = await connect(self._on, "durable-schedules")
        try:
            yield connection
        finally:
            await connection.close()


def _counts_from(old: Row | None, given: Mapping[str, Any], now: datetime) -> tuple[datetime, Note | None]:
    """From when on a schedule counts that is set now, and what to say about it; nothing if nothing changes."""
    rule = given["cron"] or f"every {timedelta(seconds=given['every'])}"
    if old is None:
        start = given["start_date"] and datetime.fromisoformat(given["start_date"])
        asked = given["catchup"] == "true" and start is not None and start <= now
        return (start - deciding.TINY if asked else now), Note(kind="set", text=f"{rule} ({given['timezone']})")
    if old["state"] == "removed":
        return now, Note(kind="restored", text=f"{rule} ({given['timezone']}); ticks count from now on")
    was = old["cron"] or f"every {old['every']}"
    if old["definition"] != given["definition"]:
        text = f"from {was} ({old['timezone']}) to {rule} ({given['timezone']}); the new one counts from now on"
        return now, Note(kind="changed", text=text)
    changed = [name for name in TERMS if _plain(old[name]) != _plain(given[name])]
    if _slots_changed(old, given):
        changed.append("max_active_runs")
    if not changed:
        return old["since"], None
    ended = old["state"] == "ended" and "end_date" in changed
    return (now if ended else old["since"]), Note(kind="changed", text=f"changed: {', '.join(changed)}")


def _slots_changed(old: Row, given: Mapping[str, Any]) -> bool:
    return bool(given.get("max_active_runs") != old["own_slots"])


def _plain(value: Any) -> Any:
    """A column and a field of a definition in the same words."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, str) and value[:4].isdigit() and "T" in value:
        return datetime.fromisoformat(value)
    return value or None


def _check_inputs(workflow: str, params: Mapping[str, Any], inputs: Mapping[str, Any]) -> None:
    """A schedule whose runs could not start is refused when it is set."""
    missing = [name for name in params.get("required") or () if name not in inputs and name not in GIVEN]
    unknown = [name for name in inputs if not takes(params, name)]
    said = [*(f"missing {name!r}" for name in missing), *(f"unknown {name!r}" for name in unknown)]
    if said:
        raise WrongArguments(
            f"inputs: the schedule of {workflow!r} cannot start it: {', '.join(said)};"
            f" a tick gives {', '.join(GIVEN)}, the rest stands in inputs"
        )


def _taken(at: datetime, run: object) -> WrongState:
    return WrongState(f"tick {at.isoformat()} is run {run} already; run it again with --rerun")
