"""How often an operator is tried again, and how long it may take (sections 4.4 and 4.5)."""

from __future__ import annotations

from datetime import timedelta

from pydantic import BaseModel, Field


class RetryPolicy(BaseModel):
    """Retries of a failed operator: `delay * backoff_factor ** (n - 1)` before retry n, counted from 1."""

    max_retries: int = Field(default=3, ge=0)
    delay: timedelta = Field(default=timedelta(seconds=5), ge=timedelta(0))
    backoff_factor: float = Field(default=2.0, ge=0, allow_inf_nan=False)


class TimeoutPolicy(BaseModel):
    """The longest one attempt of an operator may run."""

    timeout: timedelta = Field(gt=timedelta(0))
    kill_on_timeout: bool = True
