"""Reads YAML into a `Source`.

The text is YAML 1.2 (section 2.2), but most of it was written by tools of YAML 1.1, which leave text
unquoted that only 1.2 takes for a number (`1e3`, `0o17`). So a plain scalar is a number only where both
agree; `yes`, `on` and dates are text. Events come from the C parser; nothing is built by tags.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

# The C parser's events, which the type stubs leave out.
from yaml.cyaml import CParser  # type: ignore[attr-defined]

from highway_dsl.faults import Fault, Position
from highway_dsl.source import MAX_CHARACTERS, MAX_DEPTH, MAX_NODES, Place, Places, Source, Unreadable

# With a zero before it YAML 1.1 sees octal digits, and so no number in 08.
_INTEGER = re.compile(r"[-+]?(?:0[0-7]*|[1-9][0-9]*)")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"(?:[-+]?[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+][0-9]+)?")
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
_NUMERIC = frozenset("-+.0123456789")
_TAG = "tag:yaml.org,2002:"


def read_yaml(text: str, file: str | None = None) -> Source:
    """The document in `text`; raises `Unreadable` where it is none."""
    if len(text) > MAX_CHARACTERS:
        raise Unreadable("too_large", f"the document is over {MAX_CHARACTERS} characters", 1, 1)
    try:
        return _Reader(text, file).read()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise Unreadable("yaml_syntax", error.problem or "not YAML", line, column) from error
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        column = error.position - before.rfind("\n")
        said = f"the character {chr(error.character)!r} is not allowed: {error.reason}"
        raise Unreadable("yaml_syntax", said, before.count("\n") + 1, column) from error
    except (yaml.YAMLError, UnicodeError) as error:
        raise Unreadable("yaml_syntax", str(error), 1, 1) from error


def plain(text: str) -> Any:
    """What an unquoted scalar stands for."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMERIC:
        return text
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return int(text, 16) if _HEXADECIMAL.fullmatch(text) else text


class _Container:
    """A mapping or sequence that is still open."""

    __slots__ = ("anchor", "column", "key", "line", "merged", "merging", "places", "started", "value")

    def __init__(self, event: Any, value: Any, places: Places, started: int) -> None:
        self.value = value
        self.places = places
        self.anchor = event.anchor
        self.line = event.start_mark.line + 1
        self.column = event.start_mark.column + 1
        self.started = started
        self.key: tuple[str, int, int] | None = None
        self.merging = False
        self.merged: list[tuple[dict[str, Any], Places]] = []


