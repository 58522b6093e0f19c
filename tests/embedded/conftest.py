"""Places for servers: empty, with a cluster in them, and with one that may be damaged."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from durable.embedded import EmbeddedPostgres
from tests.embedded.servers import (
    FAST,
    Owner,
    eventually,
)


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that every user can pass through, unlike pytest's own."""
    path = Path(tempfile.mkdtemp(prefix="durable-test-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def made_once() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="durable-test-") as parent:
        Path(parent).chmod(0o755)
        with EmbeddedPostgres(Path(parent) / "pg", settings=FAST) as server:
            path = server.data_dir
        yield path
        server.destroy()


@pytest.fixture
def data_dir(made_once: Path) -> Iterator[Path]:
    """A data directory with a cluster in it and no server; the next test gets the same."""
    yield made_once
    eventually(lambda: not EmbeddedPostgres(made_once).status().running)


@pytest.fixture
def fresh_dir(place: Path) -> Iterator[Path]:
    """A data directory that does not exist yet."""
    yield place / "pg"
    EmbeddedPostgres(place / "pg").destroy()


@pytest.fixture
def spare_dir(fresh_dir: Path, made_once: Path) -> Path:
    """A data directory with a cluster in it that may be damaged."""
    subprocess.run(["cp", "-a", made_once, fresh_dir], check=True)
    return fresh_dir


@pytest.fixture
def owner_of() -> Iterator[Callable[[Path], Owner]]:
    """Makes owners, which do not outlive the test."""
    made: list[Owner] = []

    def make(data_dir: Path) -> Owner:
        made.append(Owner(data_dir))
        return made[-1]

    yield make
    for owner in made:
        owner.kill()
