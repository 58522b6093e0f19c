"""The store: tables, transitions and views."""

from durable.migrate import run_sql

revision = "0001"
down_revision = None


def upgrade() -> None:
    run_sql("0001_store.sql")
