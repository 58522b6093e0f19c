"""`make demo`: what a newcomer sees first."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]


def test_the_demo_holds_what_it_promises(place: Any) -> None:
    """A killed worker's order is finished by another, nothing recorded runs twice, and the next command works."""
    shutil.copytree(REPOSITORY / "examples", place.path / "examples")
    running = place.start_python("-m", "examples.demo")
    assert running.end() == 0, running.said
    assert "was killed with SIGKILL" in running.said
    assert "was cut off, so B ran it again" in running.said
    assert "BROKEN" not in running.said
    assert place.left() == []
    home, _, *arguments = shlex.split(next(line for line in running.said.splitlines() if "runs show" in line))
    shown = place.run(*arguments[arguments.index("runs") :], DURABLE_HOME=home.partition("=")[2])
    assert (shown.code, "succeeded" in shown.out) == (0, True)
