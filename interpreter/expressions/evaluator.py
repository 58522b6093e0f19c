"""The walker's evaluator for languages whose expressions are Jinja templates.

A language derives from `Templates` and says in `resolve` what names mean beyond the ones bound in scope.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from interpreter.errors import ExpressionError, UndefinedName
from interpreter.expressions.compiled import Compiled, Dialect, Rewrite, step_into
from interpreter.expressions.context import NOT_FOUND, Lookup
from interpreter.expressions.limits import Limits
from interpreter.expressions.names import shown
from interpreter.expressions.syntax import is_template
from interpreter.walker.scope import MISSING, Scope

# Texts that mean no when a condition comes out as one.
FALSE_WORDS: Final = frozenset(("", "false", "0", "no", "none", "null"))
Render = Callable[[Scope], Any]
Find = Callable[[Scope], Any]
_KEPT: Final = 50_000
_PLAIN: Final = frozenset((str, int, float, bool, type(None), list, dict))


class Templates:
    """Evaluates values, conditions and collections in a scope; strict about undefined names or not."""

    def __init__(self, *, strict: bool = True, limits: Limits | None = None, rewrite: Rewrite | None = None) -> None:
        self.strict = strict
        self.dialect = Dialect(strict=strict, limits=limits, rewrite=rewrite)
        # By identity: expressions are parts of a plan, and while they are kept here their ids stay theirs.
        self._renders: dict[int, tuple[Any, Render | None]] = {}

    def resolve(self, scope: Scope, name: str) -> Any:
        """What a name means here, or `MISSING`."""
        return scope.lookup(name)

    def finder(self, name: str) -> Find:
        """`resolve` for one name. A language that can look up a name more quickly once it knows it says how."""
        return lambda scope: self.resolve(scope, name)

    def known(self, scope: Scope) -> Iterable[str]:
        """The names an author could have meant."""
        return [*scope.names(), *scope.globals]

    def value(self, expr: Any, scope: Scope) -> Any:
        """The expression with every template in it replaced by its value."""
        kept = self._renders.get(id(expr))
        if kept is None:
            if len(self._renders) >= _KEPT:
                self._renders.clear()
            kept = (expr, self._render_of(expr))
            self._renders[id(expr)] = kept
        render = kept[1]
        return expr if render is None else render(scope)

    def truth(self, expr: Any, scope: Scope) -> bool:
        """Whether a condition holds. Where undefined names are let pass, one that needs them does not."""
        value = expr
        if isinstance(expr, str):
            form = "value" if "{%" in expr else "condition"
            try:
                value = self._evaluate(self.dialect.compile(expr, form), scope)
            except UndefinedName as error:
                if self.strict:
                    raise
                scope.saw(error.name, "undefined")
                return False
        return is_true(value)

    def items(self, expr: Any, scope: Scope) -> list[Any]:
        """The items of a collection: a list as it is, a mapping as pairs, null as none."""
        value = self.value(expr, scope)
        if value is None:
            return []
        if isinstance(value, dict):
            return [{"key": key, "value": part} for key, part in value.items()]
        if isinstance(value, list):
            return value
        raise ExpressionError(f"cannot loop over a {type(value).__name__}: {expr!r}", type="TypeError")

    def _render_of(self, expr: Any) -> Render | None:
        """How to render a structure; `None` if there is nothing to render in it."""
        if isinstance(expr, str):
            return self._render_of_text(expr)
        if isinstance(expr, list | tuple):
            return _rendered(list(expr), self._renders_in(enumerate(expr)))
        if isinstance(expr, dict):
            return _rendered(expr, self._renders_in(expr.items()))
        return None

    def _renders_in(self, parts: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Render]]:
        renders = [(key, self._render_of(part)) for key, part in parts]
        return [(key, render) for key, render in renders if render is not None]

    def _render_of_text(self, source: str) -> Render | None:
        if not is_template(source):
            return None
        compiled = self.dialect.compile(source)
        if compiled.chain is not None:
            return self._render_of_chain(compiled, *compiled.chain)
        return lambda scope: self._lenient(compiled, scope)

    def _render_of_chain(self, compiled: Compiled, head: str | int, *rest: str | int) -> Render:
        """Most templates are a name with attributes: no need for Jinja when all of it is there."""

        find = self.finder(str(head))

        def render(scope: Scope) -> Any:
            value = find(scope)
            for part in rest:
                value = step_into(value, part)
            if scope.seen is None and type(value) in _PLAIN:
                return value
            return self._lenient(compiled, scope)

        return render

    def _lenient(self, compiled: Compiled, scope: Scope) -> Any:
        try:
            return self._evaluate(compiled, scope)
        except UndefinedName:
            if self.strict:
                raise
            return None

    def _evaluate(self, compiled: Compiled, scope: Scope) -> Any:
        lookup = self._lookup(scope)
        if scope.seen is not None:
            _report(compiled, scope, lookup)
        return compiled.evaluate(lookup, lambda: self.known(scope))

    def _lookup(self, scope: Scope) -> Lookup:
        def lookup(name: str) -> Any:
            value = self.resolve(scope, name)
            return NOT_FOUND if value is MISSING else value

        return lookup


def is_true(value: Any) -> bool:
    """Whether a condition that came out as this holds."""
    return value.strip().lower() not in FALSE_WORDS if isinstance(value, str) else bool(value)


def _rendered(expr: Any, renders: list[tuple[Any, Render]]) -> Render | None:
    if not renders:
        return None
    if len(renders) == 1:
        return _rendered_at(expr, *renders[0])

    def render(scope: Scope) -> Any:
        whole = expr.copy()
        for key, part in renders:
            whole[key] = part(scope)
        return whole

    return render


def _rendered_at(expr: Any, key: Any, part: Render) -> Render:
    def render(scope: Scope) -> Any:
        whole = expr.copy()
        whole[key] = part(scope)
        return whole

    return render


def _report(compiled: Compiled, scope: Scope, lookup: Lookup) -> None:
    """Keep what the condition reads with the decision it leads to."""
    for path in compiled.paths:
        value = lookup(str(path[0]))
        for part in path[1:]:
            value = step_into(value, part)
        scope.saw(shown(path), "undefined" if value is NOT_FOUND else value)
