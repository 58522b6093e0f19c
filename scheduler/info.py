"""Schedules as people and programs see them: what comes back when they ask."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict


class ScheduleInfo(BaseModel):
    """One schedule at one moment. `owed`: ticks that are due and have no run; `waiting`: why, when they wait;
    `holders`: the runs that hold the slots they wait for."""

    model_config = ConfigDict(frozen=True)

    workflow: str
    cron: str | None
    every: timedelta | None
    timezone: str
    start_date: datetime | None
    end_date: datetime | None
    catchup: str
    catchup_window: timedelta | None
    overlap: str
    jitter: timedelta | None
    deadline: timedelta | None
    on_deadline: str | None
    depends_on_past: bool
    inputs: dict[str, Any]
    queue: str
    prio: int | None
    tags: list[str] | None
    paused: bool
    paused_by: str | None
    paused_at: datetime | None
    pause_note: str | None
    state: str
    origin: str
    since: datetime
    cursor_at: datetime | None
    next_at: datetime | None
    by: str | None
    changed_at: datetime
    max_active_runs: int | None
    slots: int | None
    active: int
    owed: int
    next_tick: datetime | None
    waiting: str | None
    holders: list[UUID]


class Upcoming(BaseModel):
    """A tick that is still to come; `starts_at` is later than `tick` by its share of the jitter."""

    model_config = ConfigDict(frozen=True)

    tick: datetime
    starts_at: datetime
    interval_start: datetime


class TickInfo(BaseModel):
    """Which run a tick became, and how that stands."""

    model_config = ConfigDict(frozen=True)

    workflow: str
    tick: datetime
    attempt: int
    run_id: UUID
    interval_start: datetime | None
    made_at: datetime
    kind: str
    backfill_id: UUID | None
    version: str | None
    state: str | None


class NoteInfo(BaseModel):
    """A line of a schedule's history."""

    model_config = ConfigDict(frozen=True)

    id: UUID
    workflow: str
    at: datetime
    kind: str
    first_tick: datetime | None
    last_tick: datetime | None
    ticks: int | None
    note: str
    by: str | None
