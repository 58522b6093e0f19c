"""The databases that every other test stands on."""

import psycopg
import pytest

from durable.testing.databases import Databases
from durable.testing.protocol import Store


def test_a_fresh_database_has_an_empty_store(durable_dsn: str) -> None:
    """Each test begins with a migrated store and no run in it."""
    with psycopg.connect(durable_dsn) as connection:
        assert connection.execute("select count(*) from durable.task").fetchone() == (0,)


def test_a_database_that_was_used_comes_back_empty(durable_databases: Databases) -> None:
    """Only rows were left in it, so it is emptied and used again, under another name."""
    used = durable_databases.create()
    with Store(used) as store:
        store.register("order")
        # An analyze by the server itself would be a statistic that this test left behind.
        for table in ("task", "ready"):
            store.run(f"alter table durable.{table} set (autovacuum_enabled = off)")
        store.start_many("order", 1000)
        oid = store.value("select oid from pg_database where datname = current_database()")
    durable_databases.drop(used)
    fresh = durable_databases.create()
    with Store(fresh) as store:
        assert store.value("select oid from pg_database where datname = current_database()") == oid
        assert store.register("order") == 1
        assert store.value("select count(*) from durable.task") == 0
        for table in ("task", "ready"):
            store.run(f"alter table durable.{table} reset (autovacuum_enabled)")
    assert fresh != used
    durable_databases.drop(fresh)


@pytest.mark.parametrize(
    "left",
    [
        "create table mine (x int)",
        "create function mine() returns int language sql as 'select 1'",
        "analyze durable.worker",
        "create schema mine",
    ],
)
def test_a_database_with_more_than_rows_in_it_is_not_used_again(durable_databases: Databases, left: str) -> None:
    """Tables, functions, schemas and statistics of one test never reach another."""
    used = durable_databases.create()
    with Store(used) as store:
        store.run(left)
        oid = store.value("select oid from pg_database where datname = current_database()")
    durable_databases.drop(used)
    fresh = durable_databases.create()
    with Store(fresh) as store:
        assert store.value("select oid from pg_database where datname = current_database()") != oid
    durable_databases.drop(fresh)
