"""From text to a syntax tree: what kind of template a text is, and conditions that mix names and templates.

A condition such as `{{a.b}} > 0.8` is one expression over values. Each `{{...}}` is parsed on its own and
takes its place as a node of the tree: text is never put into text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from jinja2 import Environment, TemplateSyntaxError, nodes
from jinja2.parser import Parser

from interpreter.errors import Place, TemplateError

N = TypeVar("N", bound=nodes.Node)

_REFUSED: Final = (
    nodes.Include,
    nodes.Import,
    nodes.FromImport,
    nodes.Extends,
    nodes.Block,
    nodes.Macro,
    nodes.CallBlock,
    nodes.FilterBlock,
    nodes.AssignBlock,
)
_TEMPLATE: Final = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
# A quoted text (with escapes), a template, or anything else: the pieces of a condition.
_PIECE: Final = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|\{\{.*?\}\}""", re.DOTALL)
_HOLE: Final = "_hole_"


def is_template(source: str) -> bool:
    """Whether a text holds any template at all."""
    return "{{" in source or "{%" in source or "{#" in source


def parse_template(environment: Environment, source: str) -> nodes.Template:
    """The tree of a text with templates in it."""
    return _tree(source, environment.parse)


def parse_whole(environment: Environment, source: str) -> nodes.Expr | None:
    """The expression of a text that is one `{{ expression }}` with blanks around it at most."""
    return _single(_tree(source.strip(), environment.parse))


def _single(tree: nodes.Template) -> nodes.Expr | None:
    if len(tree.body) != 1 or not isinstance(tree.body[0], nodes.Output):
        return None
    parts = tree.body[0].nodes
    return parts[0] if len(parts) == 1 and not isinstance(parts[0], nodes.TemplateData) else None


def parse_condition(environment: Environment, source: str) -> nodes.Expr:
    """The one expression a condition is: bare names, templates and quoted templates in any mix."""
    if _HOLE in source:
        raise TemplateError(f"{_HOLE!r} cannot be part of a condition: {source!r}")
    holes: list[nodes.Expr] = []

    def hole(match: re.Match[str]) -> str:
        piece = match.group()
        if piece[0] in "'\"" and "{{" not in piece:
            return piece
        holes.append(_interpolated(environment, piece) if piece[0] in "'\"" else _inner(environment, piece))
        return f" {_HOLE}{len(holes) - 1} "

    outline = _PIECE.sub(hole, source)
    tree = _tree(outline, lambda text: _parse_expression(environment, text), shown=source)
    return _filled(tree, holes)


def _inner(environment: Environment, piece: str) -> nodes.Expr:
    inside = piece[2:-2].removeprefix("-").removesuffix("-")
    return _tree(inside, lambda text: _parse_expression(environment, text), shown=piece)


def _interpolated(environment: Environment, piece: str) -> nodes.Expr:
    """A quoted text with templates in it is that text with their values, and stays a text."""
    parts: list[nodes.Expr] = []
    at, body = 0, piece[1:-1]
    for match in _TEMPLATE.finditer(body):
        parts.append(nodes.Const(body[at : match.start()]))
        parts.append(_inner(environment, match.group()))
        at = match.end()
    parts.append(nodes.Const(body[at:]))
    return nodes.Concat(parts, lineno=1)


def _parse_expression(environment: Environment, text: str) -> nodes.Expr:
    parser = Parser(environment, text, state="variable")
    expression = parser.parse_expression()
    if not parser.stream.eos:
        raise TemplateSyntaxError("something follows the expression", parser.stream.current.lineno)
    return expression


def _filled(tree: nodes.Expr, holes: list[nodes.Expr]) -> nodes.Expr:
    def fill(node: nodes.Node) -> nodes.Node | None:
        if isinstance(node, nodes.Name) and node.name.startswith(_HOLE):
            return holes[int(node.name.removeprefix(_HOLE))]
        return None

    return replace_nodes(tree, fill)


def _tree(source: str, parse: Callable[[str], N], shown: str | None = None) -> N:
    try:
        tree = parse(source)
    except TemplateSyntaxError as error:
        message = f"{error.message} in {shown or source!r}"
        raise TemplateError(message, place=Place(line=error.lineno)) from None
    except RecursionError:
        raise TemplateError(f"nested too deeply: {(shown or source)[:60]!r}") from None
    _refuse(tree, shown or source)
    return tree


def _refuse(tree: nodes.Node, source: str) -> None:
    for node in _all(tree):
        if isinstance(node, _REFUSED) or (isinstance(node, nodes.For) and node.recursive):
            kind = type(node).__name__.lower()
            raise TemplateError(f"{kind!r} is not allowed in {source!r}", place=Place(line=node.lineno))


def _all(tree: nodes.Node) -> Iterator[nodes.Node]:
    todo = [tree]
    while todo:
        node = todo.pop()
        yield node
        todo.extend(node.iter_child_nodes())


def replace_nodes(tree: N, change: Callable[[nodes.Node], nodes.Node | None]) -> N:
    """The tree with some nodes replaced; a node that was replaced is not looked into."""
    changed = change(tree)
    if changed is not None:
        # `change` gives back a node of the kind that it was given.
        return changed  # type: ignore[return-value]
    for name, field in tree.iter_fields():
        if isinstance(field, nodes.Node):
            setattr(tree, name, replace_nodes(field, change))
        elif isinstance(field, list):
            parts = [replace_nodes(part, change) if isinstance(part, nodes.Node) else part for part in field]
            setattr(tree, name, parts)
    return tree
