"""Migrations: install the store into an empty database, or bring an older one up to date."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from durable.errors import StoreUnavailable
from durable.link import explain_unreachable

if TYPE_CHECKING:
    from alembic.config import Config

# The version that this program works with; a test compares it with the newest migration.
HEAD = "0003"

# One migrator at a time, whoever starts it.
_LOCK = 1146442306


def folder(name: str) -> Path:
    """`sql` or `alembic`: inside the installed package, or beside it in a checkout."""
    packaged = Path(__file__).parent / f"_{name}"
    return packaged if packaged.is_dir() else Path(__file__).parent.parent / name


def migrate(dsn: str, revision: str = "head") -> None:
    """Upgrade the store in this database; does nothing when it is up to date."""
    # Imported here: most commands never migrate, and Alembic brings SQLAlchemy along.
    from alembic import command

    try:
        with psycopg.connect(dsn, autocommit=True, application_name="durable-migrate") as guard:
            guard.execute("select pg_advisory_lock(%s)", (_LOCK,))
            command.upgrade(_config(dsn), revision)
    except psycopg.OperationalError as exc:
        raise StoreUnavailable(explain_unreachable(dsn, exc)) from exc


def _config(dsn: str) -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(folder("alembic")).replace("%", "%%"))
    config.attributes["dsn"] = dsn
    return config


def run_sql(name: str) -> None:
    """Run a migration's SQL file, in the migration's transaction. Called by the migrations themselves."""
    from alembic import op

    text = (folder("alembic") / "versions" / name).read_text()
    driver = op.get_bind().connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    driver.execute(text.encode())
