"""`durable schedules list|show|next|history|alerts`: reads, which change nothing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from durable import Durable
from durablectl import exits
from durablectl.database import with_client
from durablectl.jsontext import print_json
from durablectl.page import Table, age, duration, short, show
from durablectl.scheduling import schedules_of
from durablectl.story import said
from scheduler.deadlines import AlertInfo, Alerts
from scheduler.info import NoteInfo, ScheduleInfo, TickInfo, Upcoming

FEW = 5
LIST_HEADER = ("workflow", "rule", "zone", "state", "next", "owed", "active")
TICK_HEADER = ("tick", "run", "state", "kind", "made")
NOTE_HEADER = ("at", "kind", "ticks", "what", "by")


class Look(NamedTuple):
    """One schedule, with its last runs and the last lines of its history."""

    schedule: ScheduleInfo
    ticks: Sequence[TickInfo]
    notes: Sequence[NoteInfo]


def list_schedules(*, as_json: bool, database_url: str | None) -> int:
    async def act(client: Durable) -> Sequence[ScheduleInfo]:
        return await schedules_of(client).list()

    found = with_client(database_url, act)
    if as_json:
        print_json(found)
    elif found:
        show([Table("", [_list_row(schedule) for schedule in found], LIST_HEADER)])
    else:
        print("no schedules; set one with `durable schedules set NAME '0 2 * * *'`")
    return exits.OK


def show_schedule(workflow: str, *, as_json: bool, database_url: str | None) -> int:
    async def act(client: Durable) -> Look:
        schedules = schedules_of(client)
        found = await schedules.show(workflow)
        return Look(found, await schedules.ticks(workflow, FEW), await schedules.history(workflow, FEW))

    look = with_client(database_url, act)
    if as_json:
        ticks, notes = ([each.model_dump(mode="json") for each in part] for part in (look.ticks, look.notes))
        print_json({**look.schedule.model_dump(mode="json"), "ticks": ticks, "notes": notes})
    else:
        show(_schedule_page(look))
    return exits.OK


def next_ticks(workflow: str, count: int, *, as_json: bool, database_url: str | None) -> int:
    async def act(client: Durable) -> tuple[ScheduleInfo, Sequence[Upcoming]]:
        schedules = schedules_of(client)
        return await schedules.show(workflow), await schedules.next(workflow, count)

    schedule, found = with_client(database_url, act)
    if as_json:
        print_json(found)
    elif found:
        show([Table("", [_next_row(schedule, tick) for tick in found], _next_header(schedule))])
    else:
        print(f"{workflow} has no ticks ahead: {_standing(schedule)}")
    return exits.OK


def show_history(workflow: str, limit: int, *, as_json: bool, database_url: str | None) -> int:
    async def act(client: Durable) -> Sequence[NoteInfo]:
        return await schedules_of(client).history(workflow, limit)

    found = with_client(database_url, act)
    if as_json:
        print_json(found)
    elif found:
        show([Table("", [_note_row(note) for note in found], NOTE_HEADER)])
    else:
        print(f"nothing happened to the schedule of {workflow!r} yet")
    return exits.OK


def list_alerts(workflow: str | None, limit: int, *, as_json: bool, database_url: str | None) -> int:
    async def act(client: Durable) -> Sequence[AlertInfo]:
        return await Alerts(client.dsn).list(workflow, limit=limit)

    found = with_client(database_url, act)
    if as_json:
        print_json(found)
    elif found:
        show([Table("", [_alert_row(alert) for alert in found], ALERT_HEADER)])
    else:
        print("no alerts")
    return exits.OK


# ---------------------------------------------------------------- rows


def rule(schedule: ScheduleInfo) -> str:
    """A rule as a person says it."""
    return schedule.cron or f"every {duration((schedule.every or timedelta()).total_seconds())}"


def _standing(schedule: ScheduleInfo) -> str:
    if schedule.state != "active":
        return schedule.state
    if schedule.paused:
        return "paused"
    return "waiting" if schedule.waiting else "active"


def _active(schedule: ScheduleInfo) -> str:
    return str(schedule.active) if schedule.slots is None else f"{schedule.active} of {schedule.slots}"


def _list_row(schedule: ScheduleInfo) -> Sequence[str]:
    coming = "-" if schedule.paused else said(schedule.next_tick)
    owed = f"{schedule.owed:,}" if schedule.owed else ""
    head = (schedule.workflow, rule(schedule), schedule.timezone, _standing(schedule))
    return *head, coming, owed, _active(schedule)


def _schedule_page(look: Look) -> list[Table]:
    return [
        Table("", [*_head(look.schedule), *_terms(look.schedule)]),
        Table("last runs", [_tick_row(tick) for tick in look.ticks], TICK_HEADER),
        Table("history", [_note_row(note) for note in look.notes], NOTE_HEADER),
        Table("next", [(command,) for command in _commands(look.schedule)]),
    ]


def _head(schedule: ScheduleInfo) -> list[Sequence[str]]:
    rows = [
        ("workflow", schedule.workflow),
        ("rule", f"{rule(schedule)} ({schedule.timezone})"),
        ("state", _standing(schedule)),
        ("paused by", _paused(schedule)),
        ("next tick", _coming(schedule)),
        ("owed", f"{schedule.owed:,} tick{'s' * (schedule.owed > 1)}" if schedule.owed else ""),
        ("waits", schedule.waiting or ""),
        *(("held by", f"run {run}") for run in schedule.holders),
        ("unfinished", f"{schedule.active} runs{_at_most(schedule)}"),
    ]
    return [row for row in rows if row[1]]


def _terms(schedule: ScheduleInfo) -> list[Sequence[str]]:
    rows = [
        ("start date", said(schedule.start_date)),
        ("end date", said(schedule.end_date)),
        ("catchup", f"{schedule.catchup}{_within(schedule.catchup_window)}"),
        ("overlap", schedule.overlap),
        ("jitter", _length(schedule.jitter)),
        ("deadline", _length(schedule.deadline) and f"{_length(schedule.deadline)} after a tick: {_call(schedule)}"),
        ("depends", "on the success of the tick before" if schedule.depends_on_past else ""),
        ("inputs", short(schedule.inputs) if schedule.inputs else ""),
        ("queue", f"{schedule.queue}" if schedule.queue != "default" else ""),
        ("tags", ", ".join(schedule.tags or [])),
        ("counts", f"from {said(schedule.since)}"),
        ("set by", f"{schedule.by or '?'} at {said(schedule.changed_at)} ({schedule.origin})"),
    ]
    return [row for row in rows if row[1] not in ("", "-")]


def _at_most(schedule: ScheduleInfo) -> str:
    return "" if schedule.slots is None else f" of at most {schedule.slots}"


def _paused(schedule: ScheduleInfo) -> str:
    if not schedule.paused:
        return ""
    note = f": {schedule.pause_note}" if schedule.pause_note else ""
    return f"{schedule.paused_by or '?'} at {said(schedule.paused_at)}{note}"


def _coming(schedule: ScheduleInfo) -> str:
    if schedule.next_tick is None or schedule.paused:
        return ""
    left = age((schedule.next_tick - datetime.now(UTC)).total_seconds())
    return f"{said(schedule.next_tick)} ({_local(schedule.next_tick, schedule.timezone)}, in {left})"


def _within(window: timedelta | None) -> str:
    return f", of the last {_length(window)}" if window else ""


def _length(length: timedelta | None) -> str:
    return duration(length.total_seconds()) if length else ""


def _call(schedule: ScheduleInfo) -> str:
    return f"an alert, and {schedule.on_deadline} starts" if schedule.on_deadline else "an alert"


def _commands(schedule: ScheduleInfo) -> list[str]:
    name = schedule.workflow
    switch = f"durable schedules {'unpause' if schedule.paused else 'pause'} {name}"
    return [f"durable schedules next {name}", f"durable schedules history {name}", switch]


def _local(moment: datetime, zone: str) -> str:
    return f"{moment.astimezone(ZoneInfo(zone)):%a %Y-%m-%d %H:%M %Z}"


def _next_header(schedule: ScheduleInfo) -> Sequence[str]:
    return ("tick", schedule.timezone, "data interval from", *(["starts"] if schedule.jitter else []))


def _next_row(schedule: ScheduleInfo, tick: Upcoming) -> Sequence[str]:
    starts = [said(tick.starts_at)] if schedule.jitter else []
    return said(tick.tick), _local(tick.tick, schedule.timezone), said(tick.interval_start), *starts


def _tick_row(tick: TickInfo) -> Sequence[str]:
    kind = f"{tick.kind}, attempt {tick.attempt + 1}" if tick.attempt else tick.kind
    return said(tick.tick), str(tick.run_id), tick.state or "pruned", kind, said(tick.made_at)


def _note_row(note: NoteInfo) -> Sequence[str]:
    return said(note.at), note.kind, _ticks(note), note.note, note.by or ""


def _ticks(note: NoteInfo) -> str:
    if note.first_tick is None:
        return ""
    if note.last_tick in (None, note.first_tick):
        return said(note.first_tick)
    return f"{note.ticks:,} from {said(note.first_tick)} to {said(note.last_tick)}"


ALERT_HEADER = ("workflow", "tick", "what", "due", "raised", "run", "callback")


def _alert_row(alert: AlertInfo) -> Sequence[str]:
    what = alert.kind if alert.ticks == 1 else f"{alert.ticks:,} {alert.kind}"
    callback = alert.callback_note or (f"{alert.callback} {alert.callback_run}" if alert.callback_run else "")
    run = str(alert.run_id or "")
    return alert.workflow, said(alert.tick), what, said(alert.due_at), said(alert.raised_at), run, callback
