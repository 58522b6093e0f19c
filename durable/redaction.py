"""Redaction: values that this process was trusted with, and that nothing it stores, logs or raises may show.

A value is hidden as it is and in the spellings that it commonly travels in: quoted for a URL, for JSON, for Python, and
in base64.
"""

from __future__ import annotations

import base64
import json
import threading
import traceback
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote, quote_plus

from durable.errors import NonRetryable

MASK = "***"
# A shorter value is hidden in what its own step says, but not in everything that the process says: it may be a word.
_SHORT = 6


class Hidden(Exception):
    """An error whose own words showed a secret, in words that do not."""


class HiddenForGood(NonRetryable):
    """The same, of an error that no retry policy tries again."""


class Redaction:
    """Hides some values in whatever it is shown."""

    def __init__(self, values: Iterable[str] = ()):
        self._spellings: tuple[str, ...] = ()
        self.add(values)

    def add(self, values: Iterable[str]) -> None:
        found = {spelling for value in values for spelling in _spellings(value)} | set(self._spellings)
        # The longest first: one spelling may begin with another.
        self._spellings = tuple(sorted(found, key=lambda each: (-len(each), each)))

    def text(self, text: str) -> str:
        for spelling in self._spellings:
            text = text.replace(spelling, MASK)
        return text

    def value(self, value: Any) -> Any:
        """The same for the texts in any JSON value, its keys too."""
        if not self._spellings:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.value(key): self.value(part) for key, part in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(part) for part in value]
        if isinstance(value, bytes):
            return self.text(value.decode("latin-1")).encode("latin-1")
        return value

    def shows(self, text: str) -> bool:
        return any(spelling in text for spelling in self._spellings)

    def error(self, exc: Exception) -> Exception:
        """The error without what it must not say: the same one if its words can be changed, else another."""
        if not self.shows(_said(exc)):
            return exc
        exc.args = tuple(self.text(str(arg)) if self.shows(str(arg)) else arg for arg in exc.args)
        exc.__cause__ = exc.__context__ = None
        exc.__notes__ = [self.text(str(note)) for note in getattr(exc, "__notes__", ())]
        if not self.shows(_said(exc)):
            return exc
        kind = HiddenForGood if isinstance(exc, NonRetryable) else Hidden
        return kind(self.text(f"{type(exc).__name__}: {exc}")).with_traceback(exc.__traceback__)


# Whatever this process has been given so far; a secret once known may turn up anywhere.
everywhere = Redaction()
_adding = threading.Lock()


def conceal(values: Iterable[str]) -> Redaction:
    """Hide values from now on everywhere in this process; what hides just these is for the step that asked."""
    own = list(values)
    with _adding:
        everywhere.add(value for value in own if len(value) >= _SHORT)
    return Redaction(own)


def _said(exc: BaseException) -> str:
    return str(exc) + repr(exc.args) + "".join(traceback.format_exception(exc))


def _spellings(value: str) -> set[str]:
    if not value:
        return set()
    raw = value.encode()
    return {
        value,
        quote(value, safe=""),
        quote(value),
        quote_plus(value),
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        repr(value)[1:-1],
        base64.b64encode(raw).decode(),
        base64.urlsafe_b64encode(raw).decode(),
    }
