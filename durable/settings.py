"""Settings of workers and clients, each with its environment variable `DURABLE_<NAME>`."""

from __future__ import annotations

import os
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field


class Settings(BaseModel):
    """What an operator may change. Every default is meant for production."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    database_url: str | None = Field(None, description="Where the store is; nothing means the embedded server")
    slots: int = Field(200, ge=1, description="Tasks that one worker process runs at once")
    flushers: int = Field(2, ge=1, le=8, description="Write connections per worker process")
    transaction_slots: int = Field(8, ge=1, le=64, description="Transaction steps at once per worker process")
    threads: int = Field(32, ge=1, description="Plain-function steps at once per worker process")
    step_processes: int = Field(2, ge=1, description="Steps at once in processes that can be killed")
    lease_seconds: float = Field(15.0, gt=0, description="A worker silent for so long is declared dead")
    poll_seconds: float = Field(1.0, gt=0, description="How often a busy worker looks without being told")
    idle_poll_seconds: float = Field(5.0, gt=0, description="How often an idle worker looks while notifications work")
    drain_seconds: float = Field(10.0, ge=0, description="How long steps may finish after SIGTERM")
    kept_continuations: int = Field(64, ge=0, description="Parked tasks that stay in memory")
    kept_seconds: float = Field(60.0, ge=0, description="How long a parked task stays in memory")
    quarantine_after: int = Field(3, ge=1, description="Deaths of a worker while it ran a task alone")
    retention_days: float = Field(30.0, gt=0, description="Finished runs older than this are pruned")
    prune_seconds: float = Field(60.0, gt=0, description="How often retention looks for old runs")
    schedule_grace_seconds: float = Field(60.0, ge=0, description="A tick missed by no more still gets its run")
    max_value_bytes: int = Field(16 * 1024 * 1024, ge=1024, description="Largest input, result or payload")

    @classmethod
    def from_environment(cls, **given: Any) -> Self:
        """Settings from `DURABLE_*` variables; what is given here wins."""
        found = {
            name: os.environ[f"DURABLE_{name.upper()}"]
            for name in cls.model_fields
            if f"DURABLE_{name.upper()}" in os.environ
        }
        return cls.model_validate(found | {key: value for key, value in given.items() if value is not None})
