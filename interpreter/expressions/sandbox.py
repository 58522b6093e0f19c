"""The environment expressions run in: nothing can be changed, reached by name, or made without bound."""

from __future__ import annotations

from typing import Any

from jinja2 import ChainableUndefined, StrictUndefined, Undefined, UndefinedError, pass_context
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import missing

from interpreter.errors import LimitExceeded
from interpreter.expressions.context import ScopeContext
from interpreter.expressions.functions import FILTERS, FUNCTIONS, METHODS, TESTS, check_replace, finalize
from interpreter.expressions.limits import Limits, Meter, extent, weight


class MissingValue(UndefinedError):
    """Something undefined was used; remembers what."""

    def __init__(self, message: str | None, name: str | None, owner: Any) -> None:
        super().__init__(message)
        self.name = name
        self.owner = owner


class Absent(StrictUndefined):
    """An undefined that fails when it is used."""

    __slots__ = ()

    def __init__(self, hint: Any = None, obj: Any = missing, name: Any = None, exc: Any = None) -> None:
        super().__init__(hint, obj, name, exc or _raiser(name, obj))


class Null(ChainableUndefined):
    """An undefined whose attributes are undefined, too, and that shows as nothing."""

    __slots__ = ()

    def __init__(self, hint: Any = None, obj: Any = missing, name: Any = None, exc: Any = None) -> None:
        super().__init__(hint, obj, name, exc or _raiser(name, obj))


def _raiser(name: Any, owner: Any) -> Any:
    def build(message: str | None = None) -> MissingValue:
        return MissingValue(message, str(name), owner)

    return build


class Sandbox(ImmutableSandboxedEnvironment):
    """Jinja without what an expression over values has no need of."""

    intercepted_binops = frozenset(("+", "*", "**", "%"))
    context_class = ScopeContext

    def __init__(self, *, strict: bool, limits: Limits) -> None:
        super().__init__(undefined=Absent if strict else Null, finalize=_shown, cache_size=0)
        self.limits = limits
        self.globals = dict(FUNCTIONS)
        self.filters = dict(FILTERS)
        self.tests = dict(TESTS)

    def getattr(self, obj: Any, attribute: str) -> Any:
        # Data first: `order.items` is the list of items, not the method of the dict that holds it.
        if isinstance(obj, dict) and attribute in obj:
            return obj[attribute]
        if isinstance(obj, Undefined) and not attribute.startswith("_"):
            return getattr(obj, attribute)
        if self.is_safe_attribute(obj, attribute, None):
            return getattr(obj, attribute)
        if attribute.startswith("_") or hasattr(obj, attribute):
            raise SecurityError(f"{attribute!r} of a {type(obj).__name__} is out of reach")
        return self.undefined(obj=obj, name=attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        if isinstance(obj, Undefined):
            return obj[argument]
        try:
            return obj[argument]
        except (TypeError, LookupError):
            if isinstance(argument, str):
                return self.getattr(obj, argument)
            return self.undefined(obj=obj, name=argument)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if attr.startswith("_"):
            return False
        # A language may hand in views of its own; they say what of them can be seen.
        exposed = getattr(type(obj), "exposed", None)
        return attr in (METHODS.get(type(obj), ()) if exposed is None else exposed)

    def is_safe_callable(self, obj: Any) -> bool:
        if getattr(obj, "is_expression_function", False):
            return True
        owner, name = getattr(obj, "__self__", None), getattr(obj, "__name__", "")
        return owner is not None and self.is_safe_attribute(owner, name, obj)

    def call(self, context: Any, obj: Any, *args: Any, **kwargs: Any) -> Any:
        meter: Meter = context.meter
        owner = getattr(obj, "__self__", None)
        meter.make(extent(owner) + sum(extent(arg) for arg in args))
        if isinstance(owner, str) and obj.__name__ == "replace" and len(args) > 1:
            check_replace(context, owner, *args[:2])
        elif isinstance(owner, str) and obj.__name__ == "join" and args:
            meter.make_text(args[0])
            meter.make(len(owner) * extent(args[0]))
        return super().call(context, obj, *args, **kwargs)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        meter: Meter = context.meter
        _check_operands(meter, operator, left, right)
        return super().call_binop(context, operator, left, right)


def _check_operands(meter: Meter, operator: str, left: Any, right: Any) -> None:
    """Look at the size of a result before it is made."""
    if operator == "%" and isinstance(left, str):
        raise SecurityError("text cannot be formatted with %")
    if operator == "+" and isinstance(left, str | list | tuple) and isinstance(right, str | list | tuple):
        meter.make(len(left) + len(right))
    elif operator == "*":
        _check_product(meter, left, right)
    elif operator == "**" and isinstance(left, int) and isinstance(right, int):
        _check_bits(meter, left.bit_length() * max(right, 1))


def _check_product(meter: Meter, left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int):
        _check_bits(meter, left.bit_length() + right.bit_length())
        return
    series, times = (right, left) if isinstance(left, int) else (left, right)
    if isinstance(series, str | list | tuple) and isinstance(times, int):
        one = len(series) if isinstance(series, str) else weight(series, meter.limits.size)
        meter.make(one * max(times, 0))


def _check_bits(meter: Meter, bits: int) -> None:
    if bits > meter.limits.bits:
        raise LimitExceeded(f"the expression made a number of more than {meter.limits.bits} bits")


@pass_context
def _shown(context: ScopeContext, value: Any) -> Any:
    if isinstance(value, dict | list | tuple):
        context.meter.make_text(value)
    return finalize(value)
