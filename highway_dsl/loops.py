"""Loop bodies: written inline in the loop, and flat among the workflow's tasks.

The builder makes both with the same objects; a document has two copies. They are made one again, so that
a change to a task is a change to the loop that runs it.
"""

from __future__ import annotations

from collections.abc import Mapping

from highway_dsl.graph import walk
from highway_dsl.operators import BaseOperator, ForEachOperator, WhileOperator


def link_bodies(tasks: Mapping[str, BaseOperator]) -> None:
    """Mark the flat copies of a body's tasks as internal, and let equal copies be one object."""
    shared: dict[str, BaseOperator] = dict(tasks)
    for task, chain in walk(tasks.values()):
        if chain and task.task_id in tasks:
            tasks[task.task_id].is_internal_loop_task = True
    for task in tasks.values():
        _link(task, shared)


def _link(task: BaseOperator, shared: dict[str, BaseOperator]) -> None:
    if not isinstance(task, ForEachOperator | WhileOperator):
        return
    for index, inner in enumerate(task.loop_body):
        _link(inner, shared)
        twin = shared.setdefault(inner.task_id, inner)
        if twin is not inner and twin == inner:
            task.loop_body[index] = twin
