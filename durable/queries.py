"""What a client asks of the store, built with SQLAlchemy.

Imported when a client first looks at something: workers and short commands start without SQLAlchemy.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Select, and_, func, or_, select

from durable import models
from durable.runs import BranchInfo, ProgressInfo


def run_query(run_id: UUID) -> Select[Any]:
    return select(models.run).where(models.run.c.run_id == run_id)


def runs_query(
    *,
    state: str | None = None,
    workflow: str | None = None,
    tag: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    before: str | None = None,
    parent: str | None = None,
    limit: int = 50,
) -> Select[Any]:
    """The newest runs that fit. Ids are ordered by time, so `before` pages on and nothing is counted."""
    run = models.run
    query = select(run).order_by(run.c.run_id.desc()).limit(limit)
    if state is not None:
        query = query.where(run.c.state == state)
        if state in ("failed", "cancelled"):
            # Says it in the words of the index that holds only troubled runs.
            query = query.where(run.c.error.is_not(None))
    if workflow is not None:
        query = query.where(run.c.workflow == workflow)
    if tag is not None:
        query = query.where(run.c.tags.contains([tag]))
    if since is not None:
        query = query.where(run.c.created_at >= since)
    if until is not None:
        query = query.where(run.c.created_at < until)
    if parent is not None:
        query = query.where(run.c.parent_run == UUID(parent))
    if before is not None:
        query = query.where(run.c.run_id < UUID(before))
    return query


def steps_query(run_id: str) -> Select[Any]:
    table = models.journal
    columns = [table.c[name] for name in ("task_id", "pos", "kind", "name", "body", "ms", "at")]
    return select(*columns).where(table.c.run_id == UUID(run_id)).order_by(table.c.at, table.c.task_id, table.c.pos)


def waits_query(run_id: str) -> Select[Any]:
    table = models.wait
    columns = [table.c[name] for name in ("task_id", "key", "name", "timeout_at", "outcome")]
    return select(*columns).where(table.c.run_id == UUID(run_id)).order_by(table.c.key)


def branches_query(run_id: str) -> Select[Any]:
    table = models.branch
    columns = [table.c[name] for name in BranchInfo.model_fields if name != "parent_id"]
    parent = func.coalesce(table.c.parent_id, table.c.parent_task).label("parent_id")
    # In the words of the indexes of tasks below a run, and of runs that one started.
    own = UUID(run_id)
    below = or_(and_(table.c.run_id == own, table.c.parent_id.is_not(None)), table.c.parent_run == own)
    return select(parent, *columns).where(below).order_by(table.c.task_id)


def progress_query(run_id: str) -> Select[Any]:
    table = models.progress
    columns = [table.c[name] for name in ProgressInfo.model_fields]
    return select(*columns).where(table.c.run_id == UUID(run_id)).order_by(table.c.task_id)


def logs_query(run_id: str) -> Select[Any]:
    table = models.log
    columns = [table.c[name] for name in ("task_id", "at", "level", "step", "message", "fields")]
    return select(*columns).where(table.c.run_id == UUID(run_id)).order_by(table.c.at, table.c.id)


def versions_query(workflow: str | None) -> Select[Any]:
    """The versions of one workflow or all, newest first."""
    table = models.deployment
    query = select(table).order_by(table.c.workflow, table.c.deployed_at.desc())
    return query if workflow is None else query.where(table.c.workflow == workflow)
