"""The databases that every other test stands on."""

import psycopg


def test_a_fresh_database_has_an_empty_store(durable_dsn: str) -> None:
    """Each test begins with a migrated store and no run in it."""
    with psycopg.connect(durable_dsn) as connection:
        assert connection.execute("select count(*) from durable.task").fetchone() == (0,)
