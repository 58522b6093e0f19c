"""Versions of deployed workflows, their memory and their secrets."""

from durable.migrate import run_sql

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    run_sql("0002_versions.sql")
