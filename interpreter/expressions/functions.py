"""The functions, filters and tests an expression may use. What is not listed here does not exist."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from jinja2 import Undefined, pass_context
from jinja2.filters import FILTERS as DEFAULT_FILTERS
from jinja2.tests import TESTS as DEFAULT_TESTS

from interpreter.errors import ExpressionError, LimitExceeded
from interpreter.expressions.context import ScopeContext
from interpreter.expressions.limits import extent

F = TypeVar("F", bound=Callable[..., Any])


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Left out on purpose: random (not deterministic), attr (reaches attributes by name), and those that pad to
# any width an author names (center, indent, wordwrap, format, batch, slice).
_KEPT_FILTERS: Final = _words("""
    abs capitalize count d default dictsort e escape first float groupby int items last length list lower map
    max min reject rejectattr reverse round select selectattr sort sum title trim truncate unique upper
    urlencode wordcount
""")
# Some filters do not look at the items at all, some call a function for each.
_ITEMS_PER_STEP: Final = {
    **dict.fromkeys(_words("count d default first float int last length round"), sys.maxsize),
    **dict.fromkeys(_words("dictsort groupby map max min reject rejectattr select selectattr sort sum unique"), 4),
}
_KEPT_TESTS: Final = _words("""
    boolean defined divisibleby eq equalto even false float ge gt greaterthan in integer iterable le lessthan
    lower lt mapping ne none number odd sequence string true undefined upper == != > >= < <=
""")
METHODS: Final[dict[type, frozenset[str]]] = {
    str: _words("""
        capitalize casefold count endswith find index isalnum isalpha isdigit islower isnumeric isspace
        isupper join lower lstrip partition removeprefix removesuffix replace rfind rpartition rsplit rstrip
        split splitlines startswith strip swapcase title upper
    """),
    dict: _words("get items keys values"),
    list: _words("count index"),
    tuple: _words("count index"),
}


def expression_function(function: F) -> F:
    """Mark a function a language offers to its expressions. It must be deterministic."""
    # A mark on a function: its type has no such attribute.
    function.is_expression_function = True  # type: ignore[attr-defined]
    return function


@expression_function
@pass_context
def bounded_range(context: ScopeContext, *args: int) -> list[int]:
    """`range`, as the list of its values."""
    numbers = range(*args)
    limit = context.meter.limits.range
    if len(numbers) > limit:
        raise LimitExceeded(f"range of {len(numbers)} is over the limit of {limit}")
    context.meter.make(len(numbers))
    return list(numbers)


@expression_function
@pass_context
def text(context: ScopeContext, value: Any = "") -> str:
    """`str`, of values of bounded size."""
    context.meter.make_text(value)
    return str(value)


def _pure(function: Callable[..., Any]) -> Callable[..., Any]:
    @expression_function
    def call(*args: Any, **kwargs: Any) -> Any:
        value = function(*args, **kwargs)
        return list(value) if function in (enumerate, zip, reversed) else value

    return call


FUNCTIONS: Final[dict[str, Any]] = {
    "range": bounded_range,
    "str": text,
    **{
        function.__name__: _pure(function)
        for function in (len, abs, min, max, sum, round, int, float, bool, list, dict, sorted, any, all)
    },
    **{function.__name__: _pure(function) for function in (enumerate, zip, reversed)},
}


@pass_context
def metered(context: ScopeContext, items: Iterable[Any]) -> Iterable[Any]:
    """Every loop of a template runs through this."""
    for item in items:
        context.meter.tick()
        yield item


@pass_context
def joined(context: ScopeContext, parts: Iterable[Any], separator: str = "", attribute: Any = None) -> str:
    """`join` that looks at the size before it makes the text."""
    items = list(parts)
    if attribute is not None:
        items = [context.environment.getitem(item, attribute) for item in items]
    context.meter.make_text(items)
    context.meter.make(len(separator) * len(items))
    return separator.join(_shown(item) for item in items)


def _shown(value: Any) -> str:
    shown = finalize(value)
    return str(shown)


@pass_context
def replaced(context: ScopeContext, value: Any, old: str, new: str, count: int = -1) -> str:
    """`replace` that looks at the size before it makes the text."""
    source = str(value)
    check_replace(context, source, old, new)
    return source.replace(old, new, count)


def check_replace(context: ScopeContext, source: str, old: str, new: str) -> None:
    hits = source.count(old) if old else len(source) + 1
    context.meter.make(len(source) + hits * len(new))


@pass_context
def to_json(context: ScopeContext, value: Any, indent: int | None = None) -> str:
    """JSON text, without the escapes for HTML that Jinja's own filter adds."""
    if isinstance(value, Undefined):
        str(value)  # A strict undefined says here what is missing.
    context.meter.make_text(value)
    if indent is not None and not 0 <= indent <= 8:
        raise ExpressionError("tojson indents by 0 to 8", type="ValueError")
    return json.dumps(value, indent=indent, ensure_ascii=False)


def from_json(value: str) -> Any:
    """The value a JSON text describes."""
    try:
        return json.loads(value)
    except ValueError as error:
        raise ExpressionError(f"not JSON: {error}", type="ValueError") from None


def finalize(value: Any) -> Any:
    """What an embedded value looks like in text: structures are written as JSON."""
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, ensure_ascii=False, default=str)
    return value


def _counted(name: str, function: Any) -> Callable[..., Any]:
    """A filter of Jinja's that counts what it goes through, by what that costs."""
    share = _ITEMS_PER_STEP.get(name, 64)
    wants = getattr(getattr(function, "jinja_pass_arg", None), "name", None)

    @pass_context
    def call(context: ScopeContext, value: Any, *args: Any, **kwargs: Any) -> Any:
        context.meter.tick(1 + extent(value) // share)
        first = {"context": context, "eval_context": context.eval_ctx, "environment": context.environment}
        return function(*([first[wants]] if wants else []), value, *args, **kwargs)

    return call


FILTERS: Final[dict[str, Any]] = {
    **{name: _counted(name, DEFAULT_FILTERS[name]) for name in _KEPT_FILTERS},
    "join": joined,
    "replace": replaced,
    "string": text,
    "tojson": to_json,
    "to_json": to_json,
    "fromjson": from_json,
    "from_json": from_json,
    "_metered": metered,
}
# Authors who think in Python write `is None` and `is not True`.
TESTS: Final[dict[str, Any]] = {
    **{name: DEFAULT_TESTS[name] for name in _KEPT_TESTS},
    "None": DEFAULT_TESTS["none"],
    "null": DEFAULT_TESTS["none"],
    "True": DEFAULT_TESTS["true"],
    "False": DEFAULT_TESTS["false"],
}
