"""A real database for every test, in milliseconds: copies of a template that was migrated once.

The server is, in this order: `DURABLE_TEST_DATABASE_URL`, the embedded one, a container if a Docker daemon answers.
None of them is an error, never a skip.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from durable.embedded import EmbeddedPostgres
from durable.errors import EmbeddedPostgresError
from durable.ids import uuid7
from durable.migrate import migrate
from durable.testing.recycling import fingerprint, recycle

# Tests need no durability of the machine, only of the processes: a killed server still recovers what it was told.
FAST = {"fsync": "off", "full_page_writes": "off", "max_connections": "300"}


class Databases:
    """Databases of one server: a migrated template, and copies of it."""

    def __init__(self, server: str):
        self._server = server
        self._template = f"durable_template_{os.getpid()}_{uuid7()[-12:]}"
        self._fresh: dict[str, tuple[object, ...]] = {}
        self._idle: list[str] = []

    def prepare(self) -> None:
        self._admin("create database {}", self._template)
        migrate(self.url(self._template))

    def create(self) -> str:
        """The DSN of a fresh, migrated database: one that was used and emptied, or a new copy of the template."""
        name = f"durable_test_{uuid7().replace('-', '')}"
        if self._idle:
            # Under a new name: whoever was left behind by the last test does not find it again.
            used = self._idle.pop()
            self._admin("alter database {} rename to {}", used, name)
            self._fresh[name] = self._fresh.pop(used)
        else:
            self._admin("create database {} template {}", name, self._template)
            self._fresh[name] = fingerprint(self.url(name))
        return self.url(name)

    def create_empty(self) -> str:
        """The DSN of a fresh database without the store."""
        name = f"durable_test_{uuid7().replace('-', '')}"
        self._admin("create database {}", name)
        return self.url(name)

    def drop(self, dsn: str) -> None:
        """Give a database up; it may be emptied and used again."""
        name = str(psycopg.conninfo.conninfo_to_dict(dsn)["dbname"])
        if name in self._fresh and recycle(dsn, self._fresh[name]):
            self._idle.append(name)
        else:
            self._admin("drop database if exists {} with (force)", name)

    def close(self) -> None:
        for name in (*self._idle, self._template):
            self._admin("drop database if exists {} with (force)", name)

    def url(self, name: str) -> str:
        return make_conninfo(self._server, dbname=name)

    def _admin(self, text: str, *names: str) -> None:
        with psycopg.connect(self._server, autocommit=True) as connection:
            connection.execute(sql.SQL(text).format(*map(sql.Identifier, names)))


@contextmanager
def server() -> Iterator[str]:
    """The DSN of a server on which databases may be made."""
    if given := os.environ.get("DURABLE_TEST_DATABASE_URL"):
        yield given
        return
    # Not pytest's own temporary directory: root's is closed to the user that the server runs under.
    home = Path(tempfile.mkdtemp(prefix="durable-test-"))
    home.chmod(0o755)
    try:
        embedded = EmbeddedPostgres(home / "pg", settings=FAST)
        try:
            dsn = embedded.start()
        except EmbeddedPostgresError as exc:
            with _container(exc) as dsn:
                yield dsn
            return
        try:
            yield dsn
        finally:
            embedded.destroy()
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def _container(why: EmbeddedPostgresError) -> Iterator[str]:
    try:
        from testcontainers.postgres import PostgresContainer

        container = PostgresContainer("postgres:16-alpine", driver=None)
        container.start()
    except Exception as exc:
        raise EmbeddedPostgresError(
            f"no database to test on: {why}; and no container either: {exc}. Set DURABLE_TEST_DATABASE_URL."
        ) from exc
    try:
        yield container.get_connection_url()
    finally:
        container.stop()
