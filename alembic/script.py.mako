"""${message}"""

from durable.migrate import run_sql

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}


def upgrade() -> None:
    run_sql("${up_revision}.sql")
