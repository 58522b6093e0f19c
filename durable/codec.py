"""Values to JSON and back. One rule: what a step returns is what a replay returns.

The round trip through JSON is applied on the first run too, so a tuple comes back as a list both times.
Values over `LARGE` bytes are stored once per run, out of the journal, and referenced by their hash.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any, Protocol

import orjson

from durable.errors import ValueRefused

LARGE = 64 * 1024
LIMIT = 16 * 1024 * 1024
# What the encoder itself goes down to.
DEEPEST = 254

# The one key that a user's object may not have: it marks what the runtime itself put there.
MARK = "$durable"

_OPTIONS = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS
# What comes back from JSON as it went in.
PLAIN = frozenset((str, int, bool, type(None)))
# What orjson writes, or refuses, as we would: nothing to look for in it.
_HARMLESS = frozenset((int, bool, type(None)))


class Codec(Protocol):
    """A hook between values and the database, for example to encrypt payloads."""

    def seal(self, data: bytes) -> bytes:
        """JSON in, JSON out: what is stored."""

    def unseal(self, data: bytes) -> bytes:
        """What was stored in, the original JSON out."""


class PlainCodec:
    """Stores values as they are, readable in psql."""

    def seal(self, data: bytes) -> bytes:
        return data

    def unseal(self, data: bytes) -> bytes:
        return data


def encode(value: Any, limit: int = LIMIT) -> bytes:
    """`value` as JSON, or `ValueRefused` with the path to what cannot be stored."""
    try:
        data = orjson.dumps(value, option=_OPTIONS)
    except (TypeError, ValueError, RecursionError) as exc:
        raise ValueRefused(_complaint(value, str(exc))) from None
    if type(value) in _HARMLESS:
        return data
    # orjson writes NaN as null, and PostgreSQL refuses NUL: both are rare enough to look only when suspected.
    suspect = data.find(b"null") >= 0 or data.find(b"\\u0000") >= 0 or data.find(b'"$durable"') >= 0
    if suspect and (where := _find_bad(value)) is not None:
        raise ValueRefused(where)
    if len(data) > limit:
        raise ValueRefused(
            f"a value of {len(data):,} bytes is over the limit of {limit:,} (setting `max_value_bytes`);"
            " store it elsewhere and pass a reference"
        )
    return data


def round_trip(value: Any, data: bytes) -> Any:
    """What a replay will see in place of `value`, whose JSON is `data`."""
    if type(value) in PLAIN:
        return value
    return orjson.loads(data)


def decode(data: bytes | str) -> Any:
    return orjson.loads(data)


def reference(data: bytes) -> tuple[str, bytes]:
    """The hash of a large value, and the JSON that stands for it."""
    digest = hashlib.sha256(data).hexdigest()
    return digest, orjson.dumps({MARK: {"ref": digest}})


def referenced(value: Any) -> str | None:
    """The hash that a stored value refers to, if it is such a reference."""
    if type(value) is dict and MARK in value:
        ref = value[MARK].get("ref")
        return str(ref) if ref else None
    return None


def sealed_with(codec: Codec, data: bytes) -> bytes:
    """`data` as the codec stores it, marked so that a reader knows."""
    if isinstance(codec, PlainCodec):
        return data
    return orjson.dumps({MARK: {"sealed": codec.seal(data).decode()}})


def unsealed_with(codec: Codec, value: Any) -> Any:
    """The original of a stored value that is already parsed."""
    if type(value) is dict and MARK in value and "sealed" in value[MARK]:
        return orjson.loads(codec.unseal(value[MARK]["sealed"].encode()))
    return value


def _complaint(value: Any, reason: str) -> str:
    return _find_bad(value) or f"$: not JSON: {reason}"


def _find_bad(value: Any) -> str | None:
    """A sentence about the first thing in `value` that cannot be stored, or None."""
    left = [(value, "$", 0)]
    while left:
        item, path, depth = left.pop()
        if depth > DEEPEST:
            return f"{path[:60]}...: nested deeper than {DEEPEST} levels, or within itself"
        if (found := _bad_itself(item, path)) is not None:
            return found
        if isinstance(item, dict):
            left += [(inner, f"{path}.{key}", depth + 1) for key, inner in reversed(item.items())]
        elif isinstance(item, list) or type(item) is tuple:
            left += [(item[index], f"{path}[{index}]", depth + 1) for index in reversed(range(len(item)))]
    return None


def _bad_itself(value: Any, path: str) -> str | None:
    """What is wrong with one value, whatever it holds."""
    if value is None or isinstance(value, bool):
        return None
    if type(value) is float:
        return None if math.isfinite(value) else f"{path}: {value} is not JSON; use None or a string"
    if isinstance(value, int):
        return None if -(2**63) <= value < 2**64 else f"{path}: {value} does not fit 64 bits; use a string"
    if isinstance(value, str):
        return _bad_text(value, path)
    if isinstance(value, dict):
        return next((found for key in value if (found := _bad_key(key, path)) is not None), None)
    if isinstance(value, list) or type(value) is tuple:
        return None
    return _bad_type(value, path)


def _bad_key(key: Any, path: str) -> str | None:
    if type(key) is not str:
        return f"{path}: key {key!r} is {type(key).__name__}; JSON keys are strings"
    if key == MARK:
        return f"{path}: the key {MARK!r} is reserved"
    return _bad_text(key, path)


def _bad_text(text: str, path: str) -> str | None:
    if "\x00" in text:
        return f"{path}: text with a NUL character cannot be stored in PostgreSQL"
    if any("\ud800" <= char <= "\udfff" for char in text):
        return f"{path}: text with half of a surrogate pair is not valid Unicode"
    return None


def _bad_type(value: Any, path: str) -> str | None:
    try:
        orjson.dumps(value, option=_OPTIONS)
    except TypeError:
        name = type(value).__name__
        hint = "; use .isoformat()" if hasattr(value, "isoformat") else "; return plain dicts, lists, text and numbers"
        return f"{path}: {name} is not JSON{hint}"
    return None
