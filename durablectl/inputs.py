"""What people type for values and times, read strictly: a wrong one is refused with an example of a right one."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from durablectl.exits import WrongUse

UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def named_values(given: Sequence[str]) -> dict[str, Any]:
    """An input object from `name=value`, `{...}` and `@file.json`, later ones winning."""
    found: dict[str, Any] = {}
    for text in given:
        if text.startswith(("{", "[", "@")):
            found |= _object(text)
        else:
            name, sign, value = text.partition("=")
            if not sign or not name:
                raise WrongUse(f"--input {text!r} is neither name=value, nor a JSON object, nor @file.json")
            found[name] = _loose(value)
    return found


def json_value(text: str, option: str) -> Any:
    """JSON, or the content of `@file.json` (`@-` is standard input)."""
    source = _content(text[1:], option) if text.startswith("@") else text
    try:
        return _strict(source)
    except ValueError as exc:
        where = f"{option} {text}" if text.startswith("@") else option
        hint = "" if text[:1] in ("@", "{", "[") else f"; text needs quotes: {option} '\"text\"'"
        raise WrongUse(f"{where} is not JSON ({exc}){hint}") from None
    except RecursionError:
        raise WrongUse(f"{option} is nested too deeply") from None


def moment(text: str, option: str) -> datetime:
    """A time with a zone."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise WrongUse(f"{option} {text!r} is not a time; write it like 2026-01-31T09:00:00Z") from None
    if when.tzinfo is None:
        raise WrongUse(f"{option} {text!r} has no zone; write it like 2026-01-31T09:00:00Z")
    return when


def moment_or_age(text: str, option: str) -> datetime:
    """A time with a zone, or how long ago: 90s, 15m, 2h, 7d."""
    if found := re.fullmatch(r"(\d{1,9})([smhd])", text):
        return datetime.now(UTC) - timedelta(**{UNITS[found[2]]: int(found[1])})
    return moment(text, option)


def _object(text: str) -> dict[str, Any]:
    value = json_value(text, "--input")
    if not isinstance(value, dict):
        raise WrongUse(f"--input {text!r} is not a JSON object; the workflow's arguments go by name")
    return value


def _loose(text: str) -> Any:
    """JSON where it is JSON, text otherwise: `n=3` is a number and `who=world` needs no quotes."""
    try:
        return _strict(text)
    except ValueError:
        return text


def _strict(text: str) -> Any:
    return json.loads(text, parse_constant=_no_constant)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _content(name: str, option: str) -> str:
    if name == "-":
        return sys.stdin.read()
    try:
        return Path(name).read_text(encoding="utf-8-sig")
    except OSError as exc:
        raise WrongUse(f"{option} @{name} cannot be read: {exc.strerror or exc}") from None
    except UnicodeDecodeError as exc:
        raise WrongUse(f"{option} @{name} is not a text: byte {exc.start} is not UTF-8") from None
