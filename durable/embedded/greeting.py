"""The first connection to a server: the proof that it is ready."""

from __future__ import annotations

import psycopg
from psycopg import sql

from durable.embedded.address import SUPERUSER, over_socket
from durable.embedded.ownership import Server


def greet(server: Server, password: str | None) -> str:
    """Connect, and set the password if there is one; returns the server's version."""
    with psycopg.connect(over_socket(server), connect_timeout=5, autocommit=True) as connection:
        if password is not None:
            change = sql.SQL("alter role {} password {}")
            connection.execute(change.format(sql.Identifier(SUPERUSER), sql.Literal(password)))
        # "18.4 (Debian 18.4-1)"
        return (connection.info.parameter_status("server_version") or "").partition(" ")[0]