class _Reader:
    """One pass over the events of a text; open containers are on a stack, so depth costs no recursion."""

    def __init__(self, text: str, file: str | None) -> None:
        self.parser = CParser(text)
        self.source = Source(file=file)
        self.open: list[_Container] = []
        self.anchors: dict[str, tuple[Any, Places, int]] = {}
        self.nodes = 0
        self.documents = 0

    def read(self) -> Source:
        while True:
            event = self.parser.get_event()
            kind = type(event)
            if kind is yaml.ScalarEvent:
                self._scalar(event)
            elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                self._start(event, kind is yaml.MappingStartEvent)
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                self._end()
            elif kind is yaml.AliasEvent:
                self._alias(event)
            elif kind is yaml.DocumentStartEvent:
                self._document(event)
            elif kind is yaml.StreamEndEvent:
                return self.source

    def _document(self, event: Any) -> None:
        self.documents += 1
        if self.documents > 1:
            raise _at(event, "yaml_syntax", "a second document", "one file holds one workflow")

    def _scalar(self, event: Any) -> None:
        self._count(event, 1)
        container = self.open[-1] if self.open else None
        if container is not None and type(container.value) is dict and container.key is None:
            # A key is its text, whatever it looks like: cases are compared as text (section 5.9).
            container.key = (event.value, event.start_mark.line + 1, event.start_mark.column + 1)
            container.merging = event.value == "<<" and event.implicit[0]  # in quotes it is a text
            if event.anchor:
                self.anchors[event.anchor] = (event.value, None, 1)
            return
        value = _scalar(event)
        if event.anchor:
            self.anchors[event.anchor] = (value, None, 1)
        self._put(event, value, None)

    def _start(self, event: Any, mapping: bool) -> None:
        self._count(event, 1)
        if event.tag is not None and event.tag not in ("!", f"{_TAG}map" if mapping else f"{_TAG}seq"):
            raise _at(event, "yaml_tag", f"the tag {event.tag} is not allowed", "plain data only")
        if self._key_is_due():
            raise _at(event, "yaml_key", "a key must be text")
        if len(self.open) >= MAX_DEPTH:
            raise _at(event, "too_deep", f"nested deeper than {MAX_DEPTH} levels")
        value: Any = {} if mapping else []
        self.open.append(_Container(event, value, {} if mapping else [], self.nodes))

    def _end(self) -> None:
        container = self.open.pop()
        for merged, places in container.merged:
            _merge(container, merged, places)
        if container.anchor:
            size = self.nodes - container.started + 1
            self.anchors[container.anchor] = (container.value, container.places, size)
        self._place(container.value, container.places, container.line, container.column)

    def _alias(self, event: Any) -> None:
        if event.anchor not in self.anchors:
            raise _at(event, "yaml_alias", f"*{event.anchor} is unknown here, or stands inside itself")
        value, places, size = self.anchors[event.anchor]
        self._count(event, size)
        if self._key_is_due():
            if not isinstance(value, str):
                raise _at(event, "yaml_key", "a key must be text")
            self.open[-1].key = (value, event.start_mark.line + 1, event.start_mark.column + 1)
            self.open[-1].merging = False
        else:
            self._put(event, _copy(value), places)

    def _count(self, event: Any, nodes: int) -> None:
        self.nodes += nodes
        if self.nodes > MAX_NODES:
            raise _at(event, "too_large", f"the document has over {MAX_NODES} parts, its aliases written out")

    def _key_is_due(self) -> bool:
        return bool(self.open) and type(self.open[-1].value) is dict and self.open[-1].key is None

    def _put(self, event: Any, value: Any, places: Places) -> None:
        self._place(value, places, event.start_mark.line + 1, event.start_mark.column + 1)

    def _place(self, value: Any, places: Places, line: int, column: int) -> None:
        if not self.open:
            self.source.data, self.source.root = value, (line, column, places)
            return
        container = self.open[-1]
        if container.key is None:
            container.value.append(value)
            # Without a key the container is a list, and its places are one too.
            container.places.append((line, column, places))  # type: ignore[union-attr]
            return
        key, line, column = container.key
        container.key = None
        if container.merging and _mergeable(value):
            container.merged += _parts(value, places)
        elif key in container.value:
            self.source.faults.append(_twice(key, line, column))
        else:
            container.value[key] = value
            # With a key it is a mapping, and its places are one too.
            container.places[key] = (line, column, places)  # type: ignore[call-overload,index]


def _scalar(event: Any) -> Any:
    try:
        if event.implicit[0]:
            return plain(event.value)
        if event.tag in (None, "!", f"{_TAG}str"):
            return event.value
        return _tagged(event)
    except ValueError as error:
        raise _at(event, "yaml_number", str(error)) from error


def _tagged(event: Any) -> Any:
    allowed = {"int": int, "float": float | int, "bool": bool, "null": type(None)}
    value = plain(event.value)
    kind = allowed.get(event.tag.removeprefix(_TAG))
    if kind is None or not isinstance(value, kind):
        raise _at(event, "yaml_tag", f"the tag {event.tag} is not allowed", "plain data only")
    return value


def _at(event: Any, kind: str, message: str, hint: str | None = None) -> Unreadable:
    return Unreadable(kind, message, event.start_mark.line + 1, event.start_mark.column + 1, hint)


def _twice(key: str, line: int, column: int) -> Fault:
    return Fault("duplicate_key", f"'{key}' is given twice", position=Position(line, column))


def _mergeable(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and all(isinstance(v, dict) for v in value))


def _parts(value: Any, places: Places) -> list[tuple[dict[str, Any], Places]]:
    if isinstance(value, dict):
        return [(value, places)]
    inner: list[Place] = places if isinstance(places, list) else []
    return [(part, place[2]) for part, place in zip(value, inner, strict=True)]


def _merge(container: _Container, merged: dict[str, Any], places: Places) -> None:
    for key, value in merged.items():
        if key not in container.value:
            container.value[key] = value
            # Only mappings are merged, so both are mappings of places.
            container.places[key] = places[key]  # type: ignore[call-overload,index]


def _copy(value: Any) -> Any:
    """A copy of plain data: what two aliases name must not be one list to whoever changes it."""
    if isinstance(value, dict):
        return {key: _copy(inner) for key, inner in value.items()}
    return [_copy(inner) for inner in value] if isinstance(value, list) else value
