"""The stage of a benchmark: a server with its durability on, and a fresh migrated database for each case."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import psycopg

from bench.sizes import Sizes
from durable.embedded import EmbeddedPostgres
from durable.testing.databases import Databases

SHOWN = ("server_version", "fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "max_wal_size")


class Stage:
    """What every benchmark is given."""

    def __init__(self, databases: Databases, server: str, bare: str, sizes: Sizes):
        self._databases = databases
        self.server = server
        self.bare = bare  # a database without anything in it, for the limits
        self.sizes = sizes

    @asynccontextmanager
    async def database(self) -> AsyncIterator[str]:
        """The DSN of a fresh database with the store in it."""
        async with self._made(self._databases.create) as dsn:
            yield dsn

    @asynccontextmanager
    async def empty_database(self) -> AsyncIterator[str]:
        """The DSN of a fresh database with nothing in it."""
        async with self._made(self._databases.create_empty) as dsn:
            yield dsn

    @asynccontextmanager
    async def _made(self, make: Callable[[], str]) -> AsyncIterator[str]:
        dsn = await asyncio.to_thread(make)
        try:
            yield dsn
        finally:
            await asyncio.to_thread(self._databases.drop, dsn)


@contextmanager
def stage(database_url: str | None, sizes: Sizes) -> Iterator[Stage]:
    """A stage on the given server, or on an embedded one that is gone afterwards."""
    with _server(database_url) as server:
        databases = Databases(server)
        databases.prepare()
        bare = databases.create()
        try:
            yield Stage(databases, server, bare, sizes)
        finally:
            databases.drop(bare)
            databases.close()


def surroundings(stage: Stage) -> dict[str, Any]:
    """What the numbers depend on besides the code."""
    with psycopg.connect(stage.server) as connection:
        shown = {name: _show(connection, name) for name in SHOWN}
    return {"postgres": shown, "cores": os.cpu_count(), "load": os.getloadavg()[0]}


def _show(connection: psycopg.Connection, name: str) -> str:
    row = connection.execute("select current_setting(%s)", (name,)).fetchone()
    return str(row and row[0])


@contextmanager
def _server(given: str | None) -> Iterator[str]:
    if given is not None:
        yield given
        return
    home = Path(tempfile.mkdtemp(prefix="durable-bench-"))
    # Closed to others by default, and the server may have to run as another user.
    home.chmod(0o755)
    embedded = EmbeddedPostgres(home / "pg")
    try:
        yield embedded.start()
    finally:
        embedded.destroy()
        shutil.rmtree(home, ignore_errors=True)
