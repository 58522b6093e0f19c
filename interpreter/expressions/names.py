"""Static reading of expressions: which names they need, for checks at deploy time and for `why`."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from jinja2 import meta, nodes

from interpreter.expressions.functions import FUNCTIONS

Path = tuple[str | int, ...]


def free_names(tree: nodes.Node) -> frozenset[str]:
    """The names a tree takes from outside, functions left out."""
    whole = tree if isinstance(tree, nodes.Template) else _around(tree)
    return frozenset(meta.find_undeclared_variables(whole) - FUNCTIONS.keys())


def _around(tree: nodes.Node) -> nodes.Template:
    template = nodes.Template([nodes.Output([tree], lineno=1)], lineno=1)
    # A parsed tree always has its environment; the type allows for one that does not.
    template.set_environment(tree.environment)  # type: ignore[arg-type]
    return template


def paths(tree: nodes.Node) -> list[Path]:
    """The longest chains of attributes and constant items the tree reads, such as a.b[0], in order."""
    free = free_names(tree)
    return [path for path in dict.fromkeys(_chains(tree)) if path[0] in free]


def _chains(node: nodes.Node) -> Iterator[Path]:
    chain = chain_of(node)
    if chain is not None:
        yield chain
        return
    if isinstance(node, nodes.Call) and chain_of(node.node) is not None:
        # The last part of what is called is a method, not a value.
        called = chain_of(node.node)
        if called is not None and len(called) > 1:
            yield called[:-1]
        rest = [*node.args, *node.kwargs]
    else:
        rest = list(node.iter_child_nodes())
    for child in rest:
        yield from _chains(child)


def chain_of(node: nodes.Node) -> Path | None:
    """The chain a node is, if it is nothing but a name with constant attributes and items."""
    parts: list[Any] = []
    while isinstance(node, nodes.Getattr | nodes.Getitem):
        if isinstance(node, nodes.Getattr):
            parts.append(node.attr)
        elif isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str | int):
            parts.append(node.arg.value)
        else:
            return None
        node = node.node
    if isinstance(node, nodes.Name) and node.ctx == "load":
        return (node.name, *reversed(parts))
    return None


def shown(path: Path) -> str:
    """A chain as an author would write it."""
    head, *rest = path
    return str(head) + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in rest)


def nearest(name: str, known: list[str]) -> str | None:
    """The known name most like this one, if one is alike at all."""
    found = get_close_matches(name, known, n=1, cutoff=0.6)
    return found[0] if found else None
