"""Schedules, their ticks, backfills, event triggers and alerts."""

from durable.migrate import run_sql

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    run_sql("0003_schedules.sql")
