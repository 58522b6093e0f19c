"""The first connection to a server: the proof that it is ready, and the last of its set-up."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import psycopg
from psycopg import sql

from durable.embedded.address import DATABASE, SUPERUSER, over_socket
from durable.embedded.ownership import Server


def greet(server: Server, password: str | None) -> str:
    """Connect, make our database and set the password if there is one; returns the server's version."""
    address = over_socket(server, "postgres")
    with psycopg.connect(address, connect_timeout=5, autocommit=True) as connection:
        _make_database(connection)
        if password is not None:
            change = sql.SQL("alter role {} password {}")
            connection.execute(change.format(sql.Identifier(SUPERUSER), sql.Literal(password)))
        # "18.4 (Debian 18.4-1)"
        return (connection.info.parameter_status("server_version") or "").partition(" ")[0]


def _make_database(connection: psycopg.Connection[Any]) -> None:
    if connection.execute("select from pg_database where datname = %s", [DATABASE]).fetchone() is None:
        # Another owner may be doing the same.
        with suppress(psycopg.errors.DuplicateDatabase, psycopg.errors.UniqueViolation):
            connection.execute(sql.SQL("create database {}").format(sql.Identifier(DATABASE)))
