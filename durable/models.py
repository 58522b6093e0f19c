"""The store's tables and views as SQLAlchemy knows them: for definitions and reads, never for transitions.

`sql/` is what makes them; a test compares these columns with the database's own.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Float,
    Integer,
    Interval,
    MetaData,
    SmallInteger,
    Table,
    Text,
    Uuid,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.sql.expression import Executable

metadata = MetaData(schema="durable")

_When = DateTime(timezone=True)


def _table(name: str, /, **columns: Any) -> Table:
    return Table(name, metadata, *(Column(column, kind) for column, kind in columns.items()))


run = _table(
    "run", run_id=Uuid, workflow=Text, queue=Text, state=Text, prio=SmallInteger, tags=ARRAY(Text),
    version=Text, created_at=_When, started_at=_When, finished_at=_When, wake_at=_When, deadline_at=_When,
    stop=Text, cap_key=Text, input=JSON, result=JSON, error=JSON, worker_id=Uuid, lost=SmallInteger,
    parent_run=Uuid,
)  # fmt: skip
branch = _table(
    "branch", run_id=Uuid, task_id=Uuid, parent_id=Uuid, parent_run=Uuid, parent_task=Uuid, workflow=Text,
    queue=Text, state=Text, created_at=_When, started_at=_When, finished_at=_When, wake_at=_When, input=JSON,
    result=JSON, error=JSON, worker_id=Uuid,
)  # fmt: skip
task = _table(
    "task", task_id=Uuid, run_id=Uuid, parent_id=Uuid, parent_run=Uuid, parent_task=Uuid, line=Integer,
    state=Text, prio=SmallInteger, epoch=Integer, wakes=Integer, lost=SmallInteger, lost_alone=SmallInteger,
    ready_at=_When, wake_at=_When, created_at=_When, started_at=_When, finished_at=_When, deadline_at=_When,
    deadline_cancels=Boolean, version=Text, cap_key=Text, caps=ARRAY(Text), cap_scope=ARRAY(Text),
    tags=ARRAY(Text), stop=Text, input=JSON, result=JSON, error=JSON,
)  # fmt: skip
workflow = _table(
    "workflow", name=Text, params=JSON, queue=Text, has_cleanup=Boolean, max_active_runs=Integer, max_running=Integer,
    max_active_per_key=Integer, max_running_per_key=Integer, deadline=Interval, deadline_action=Text,
    registered_at=_When, version=Text,
)  # fmt: skip
version = _table(
    "version", workflow=Text, version=Text, language=Text, source=Text, plan=JSON, deployed_at=_When, deployed_by=Text
)  # fmt: skip
deployment = _table(
    "deployment", workflow=Text, version=Text, language=Text, deployed_at=_When, deployed_by=Text, current=Boolean
)  # fmt: skip
memory = _table("memory", scope=Text, key=Text, value=JSON, updated_at=_When)
secret = _table("secret", name=Text, body=Text, updated_at=_When, updated_by=Text)
secret_access = _table(
    "secret_access", id=Uuid, at=_When, name=Text, provider=Text, who=Text, run_id=Uuid, task_id=Uuid, step=Text,
    attempt=Integer,
)  # fmt: skip
line = _table("line", line=Integer, queue=Text, workflow=Text)
journal = _table(
    "journal", run_id=Uuid, task_id=Uuid, pos=Integer, epoch=Integer, kind=Text, name=Text, frame=Text, body=JSON,
    ms=Integer, at=_When,
)  # fmt: skip
value = _table("value", run_id=Uuid, hash=Text, body=JSON)
wait = _table(
    "wait", run_id=Uuid, task_id=Uuid, key=Text, name=Text, step=Text, since=_When, timeout_at=_When, mode=Text,
    child_first=Uuid, child_last=Uuid, children=ARRAY(Uuid), outcome=JSON,
)  # fmt: skip
event = _table("event", name=Text, event_id=Uuid, payload=JSON, emitted_at=_When, run_id=Uuid)
log = _table(
    "log", run_id=Uuid, task_id=Uuid, id=Uuid, at=_When, level=Text, step=Text, message=Text, fields=JSON
)  # fmt: skip
progress = _table("progress", run_id=Uuid, task_id=Uuid, done=Float, total=Float, note=Text, at=_When)
worker = _table("worker", worker_id=Uuid, beat=BigInteger, started_at=_When, info=JSON)

_DIALECT = postgresql.psycopg.dialect()  # type: ignore[no-untyped-call]  # SQLAlchemy leaves it untyped


def compiled(statement: Executable) -> tuple[str, dict[str, Any]]:
    """A SQLAlchemy statement as text and parameters that psycopg understands."""
    # Every statement that we build can be compiled; `Executable` leaves it out of its type.
    result = statement.compile(dialect=_DIALECT)  # type: ignore[attr-defined]
    return str(result), dict(result.params)
