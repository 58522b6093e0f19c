"""Reads JSON (RFC 8259) into a `Source`; the standard library's parser keeps no positions."""

from __future__ import annotations

import json
import re
from bisect import bisect_right

# The standard library's own scanner, which its type stubs leave out.
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, TypeAlias

from highway_dsl.faults import Fault, Position
from highway_dsl.source import MAX_CHARACTERS, MAX_DEPTH, MAX_NODES, Place, Places, Source, Unreadable

_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_WORD = re.compile(r"true|false|null")
_HALF_A_PAIR = re.compile("[\ud800-\udfff]")
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None}

# A value, the places inside it, and where the text goes on.
_Read: TypeAlias = tuple[Any, Places, int]


def read_json(text: str, file: str | None = None) -> Source:
    """The document in `text`; raises `Unreadable` where it is none."""
    if len(text) > MAX_CHARACTERS:
        raise Unreadable("too_large", f"the document is over {MAX_CHARACTERS} characters", 1, 1)
    return _Reader(text.removeprefix("\ufeff"), file).read()


class _Reader:
    """Recursive descent; `MAX_DEPTH` keeps it far from Python's own limit."""

    def __init__(self, text: str, file: str | None) -> None:
        self.text = text
        self.source = Source(file=file)
        self.lines = [0, *(match.end() for match in re.finditer("\n", text))]
        self.nodes = 0

    def read(self) -> Source:
        start = self._skip(0)
        value, places, end = self._value(start, 0)
        end = self._skip(end)
        if end != len(self.text):
            raise self._error(end, "something follows the document")
        line, column = self._where(start)
        self.source.data, self.source.root = value, (line, column, places)
        return self.source

    def _value(self, at: int, depth: int) -> _Read:
        self._count(at)
        first = self.text[at : at + 1]
        if first == '"':
            text, end = self._string(at)
            return text, None, end
        if first and first in "{[":
            if depth >= MAX_DEPTH:
                raise self._error(at, f"nested deeper than {MAX_DEPTH} levels", "too_deep")
            return self._object(at + 1, depth + 1) if first == "{" else self._array(at + 1, depth + 1)
        return self._atom(at)

    def _object(self, at: int, depth: int) -> _Read:
        data: dict[str, Any] = {}
        places: dict[str, Place] = {}
        at = self._skip(at)
        if self.text.startswith("}", at):
            return data, places, at + 1
        while True:
            line, column = self._where(at)
            key, at = self._string(at)
            at = self._skip(self._expect(at, ":"))
            value, inner, at = self._value(at, depth)
            if key in data:
                self._twice(key, line, column)
            else:
                data[key], places[key] = value, (line, column, inner)
            at, closed = self._next(at, "}")
            if closed:
                return data, places, at

    def _array(self, at: int, depth: int) -> _Read:
        items: list[Any] = []
        places: list[Place] = []
        at = self._skip(at)
        if self.text.startswith("]", at):
            return items, places, at + 1
        while True:
            line, column = self._where(at)
            value, inner, at = self._value(at, depth)
            items.append(value)
            places.append((line, column, inner))
            at, closed = self._next(at, "]")
            if closed:
                return items, places, at

    def _atom(self, at: int) -> _Read:
        word = _WORD.match(self.text, at)
        if word:
            return _WORDS[word.group()], None, word.end()
        number = _NUMBER.match(self.text, at)
        if not number:
            raise self._error(at, "a JSON value is missing here")
        try:
            value = float(number.group()) if number.lastindex else int(number.group())
        except ValueError as error:
            raise self._error(at, str(error)) from error
        return value, None, number.end()

    def _string(self, at: int) -> tuple[str, int]:
        if not self.text.startswith('"', at):
            raise self._error(at, 'a text in "double quotes" is missing here')
        try:
            text, end = scanstring(self.text, at + 1, True)
        except json.JSONDecodeError as error:
            raise self._error(error.pos, error.msg) from error
        if not text.isascii() and _HALF_A_PAIR.search(text):
            raise self._error(at, "half a surrogate pair is no character")
        return text, end

    def _next(self, at: int, close: str) -> tuple[int, bool]:
        at = self._skip(at)
        if self.text.startswith(close, at):
            return at + 1, True
        return self._skip(self._expect(at, ",")), False

    def _expect(self, at: int, sign: str) -> int:
        at = self._skip(at)
        if not self.text.startswith(sign, at):
            raise self._error(at, f"'{sign}' is missing here")
        return at + 1

    def _skip(self, at: int) -> int:
        match = _SPACE.match(self.text, at)
        return match.end() if match else at

    def _count(self, at: int) -> None:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise self._error(at, f"the document has over {MAX_NODES} parts", "too_large")

    def _where(self, at: int) -> tuple[int, int]:
        line = bisect_right(self.lines, at)
        return line, at - self.lines[line - 1] + 1

    def _twice(self, key: str, line: int, column: int) -> None:
        fault = Fault("duplicate_key", f"'{key}' is given twice", position=Position(line, column))
        self.source.faults.append(fault)

    def _error(self, at: int, message: str, kind: str = "json_syntax") -> Unreadable:
        return Unreadable(kind, message, *self._where(at))
