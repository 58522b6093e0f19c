"""What Alembic builds is what sql/ builds, from empty and from every version there ever was."""

from collections.abc import Iterator

import psycopg
import pytest
from alembic.script import ScriptDirectory

from durable import migrate, models
from durable.testing.catalog import read_catalog
from durable.testing.databases import Databases
from durable.testing.protocol import Store


@pytest.fixture
def empty(durable_databases: Databases) -> Iterator[str]:
    """A database without the store."""
    dsn = durable_databases.create_empty()
    try:
        yield dsn
    finally:
        durable_databases.drop(dsn)


def install(dsn: str) -> str:
    """Build the store from sql/, as a person with psql would."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for file in sorted(migrate.folder("sql").glob("*.sql")):
            connection.execute(file.read_bytes())
    return dsn


def revisions() -> list[str]:
    """Every version of the store, oldest first."""
    scripts = ScriptDirectory(str(migrate.folder("alembic")))
    return [script.revision for script in reversed(list(scripts.walk_revisions()))]


def test_the_newest_migration_is_the_version_that_the_program_needs() -> None:
    """HEAD names the newest script, so that a worker refuses a store that is older."""
    assert revisions()[-1] == migrate.HEAD


def test_migrating_from_empty_builds_exactly_sql(empty: str, durable_dsn: str) -> None:
    """Tables, columns, constraints, indexes, functions, views and enums are the same, to the letter."""
    assert read_catalog(install(empty)) == read_catalog(durable_dsn)


def test_upgrading_from_any_version_builds_exactly_sql(durable_databases: Databases, durable_dsn: str) -> None:
    """A store of any earlier version becomes the newest one, not something near it."""
    expected = read_catalog(durable_dsn)
    for revision in revisions():
        dsn = durable_databases.create_empty()
        migrate.migrate(dsn, revision)
        migrate.migrate(dsn)
        assert read_catalog(dsn) == expected, f"upgraded from {revision}"
        durable_databases.drop(dsn)


def test_migrating_a_second_time_changes_nothing(durable_dsn: str) -> None:
    """`durable db migrate` may be run by every deployment."""
    before = read_catalog(durable_dsn)
    migrate.migrate(durable_dsn)
    assert read_catalog(durable_dsn) == before


def test_sql_can_be_run_again_over_its_functions(empty: str) -> None:
    """Every function and view is `create or replace`: the files after the tables can be loaded twice."""
    before = read_catalog(install(empty))
    with psycopg.connect(empty, autocommit=True) as connection:
        for file in sorted(migrate.folder("sql").glob("*.sql"))[1:]:
            connection.execute(file.read_bytes())
    assert read_catalog(empty) == before


def test_models_have_the_columns_of_the_database(durable_dsn: str) -> None:
    """Each table that SQLAlchemy knows has the database's columns, in name and kind."""
    with psycopg.connect(durable_dsn) as connection:
        rows = connection.execute(
            "select table_name, column_name, case when udt_schema = 'durable' then 'text' else udt_name end"
            " from information_schema.columns where table_schema = 'durable'"
        ).fetchall()
    for table in models.metadata.tables.values():
        real = {column: kind for of, column, kind in rows if of == table.name}
        assert {column.name: udt_name(column.type) for column in table.columns} == real, table.name


def udt_name(kind: object) -> str:
    """A SQLAlchemy type in the catalog's word for it."""
    name = str(kind.compile(dialect=models._DIALECT)).lower()  # type: ignore[attr-defined]
    if name.endswith("[]"):
        return f"_{name[:-2]}"
    return UDT_NAMES.get(name, name)


UDT_NAMES = {
    "integer": "int4", "smallint": "int2", "bigint": "int8", "boolean": "bool", "double precision": "float8",
    "float": "float8", "timestamp with time zone": "timestamptz",
}  # fmt: skip


PARTITIONED = """
    drop table durable.journal;
    create table durable.journal (
      run_id uuid not null, task_id uuid not null, pos int not null, epoch int not null, kind text not null,
      name text not null, frame text, body json, ms int, at timestamptz not null,
      primary key (run_id, task_id, pos)) partition by range (run_id);
    create table durable.journal_old partition of durable.journal
      for values from (minvalue) to ('01000000-0000-7000-8000-000000000000');
    create table durable.journal_new partition of durable.journal
      for values from ('01000000-0000-7000-8000-000000000000') to (maxvalue);
"""


def test_a_journal_partitioned_by_run_works_unchanged(durable_dsn: str) -> None:
    """The run id leads the key, so range partitions need no change: records go in, replays read, prune deletes."""
    with Store(durable_dsn) as store:
        store.run(PARTITIONED)
        store.register("order")
        new, old = store.spawn("order"), "00000000-0000-7000-8000-000000000001"
        store.start("order", id=old)
        worker = store.worker()
        for task in worker.claim(2):
            worker.record(task, 0, "step", "charge", {"ok": True})
            worker.end(task)
        assert store.value("select count(*) from durable.journal_old") == 1
        assert store.value("select count(*) from durable.journal_new") == 1
        read = store.value("select durable.read_journal(%s, %s)", new, new)
        assert read == [[0], ["step"], ["charge"], [{"ok": True}]]
        store.run("select * from durable.prune(durable.now() + interval '1 day')")
        assert store.value("select count(*) from durable.journal") == 0
        assert store.value("select count(*) from durable.task") == 0
