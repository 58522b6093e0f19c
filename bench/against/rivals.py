"""A rival: its packages in an environment of its own, and its runner as a process that answers with numbers.

One rule: nothing of a rival is ever imported here, and whatever goes wrong with one is a reason, not an error.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
HOME = ROOT / ".bench"
RUNNERS = Path(__file__).parent / "runners"
SECONDS = 300.0
VERSIONS = "import sys, importlib.metadata as m; print(*(f'{n} {m.version(n)}' for n in sys.argv[1:]), sep=', ')"


class Unavailable(Exception):
    """A rival, or one play of it, gave no number; the message says why."""


@dataclass(frozen=True)
class Rival:
    """What is installed for it, and what of that is shown as its version."""

    name: str
    packages: tuple[str, ...]
    shown: tuple[str, ...]

    @property
    def runner(self) -> Path:
        return RUNNERS / f"{self.name}_runner.py"


RIVALS = {
    rival.name: rival
    for rival in (
        Rival("absurd", ("absurd-sdk", "absurdctl", "psycopg[binary]", "uvloop"), ("absurd-sdk", "absurdctl")),
        Rival("dbos", ("dbos", "uvloop"), ("dbos",)),
        Rival("pgqueuer", ("pgqueuer[asyncpg]", "uvloop"), ("pgqueuer", "asyncpg")),
    )
}


class Environment:
    """The environment of one rival, made on demand and kept; delete its folder to have the newest releases."""

    def __init__(self, rival: Rival, home: Path = HOME):
        self._rival = rival
        self._folder = home / f"venv-{rival.name}"
        self._python = self._folder / "bin" / "python"

    async def ready(self) -> str:
        """Install what is missing; the versions that are there."""
        installed = self._folder / ".installed"
        if not installed.exists():
            await self._install()
            installed.touch()
        return await said_by(self._python, "-c", VERSIONS, *self._rival.shown)

    async def _install(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        own = Path(sys.executable)
        await said_by(own, "-m", "venv", "--without-pip", self._folder)
        pip = ("-m", "pip", "--python", self._python, "--disable-pip-version-check", "install", "-qq")
        await said_by(own, *pip, *self._rival.packages)

    async def play(self, url: str, play: str, given: dict[str, Any]) -> dict[str, float]:
        """The numbers of one play on the empty database at `url`."""
        said = await said_by(self._python, self._rival.runner, url, play, json.dumps(given))
        lines = [line for line in said.splitlines() if line.startswith("{")]
        if not lines:
            raise Unavailable(f"{self._rival.runner.name} {play} gave no numbers")
        numbers: dict[str, float] = json.loads(lines[-1])
        return numbers


async def said_by(program: Path, *arguments: str | Path) -> str:
    """What a program prints; if it fails or takes too long, the last thing it complained of is the reason."""
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            program, *arguments, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe
        )
    except OSError as exc:
        raise Unavailable(f"{program.name}: {exc}") from exc
    try:
        out, complaints = await asyncio.wait_for(process.communicate(), SECONDS)
    except TimeoutError:
        raise Unavailable(f"no answer within {SECONDS:.0f} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise Unavailable(_last_line(complaints) or f"ended with code {process.returncode}")
    return out.decode().strip()


def _last_line(complaints: bytes) -> str:
    lines = [line for line in complaints.decode(errors="replace").splitlines() if line.strip()]
    # pip tells of its own releases after the error.
    return next((line.strip() for line in reversed(lines) if not line.startswith(("WARNING", "[notice]"))), "")
