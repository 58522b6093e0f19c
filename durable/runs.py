"""Runs as a client sees them: what comes back when it asks."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict

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
    parent_run: UUID | None = None

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


class HolderInfo(BaseModel):
    """Who holds a slot that a queued task stands in line for."""

    model_config = ConfigDict(frozen=True)

    cap_key: str
    slots: int | None
    run_id: UUID
    task_id: UUID
    workflow: str
    since: datetime


class BranchInfo(BaseModel):
    """One task below a run's root, or the root of a run that it started (with a run id of its own)."""

    model_config = ConfigDict(frozen=True)

    run_id: UUID
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
