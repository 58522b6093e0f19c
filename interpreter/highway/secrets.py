"""Which secrets a workflow names, and where: only the arguments of tasks may hold them (section 14.3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from highway_dsl import BaseOperator, TaskOperator
from interpreter.errors import TemplateError
from interpreter.expressions import Dialect
from interpreter.expressions.syntax import is_template

_DIALECT = Dialect()


def secret_names(tasks: Iterable[BaseOperator]) -> set[str]:
    """The secrets that the arguments of these tasks name."""
    return {name for task in tasks if isinstance(task, TaskOperator) for name in secrets_in([task.args, task.kwargs])}


def secrets_in(value: Any) -> set[str]:
    """The secrets that the templates of a structure name."""
    return {str(path[1]) for text in _templates(value) for path in _paths(text) if path[0] == "secrets" and path[1:]}


def _templates(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if is_template(value):
            yield value
    elif isinstance(value, dict):
        yield from _templates(list(value.values()))
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _templates(part)


def _paths(text: str) -> list[tuple[str | int, ...]]:
    if "secrets" not in text:  # compiling is slow, and most texts name none
        return []
    try:
        return _DIALECT.compile(text).paths
    except TemplateError:
        return []
