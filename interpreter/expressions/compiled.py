"""A compiled expression: made once from its text, evaluated on any names, always with the same caps."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Final, Literal

from jinja2 import TemplateError as JinjaError
from jinja2 import TemplateSyntaxError, Undefined, nodes
from markupsafe import Markup

from interpreter.errors import ExpressionError, Place, TemplateError, UndefinedName
from interpreter.expressions.context import NOT_FOUND, Lookup, ScopeContext
from interpreter.expressions.limits import Limits, Meter
from interpreter.expressions.names import Path, chain_of, free_names, nearest, paths
from interpreter.expressions.sandbox import MissingValue, Sandbox
from interpreter.expressions.syntax import parse_condition, parse_template, parse_whole, replace_nodes

Known = Callable[[], Iterable[str]]
Form = Literal["value", "condition"]
# What a language makes of a node of the tree, or `None` to leave it.
Rewrite = Callable[[nodes.Node], nodes.Node | None]
_RESULT: Final = "result"
_BROKEN: Final = (
    JinjaError,
    TypeError,
    ValueError,
    ArithmeticError,
    LookupError,
    AttributeError,
    RecursionError,
)


def _no_names() -> Iterable[str]:
    return ()


class Compiled:
    """One expression or text template. `names` are the free ones, `paths` what it reads of them."""

    __slots__ = ("_render", "_sandbox", "_whole", "chain", "names", "paths", "source")

    def __init__(self, sandbox: Sandbox, source: str, form: Form, rewrite: Rewrite | None = None) -> None:
        self.source = source
        self._sandbox = sandbox
        expression = parse_condition(sandbox, source) if form == "condition" else parse_whole(sandbox, source)
        tree: nodes.Node = expression if expression is not None else parse_template(sandbox, source)
        tree = _bounded(tree if rewrite is None else replace_nodes(tree, rewrite))
        tree.set_environment(sandbox)
        self._whole = expression is not None
        chain = chain_of(tree)
        try:
            self.names = free_names(tree)
            self.paths: list[Path] = paths(tree)
            self._render = sandbox.from_string(_program(tree)).root_render_func
        except TemplateSyntaxError as error:
            # Only now does Jinja look for filters and tests by name.
            raise TemplateError(f"{error.message} in {source!r}", place=Place(line=error.lineno)) from None
        self.chain = chain if chain is not None and chain[0] in self.names else None

    def evaluate(self, lookup: Lookup, known: Known = _no_names) -> Any:
        """The value, with its type if the text is one expression, else as text."""
        if self.chain is not None:
            value = _follow(self.chain, lookup)
            if value is not NOT_FOUND:
                return value
        try:
            return self._run(lookup)
        except ExpressionError:
            raise
        except MissingValue as missing:
            raise _undefined(missing, self.source, known) from None
        except _BROKEN as error:
            raise ExpressionError(f"{error} in {self.source!r}", type=type(error).__name__) from None

    def _run(self, lookup: Lookup) -> Any:
        sandbox = self._sandbox
        context = ScopeContext(sandbox, sandbox.globals, None, {})
        context.lookup = lookup
        context.meter = Meter(sandbox.limits)
        text = _gathered(self._render(context), context.meter)
        return plain(context.vars[_RESULT], context.meter) if self._whole else text


def _gathered(chunks: Iterable[str], meter: Meter) -> str:
    parts, size = [], 0
    for chunk in chunks:
        size += len(chunk)
        meter.check_size(size)
        parts.append(chunk)
    return "".join(parts)


def _follow(chain: Path, lookup: Lookup) -> Any:
    """The quick way for a name with attributes: dicts and lists only, anything else takes the long way."""
    value = lookup(str(chain[0]))
    for part in chain[1:]:
        value = step_into(value, part)
    return value if value is None or isinstance(value, str | int | float | list | dict) else NOT_FOUND


def step_into(value: Any, part: str | int) -> Any:
    """An item of a dict or list, or `NOT_FOUND`."""
    if isinstance(value, dict):
        return value.get(part, NOT_FOUND)
    if isinstance(value, list) and isinstance(part, int) and -len(value) <= part < len(value):
        return value[part]
    return NOT_FOUND


def _bounded(tree: nodes.Node) -> nodes.Node:
    """Loops and concatenations go through filters that count; `null` is none."""

    def change(node: nodes.Node) -> nodes.Node | None:
        if isinstance(node, nodes.Name) and node.name == "null" and node.ctx == "load":
            return nodes.Const(None, lineno=node.lineno)
        if isinstance(node, nodes.Concat):
            parts = nodes.List([replace_nodes(part, change) for part in node.nodes], lineno=node.lineno)
            return nodes.Filter(parts, "join", [], [], None, None, lineno=node.lineno)
        if isinstance(node, nodes.For):
            node.iter = nodes.Filter(node.iter, "_metered", [], [], None, None, lineno=node.lineno)
        return None

    return replace_nodes(tree, change)


def _program(tree: nodes.Node) -> nodes.Template:
    if isinstance(tree, nodes.Template):
        return tree
    name = nodes.Name(_RESULT, "store", lineno=1)
    return nodes.Template([nodes.Assign(name, tree, lineno=1)], lineno=1)


def _undefined(missing: MissingValue, source: str, known: Known) -> UndefinedName:
    name = missing.name or "?"
    inside = isinstance(missing.owner, dict)
    candidates = sorted(str(key) for key in (missing.owner if inside else known()))
    near = nearest(name, candidates)
    message = f"{name!r} is not there" if inside else f"{name!r} is undefined"
    hint = f"; did you mean {near!r}?" if near else ""
    return UndefinedName(f"{message} in {source!r}{hint}", name=name, nearest=near)


def plain(value: Any, meter: Meter) -> Any:
    """The value as JSON knows it; what JSON does not know is refused."""
    if isinstance(value, Undefined):
        # A strict one raises here; a lenient one is null.
        str(value)
        return None
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return str(value) if isinstance(value, Markup) else value
    meter.make_text(value)
    return _plain_series(value, meter)


def _plain_series(value: Any, meter: Meter) -> Any:
    if isinstance(value, dict):
        return {str(key): plain(part, meter) for key, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset | range | types.GeneratorType) or _is_view(value):
        parts = []
        for part in value:
            meter.tick()
            parts.append(plain(part, meter))
        return parts
    raise ExpressionError(f"a {type(value).__name__} is not a value", type="TypeError")


def _is_view(value: Any) -> bool:
    return isinstance(value, type({}.keys()) | type({}.values()) | type({}.items()) | map | filter | zip)


class Dialect:
    """Compiles expressions of one strictness and keeps them."""

    def __init__(
        self,
        *,
        strict: bool = True,
        limits: Limits | None = None,
        keep: int = 4096,
        rewrite: Rewrite | None = None,
    ) -> None:
        self.strict = strict
        self.rewrite = rewrite
        self.sandbox = Sandbox(strict=strict, limits=limits or Limits())
        self.compile = lru_cache(maxsize=keep)(self._compile)

    def _compile(self, source: str, form: Form = "value") -> Compiled:
        return Compiled(self.sandbox, source, form, self.rewrite)
