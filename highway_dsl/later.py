"""What documents of later versions look like, brought into the form of 1.1.0.

From 2.0.2 on the tasks of a parallel's branches are no longer among the workflow's, but in workflows of
their own inside the operator (`branch_workflows`). They are put back where 1.1.0 has them.
"""

from __future__ import annotations

from typing import Any

# Fields that later versions write into every operator and that nothing needs.
IGNORED = frozenset(("is_internal_loop_task", "is_internal_parallel_task", "branch_workflows"))


def flattened(data: Any) -> Any:
    """`data` with the tasks of nested branch workflows among its own."""
    if not isinstance(data, dict) or not isinstance(data.get("tasks"), dict):
        return data
    inner: dict[str, Any] = {}
    for key, body in data["tasks"].items():
        inner.update(_branch_tasks(key, body))
    return {**data, "tasks": {**inner, **data["tasks"]}} if inner else data


def _branch_tasks(key: str, body: Any) -> dict[str, Any]:
    branches = body.get("branch_workflows") if isinstance(body, dict) else None
    found: dict[str, Any] = {}
    for branch in branches.values() if isinstance(branches, dict) else ():
        tasks = flattened(branch).get("tasks") if isinstance(branch, dict) else None
        for task_id, task in tasks.items() if isinstance(tasks, dict) else ():
            found[task_id] = _after(key, task)
    return found


def _after(parallel: str, task: Any) -> Any:
    if not isinstance(task, dict) or task.get("is_internal_loop_task"):
        return task
    named = task.get("dependencies", [])
    if not isinstance(named, list) or parallel in named:
        return task
    return {**task, "dependencies": [*named, parallel]}
