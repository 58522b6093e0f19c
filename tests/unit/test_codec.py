"""Values: the round trip law, and refusals that say where."""

from __future__ import annotations

import collections
import datetime
import enum
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable import codec
from durable.errors import ValueRefused

text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
numbers = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
leaves = st.none() | st.booleans() | numbers | text
keys = text.filter(lambda key: key != codec.MARK)
values = st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(keys, inner), max_leaves=20)

Point = collections.namedtuple("Point", "x y")


class Colour(enum.StrEnum):
    RED = "red"


class Metres(float):
    """Like a NumPy number: a float that the encoder does not know."""


@given(values)
def test_what_is_stored_comes_back(value: Any) -> None:
    """decode(encode(v)) == v for every JSON value."""
    assert codec.decode(codec.encode(value)) == value


@given(values | st.tuples(values, values))
def test_the_first_run_sees_what_a_replay_sees(value: Any) -> None:
    """The round trip that a step's result takes at once is the one that a replay takes later, and a fixed point."""
    data = codec.encode(value)
    seen = codec.round_trip(value, data)
    assert seen == codec.decode(data)
    assert codec.round_trip(seen, codec.encode(seen)) == seen


@pytest.mark.parametrize(
    ("value", "seen"),
    [((1, 2), [1, 2]), (Colour.RED, "red"), (uuid.UUID(int=7), str(uuid.UUID(int=7))), ({"a": (1,)}, {"a": [1]})],
)
def test_what_json_lacks_becomes_its_plain_form_on_the_first_run_too(value: Any, seen: Any) -> None:
    """A tuple is a list and an enum its value, before any replay."""
    found = codec.round_trip(value, codec.encode(value))
    assert (found, type(found)) == (seen, type(seen))


BAD = {
    float("nan"): "nan is not JSON",
    float("inf"): "inf is not JSON",
    "a\x00b": "NUL",
    "\ud800": "surrogate",
    2**64: "64 bits",
    -(2**63) - 1: "64 bits",
    datetime.datetime(2026, 1, 1): "use .isoformat()",
    datetime.date(2026, 1, 1): "use .isoformat()",
    b"bytes": "bytes is not JSON",
    Point(1, 2): "Point is not JSON",
    Metres(1.5): "Metres is not JSON",
    frozenset([1]): "frozenset is not JSON",
}
steps = st.lists(st.sampled_from(["items", "when", "x"]) | st.integers(0, 3), max_size=6)


def wrapped(value: Any, way: list[str | int]) -> tuple[Any, str]:
    """A value at the end of a path of keys and indexes, and that path in words."""
    path = "$" + "".join(f".{step}" if isinstance(step, str) else f"[{step}]" for step in way)
    for step in reversed(way):
        value = {"good": None, step: value} if isinstance(step, str) else [None] * step + [value, 1]
    return value, path


@given(st.sampled_from(list(BAD)), steps)
def test_a_refusal_says_where_and_why(bad: Any, way: list[str | int]) -> None:
    """`$.items[3].when: ...`, whatever stands around it."""
    value, path = wrapped(bad, way)
    with pytest.raises(ValueRefused) as caught:
        codec.encode(value)
    assert str(caught.value).startswith(f"{path}: ")
    assert BAD[bad] in str(caught.value)


@given(st.sampled_from([1, None, (1, 2), Colour.RED, codec.MARK, "a\x00", "\udfff"]), steps)
def test_a_bad_key_is_refused_at_its_object(key: Any, way: list[str | int]) -> None:
    """Keys are plain strings, and one of them is reserved for the runtime."""
    value, path = wrapped({"good": 1, key: 2}, way)
    with pytest.raises(ValueRefused) as caught:
        codec.encode(value)
    assert str(caught.value).startswith(f"{path}: ")


def test_the_reserved_key_is_fine_as_a_value() -> None:
    """Only an object with that key could be taken for the runtime's own."""
    assert codec.decode(codec.encode([codec.MARK, {"x": codec.MARK}])) == [codec.MARK, {"x": codec.MARK}]


def test_a_value_over_the_limit_is_refused_with_the_setting() -> None:
    """It says how large it is, and what to do."""
    with pytest.raises(ValueRefused, match=r"1,002 bytes is over the limit of 1,000 .*max_value_bytes.*reference"):
        codec.encode("x" * 1000, limit=1000)
    assert codec.encode("x" * 998, limit=1000)


def nested(levels: int) -> Any:
    value: Any = [None]
    for _ in range(levels):
        value = [value]
    return value


def test_deep_values_are_stored_or_refused_but_never_break_the_codec() -> None:
    """The deepest that can be stored comes back; deeper ones, and those within themselves, are refused."""
    assert codec.decode(codec.encode(nested(250))) == nested(250)
    circle: list[Any] = []
    circle += [circle, circle]
    for value in (nested(100_000), circle, {"a": circle}):
        with pytest.raises(ValueRefused, match="nested deeper than"):
            codec.encode(value)


@given(values)
def test_a_large_value_is_named_by_its_content(value: Any) -> None:
    """The same value has the same reference, and a reference is told from every user's value."""
    data = codec.encode(value)
    digest, small = codec.reference(data)
    assert codec.reference(data) == (digest, small)
    assert codec.referenced(codec.decode(small)) == digest
    assert codec.referenced(value) is None


class Backwards:
    """A codec that stores everything backwards."""

    def seal(self, data: bytes) -> bytes:
        return data[::-1].hex().encode()

    def unseal(self, data: bytes) -> bytes:
        return bytes.fromhex(data.decode())[::-1]


@given(values)
def test_a_sealed_value_is_opened_again(value: Any) -> None:
    """What a codec sealed is stored as JSON, marked, and comes back; an unsealed value is left alone."""
    stored = codec.decode(codec.sealed_with(Backwards(), codec.encode(value)))
    assert list(stored) == [codec.MARK]
    assert codec.unsealed_with(Backwards(), stored) == value
    assert codec.unsealed_with(Backwards(), value) == value
    assert codec.sealed_with(codec.PlainCodec(), codec.encode(value)) == codec.encode(value)
