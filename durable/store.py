"""The store as a whole: is it there, is it new enough, and is it migrated."""

from __future__ import annotations

import psycopg

from durable.errors import StoreNotReady
from durable.link import connect

OLDEST = 140000


async def check_store(dsn: str) -> None:
    """Raise a clear error unless the database can be worked with."""
    connection = await connect(dsn, "durable-check")
    try:
        version = connection.info.server_version
        if version < OLDEST:
            raise StoreNotReady(f"PostgreSQL {version // 10000} is too old; the store needs 14 or newer")
        await _check_migrated(connection)
    finally:
        await connection.close()


async def _check_migrated(connection: psycopg.AsyncConnection) -> None:
    from durable.migrate import HEAD

    name = connection.info.dbname
    found = await connection.execute("select to_regclass('durable.alembic_version') is not null")
    if not (await found.fetchone() or (False,))[0]:
        raise StoreNotReady(f"database {name!r} has no store yet; make it with `durable db migrate`")
    rows = await (await connection.execute("select version_num from durable.alembic_version")).fetchall()
    have = rows[0][0] if rows else None
    if have != HEAD:
        raise StoreNotReady(
            f"the store in database {name!r} is at version {have}, and this program needs {HEAD};"
            " bring it up to date with `durable db migrate`"
        )
