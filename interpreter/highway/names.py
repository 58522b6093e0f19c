"""How Highway's namespaces share one scope: outputs of tasks and loop variables stand under names no author can
write, so that result keys, task ids, loop variables and workflow variables never overwrite each other."""

from __future__ import annotations

from typing import Final

ITEM: Final = "item"
ITEM_NAME: Final = "loop:item"
_TASK: Final = "task:"
# Between a task's id and the part of it that is asked for; a letter to Python, and on no keyboard.
PART: Final = "·"
PARTS: Final = ("output", "payload")
RESERVED: Final = frozenset(("inputs", "run", "ds", "ds_date", "secrets"))
CAUSE: Final = frozenset(("failed_task_id", "error_message"))
PREFIXES: Final = frozenset(("variables", "results", "memory"))


def output_name(task_id: str) -> str:
    """The name a task's output is bound to."""
    return _TASK + task_id


def shown(name: str) -> str:
    """A name of the scope as an author would write it."""
    return ITEM if name == ITEM_NAME else name.removeprefix(_TASK)


def end_of(node: str) -> str:
    """The id of the end of a two-phase operator."""
    return f"{node}.end"


def task_of(node: str) -> str:
    """The task a node stands for: starts, ends and clones of handlers are the task's own."""
    return node.partition("@")[0].removesuffix(".end")
