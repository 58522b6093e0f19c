"""Expressions for the languages that write them as Jinja templates.

A text that is one `{{ expression }}` keeps the type of its value; any other text with templates renders to
text; a condition may mix bare names and templates and is one expression over values. Undefined names are
errors that name the nearest known one, or null where a language says so. Nothing is evaluated as code,
nothing can be changed, and every evaluation is bounded and deterministic.

    Templates           the walker's evaluator
    free_names          the names a text needs, for checks before anything runs
    Dialect             compiles and keeps expressions
    Limits              the caps
    expression_function marks a function a language offers
"""

from __future__ import annotations

from interpreter.expressions.compiled import Compiled, Dialect
from interpreter.expressions.evaluator import Templates
from interpreter.expressions.functions import expression_function
from interpreter.expressions.limits import Limits
from interpreter.expressions.needs import condition_names, free_names

__all__ = [
    "Compiled",
    "Dialect",
    "Limits",
    "Templates",
    "condition_names",
    "expression_function",
    "free_names",
]
