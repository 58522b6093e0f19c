"""A tick of a schedule: the run it becomes, and what that run is given. Pure, and the same wherever it is computed.

A tick that is made again after its commit was lost is the same run with the same id, and so are the idempotency keys of
its steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

# What a tick gives its run besides the schedule's own inputs.
GIVEN = ("data_interval_start", "data_interval_end", "logical_date", "ds")


@dataclass(frozen=True, slots=True)
class Tick:
    """One firing, and the beginning of the data interval that it closes; version and inputs where they are not the
    schedule's current ones."""

    at: datetime
    start: datetime
    version: str | None = None
    inputs: Mapping[str, Any] | None = None


def run_of(workflow: str, tick: datetime, attempt: int = 0) -> str:
    """The id of the run that a tick becomes: a UUIDv7 of the tick's own time, unlike any other tick's."""
    stamp = (tick - _EPOCH) // _MILLISECOND
    noise = int.from_bytes(sha256(f"{workflow}\n{instant(tick)}\n{attempt}".encode()).digest()[:10])
    high = (stamp << 16) | 0x7000 | (noise >> 68)
    low = (0b10 << 62) | (noise & ((1 << 62) - 1))
    return str(UUID(int=(high & ((1 << 64) - 1)) << 64 | low))


def inputs_of(tick: Tick, inputs: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """The input of a tick's run: the schedule's own, and of the tick's what the workflow can take."""
    given = {
        "data_interval_start": instant(tick.start),
        "data_interval_end": instant(tick.at),
        "logical_date": instant(tick.at),
        "ds": instant(tick.start),
    }
    return {name: value for name, value in given.items() if takes(params, name)} | dict(inputs)


def takes(params: Mapping[str, Any], name: str) -> bool:
    """Whether a workflow, as it was registered, can be given an argument of this name."""
    if params.get("required") is None or params.get("open"):
        return True
    return name in params["required"] or name in params.get("optional", ())


def instant(moment: datetime) -> str:
    """An instant as a run is given it: ISO-8601 in UTC, with seconds."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def share_of(workflow: str, tick: datetime) -> float:
    """A number in [0, 1) that belongs to this tick: where in its jitter it falls."""
    return int.from_bytes(sha256(f"{workflow}\n{instant(tick)}".encode()).digest()[:6]) / (1 << 48)
