"""A stage per test, with a database of its own; and a server that may be killed, apart from everyone else's."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from durable.embedded import EmbeddedPostgres
from durable.testing.databases import Databases
from tests.faults.scene import Scene


@pytest.fixture
def scene(durable_dsn: str, tmp_path: Path) -> Iterator[Scene]:
    stage = Scene(durable_dsn, tmp_path)
    try:
        yield stage
    finally:
        stage.close()


@pytest.fixture(scope="session")
def mortal_server() -> Iterator[EmbeddedPostgres]:
    """A server of our own, with fsync on: it is killed and must remember."""
    # Not pytest's own temporary directory: root's is closed to the user that the server runs under.
    home = Path(tempfile.mkdtemp(prefix="durable-mortal-"))
    home.chmod(0o755)
    server = EmbeddedPostgres(home / "pg", settings={"shared_buffers": "32MB"})
    try:
        server.start()
        yield server
    finally:
        server.destroy()
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def mortal_scene(mortal_server: EmbeddedPostgres, tmp_path: Path) -> Iterator[Scene]:
    """A stage on the server that may be killed."""
    databases = Databases(mortal_server.start())
    databases.prepare()
    stage = Scene(databases.create(), tmp_path)
    try:
        yield stage
    finally:
        mortal_server.start()
        stage.close()
        databases.drop(stage.dsn)
        databases.close()
