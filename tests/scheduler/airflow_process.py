"""Runs inside the environment of `airflow.py`: reads questions, answers with fire times. Imports nothing of ours."""

from __future__ import annotations

import json
import sys
import types
import zoneinfo
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any


def own_cron() -> Any:
    """Airflow's cron mixin, from its own file; the packages above it are entered without running them."""
    found = find_spec("airflow")
    assert found is not None
    assert found.origin is not None
    root = Path(found.origin).parent
    for name in ("airflow", "airflow.timetables", "airflow.utils"):
        package = types.ModuleType(name)
        package.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = package
    errors = types.ModuleType("airflow.exceptions")
    errors.AirflowTimetableInvalid = ValueError  # type: ignore[attr-defined]  # a module of our own making
    sys.modules["airflow.exceptions"] = errors
    from airflow.timetables._cron import CronMixin  # type: ignore[import-not-found]  # only in that environment

    return CronMixin


def answer(mixin: Any, question: dict[str, str]) -> list[str]:
    from pendulum import instance  # type: ignore[import-not-found]  # only in that environment

    rule = mixin(question["cron"], question["zone"])
    tick = rule._get_next(instance(datetime.fromisoformat(question["after"])))
    until, found = datetime.fromisoformat(question["until"]), []
    while tick <= until:
        found.append(tick.astimezone(UTC).isoformat())
        tick = rule._get_next(tick)
    return found


if __name__ == "__main__":
    zoneinfo.reset_tzpath(to=sys.argv[1:])
    cron = own_cron()
    for line in sys.stdin:
        print(json.dumps(answer(cron, json.loads(line))), flush=True)
