"""Runs as a client sees them: what is asked of the store, and what comes back."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict
from sqlalchemy import Select, select

from durable import models

FINAL = frozenset({"succeeded", "failed", "cancelled"})
STATES = ("ready", "running", "parked", "queued", "delayed", "succeeded", "failed", "cancelled")


class RunInfo(BaseModel):
    """One run at one moment."""

    model_config = ConfigDict(frozen=True)

    run_id: UUID
    workflow: str
    queue: str
    state: str
    prio: int
    tags: list[str] | None
    version: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    wake_at: datetime | None
    deadline_at: datetime | None
    stop: str | None
    cap_key: str | None
    input: Any
    result: Any
    error: dict[str, Any] | None
    worker_id: UUID | None
    lost: int

    @property
    def final(self) -> bool:
        return self.state in FINAL


class StepRecord(BaseModel):
    """One journal row."""

    model_config = ConfigDict(frozen=True)

    task_id: UUID
    pos: int
    kind: str
    name: str
    body: Any
    ms: int | None
    at: datetime


class WaitInfo(BaseModel):
    """What a parked task waits for."""

    model_config = ConfigDict(frozen=True)

    task_id: UUID
    key: str
    name: str | None
    timeout_at: datetime | None
    outcome: Any


class BranchInfo(BaseModel):
    """One task below a run's root."""

    model_config = ConfigDict(frozen=True)

    task_id: UUID
    parent_id: UUID
    workflow: str
    queue: str
    state: str
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    wake_at: datetime | None
    input: Any
    result: Any
    error: dict[str, Any] | None
    worker_id: UUID | None


class ProgressInfo(BaseModel):
    """How far a task said it is, the last time it said so."""

    model_config = ConfigDict(frozen=True)

    task_id: UUID
    done: float
    total: float | None
    note: str | None
    at: datetime


class LogLine(BaseModel):
    model_config = ConfigDict(frozen=True)

    task_id: UUID
    at: datetime
    level: str
    step: str | None
    message: str
    fields: dict[str, Any] | None


def runs_query(
    *,
    state: str | None = None,
    workflow: str | None = None,
    tag: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    before: str | None = None,
    limit: int = 50,
) -> Select[Any]:
    """The newest runs that fit. Ids are ordered by time, so `before` pages on and nothing is counted."""
    run = models.run
    query = select(run).order_by(run.c.run_id.desc()).limit(limit)
    if state is not None:
        query = query.where(run.c.state == state)
        if state in ("failed", "cancelled"):
            # Says it in the words of the index that holds only troubled runs.
            query = query.where(run.c.error.is_not(None), run.c.finished_at.is_not(None))
    if workflow is not None:
        query = query.where(run.c.workflow == workflow)
    if tag is not None:
        query = query.where(run.c.tags.contains([tag]))
    if since is not None:
        query = query.where(run.c.created_at >= since)
    if until is not None:
        query = query.where(run.c.created_at < until)
    if before is not None:
        query = query.where(run.c.run_id < UUID(before))
    return query


def steps_query(run_id: str) -> Select[Any]:
    table = models.journal
    columns = [table.c[name] for name in ("task_id", "pos", "kind", "name", "body", "ms", "at")]
    return select(*columns).where(table.c.run_id == UUID(run_id)).order_by(table.c.at, table.c.task_id, table.c.pos)


def waits_query(run_id: str) -> Select[Any]:
    table = models.wait
    columns = [table.c[name] for name in ("task_id", "key", "name", "timeout_at", "outcome")]
    return select(*columns).where(table.c.run_id == UUID(run_id)).order_by(table.c.key)


def branches_query(run_id: str) -> Select[Any]:
    table = models.branch
    columns = [table.c[name] for name in BranchInfo.model_fields]
    below = table.c.parent_id.is_not(None)
    return select(*columns).where(table.c.run_id == UUID(run_id), below).order_by(table.c.task_id)


def progress_query(run_id: str) -> Select[Any]:
    table = models.progress
    columns = [table.c[name] for name in ProgressInfo.model_fields]
    return select(*columns).where(table.c.run_id == UUID(run_id)).order_by(table.c.task_id)


def logs_query(run_id: str) -> Select[Any]:
    table = models.log
    columns = [table.c[name] for name in ("task_id", "at", "level", "step", "message", "fields")]
    return select(*columns).where(table.c.run_id == UUID(run_id)).order_by(table.c.id)
