"""The addresses of a server, as URIs that libpq and SQLAlchemy both read.

They leave nothing to the reader's PG* variables: user, database, host and port are always named.
"""

from __future__ import annotations

from urllib.parse import quote

from durable.embedded.ownership import Server

SUPERUSER = "durable"
DATABASE = "postgres"  # the one initdb makes: another would cost a third of a second at the first start


def over_socket(server: Server) -> str:
    host = quote(server.socket_dir, safe="")
    return f"postgresql://{SUPERUSER}@/{DATABASE}?host={host}&port={server.port}"


def over_tcp(server: Server, password: str) -> str:
    return f"postgresql://{SUPERUSER}:{quote(password, safe='')}@127.0.0.1:{server.port}/{DATABASE}"
