"""Airflow's own cron timetable, as published, in an environment of its own.

Only the two modules that compute fire times run, with what they import; the package around them wants a
configuration, a database and a hundred other packages, and says nothing about time.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zoneinfo
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

RELEASE = "apache-airflow-core==3.3.2"
BESIDE = ("pendulum>=3,<4", "cron-descriptor", "python-dateutil", "packaging", "typing-extensions")


def environment(cache: Path) -> Path:
    """The environment's Python; made on first use."""
    home = cache / "venvs" / RELEASE.replace("==", "-")
    ready = home / ".ready"
    if not ready.exists():
        shutil.rmtree(home, ignore_errors=True)
        _run(sys.executable, "-m", "venv", str(home))
        pip = (str(home / "bin" / "python"), "-m", "pip", "install", "--quiet")
        # The same croniter as ours: the comparison is about zones, not about two readings of an expression.
        _run(*pip, *BESIDE, f"croniter=={version('croniter')}")
        _run(*pip, "--no-deps", RELEASE)
        ready.touch()
    return home / "bin" / "python"


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"


class Airflow:
    """A process of that environment that answers with fire times."""

    def __init__(self, python: Path) -> None:
        script = Path(__file__).with_name("airflow_process.py")
        # The same zone files: two releases of them disagree about the future.
        self.process = subprocess.Popen(
            [str(python), "-I", str(script), *zoneinfo.TZPATH], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ticks(self, cron: str, zone: str, after: datetime, until: datetime) -> list[datetime]:
        """What Airflow finds when it goes from tick to tick."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        question = {"cron": cron, "zone": zone, "after": after.isoformat(), "until": until.isoformat()}
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"Airflow has no answer to {question}"
        return [datetime.fromisoformat(tick) for tick in json.loads(line)]

    def close(self) -> None:
        self.process.communicate()
