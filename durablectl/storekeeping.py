"""`durable db migrate|url`: the store as a whole."""

from __future__ import annotations

import sys

from durable.embedded import EmbeddedPostgres
from durable.migrate import HEAD, migrate
from durablectl import database, exits
from durablectl.jsontext import print_json


def migrate_store(database_url: str | None) -> int:
    url = database.choose(database_url).url
    if url is None:
        database.say_if_new()
        with EmbeddedPostgres() as server:
            migrate(server.dsn)
            place = str(server.data_dir)
    else:
        migrate(url)
        place = database.where(url)
    print(f"the store in {place} is at version {HEAD}")
    return exits.OK


def print_url(database_url: str | None, *, as_json: bool) -> int:
    choice = database.choose(database_url)
    url, running = (choice.url, None) if choice.url else _embedded_url()
    if as_json:
        print_json({"url": url, "source": choice.source, "running": running})
    else:
        print(url)
    if running is False and not as_json:
        print("durable: the embedded server runs only while a program uses it; `durable dev` does", file=sys.stderr)
    return exits.OK


def _embedded_url() -> tuple[str, bool]:
    server = EmbeddedPostgres()
    if (running := server.status().dsn) is not None:
        return running, True
    # Only a server that has been started has an address; it keeps it.
    database.say_if_new()
    with server:
        return server.dsn, False
