"""What a text, a condition or a whole structure needs to be there before it can be evaluated."""

from __future__ import annotations

from typing import Any, Final

from interpreter.expressions.compiled import Dialect
from interpreter.expressions.syntax import is_template

_DIALECT: Final = Dialect()


def free_names(expr: Any) -> frozenset[str]:
    """The names the templates in a text or structure take from outside. Raises `TemplateError`."""
    if isinstance(expr, str):
        return _DIALECT.compile(expr).names if is_template(expr) else frozenset()
    if isinstance(expr, dict):
        return free_names(list(expr.values()))
    if isinstance(expr, list | tuple):
        return frozenset().union(*(free_names(part) for part in expr))
    return frozenset()


def condition_names(condition: Any) -> frozenset[str]:
    """The names a condition takes from outside, bare ones included. Raises `TemplateError`."""
    if not isinstance(condition, str):
        return frozenset()
    return _DIALECT.compile(condition, "value" if "{%" in condition else "condition").names
