"""highway-dsl 1.1.0 as published, in an environment of its own: its package has our package's name."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

REQUIREMENT = "highway-dsl==1.1.0"


def environment(cache: Path) -> Path:
    """The environment's Python; made on first use."""
    home = cache / "venvs" / "highway-dsl-1.1.0"
    ready = home / ".ready"
    if not ready.exists():
        shutil.rmtree(home, ignore_errors=True)
        _run(sys.executable, "-m", "venv", str(home))
        _run(str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", REQUIREMENT)
        ready.touch()
    return home / "bin" / "python"


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"


class Upstream:
    """A process of that environment that plays programs."""

    def __init__(self, python: Path) -> None:
        script = Path(__file__).with_name("builder_programs.py")
        # -I: neither the folder we run in nor the caller's settings may put our package before theirs.
        self.process = subprocess.Popen(
            [str(python), "-I", str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def play(self, program: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(program) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"1.1.0 refuses {json.dumps(program)}"
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        self.process.communicate()
