"""The readers: YAML 1.2 as tools of 1.1 write it, JSON to the letter, and their limits."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from highway_dsl import Workflow, WorkflowBuilder, faults_of
from highway_dsl.json_reader import read_json
from highway_dsl.source import MAX_CHARACTERS, MAX_DEPTH, MAX_NODES, Unreadable
from highway_dsl.yaml_reader import read_yaml
from highway_dsl.yaml_writer import write_yaml

from .programs import VALUES

# The numbers of the core schema (YAML 1.2.2, section 10.3.2).
CORE_NUMBER = re.compile(
    r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+|[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
    r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
NUMBERLIKE = st.text("0123456789-+._eExoabcinfNaN:~", min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("true", True), ("False", False), ("null", None), ("~", None), ("", None)),
        *(("1", 1), ("-1", -1), ("+1", 1), ("010", 10), ("0x1F", 31)),
        *(("1.5", 1.5), ("1.0e+3", 1000.0), (".5", 0.5), ("5.", 5.0), (".inf", float("inf"))),
        *((word, word) for word in ("yes", "no", "on", "off", "y", "n", "Yes")),
        *(
            (word, word)
            for word in ("1e3", "1.5e3", "0o17", "1_000", "-.5", "08", "-09", "0778", "12:30:45", "190:20:30.15")
        ),
        *((word, word) for word in ("2025-01-01", "2025-01-01T00:00:00Z", "=", "nan", "inf", "0b1")),
        *(("'1'", "1"), ('"true"', "true"), ("!!str 1", "1"), ("!!int 1", 1), ("!!float 1", 1)),
    ],
)
def test_a_scalar_is_what_both_yaml_versions_agree_on(text: str, value: Any) -> None:
    """Numbers, booleans and null only where YAML 1.1 and 1.2 both see them; all else is text."""
    read = read_yaml(f"x: {text}").data["x"]
    assert (type(value), value) == (type(read), read)


@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=20) | NUMBERLIKE)
def test_text_written_by_yaml_1_1_is_read_as_text(text: str) -> None:
    """Whatever PyYAML's dumper writes for a text, the reader takes for that text, as value and as key."""
    assert {"x": text} == read_yaml(yaml.safe_dump({"x": text})).data
    assert {text: [text]} == read_yaml(yaml.safe_dump({text: [text]})).data


@given(NUMBERLIKE)
def test_text_is_written_so_that_yaml_1_2_reads_text(text: str) -> None:
    """Our dumper quotes what either version takes for a number."""
    written = write_yaml({"x": text})
    assert {"x": text} == read_yaml(written).data == yaml.safe_load(written)
    assert not CORE_NUMBER.fullmatch(written.removeprefix("x: ").strip())


@given(VALUES)
def test_json_is_read_as_the_standard_library_reads_it(value: Any) -> None:
    """Any value, pretty or compact, escaped or raw."""
    for options in ({}, {"indent": 2}, {"indent": "\t", "ensure_ascii": False}, {"separators": (",", ":")}):
        text = json.dumps(value, **options)  # type: ignore[arg-type]
        assert json.loads(text) == read_json(text).data


@given(st.text('{}[]:,"\\ \n0123tfn-.eE', max_size=30))
def test_json_that_the_standard_library_refuses_is_refused(text: str) -> None:
    """The reader accepts exactly RFC 8259 (keys given twice are reported, not lost)."""
    try:
        expected = json.loads(text)
    except ValueError:
        with pytest.raises(Unreadable):
            read_json(text)
        return
    source = read_json(text)
    assert source.faults or json.dumps(expected) == json.dumps(source.data)


def test_anchors_merges_and_keys() -> None:
    """Aliases are copies, merges do not override, and every key is text."""
    text = "a: &a {x: 1, y: [1]}\nb: {<<: *a, x: 2}\nc: {<<: [*a, {z: 3}]}\nd: *a\n1: {true: 1, 2025-01-01: 2}"
    data = read_yaml(text).data
    assert data["b"] == {"x": 2, "y": [1]}
    assert data["c"] == {"x": 1, "y": [1], "z": 3}
    assert data["1"] == {"true": 1, "2025-01-01": 2}
    assert read_yaml("'<<': {x: 1}").data == {"<<": {"x": 1}}
    data["d"]["y"].append(2)
    assert data["a"]["y"] == [1]


@pytest.mark.parametrize("text", ["\ufeffname: w", "\ufeff".encode() + b"name: w"])
def test_a_byte_order_mark_is_no_part_of_a_document(text: str | bytes) -> None:
    """Editors that write one do not spoil the first key."""
    assert Workflow.from_yaml(text).name == "w"
    assert Workflow.from_json(b'\xef\xbb\xbf{"name": "w"}').name == "w"


def kind(load: Any, text: str) -> str:
    started = time.monotonic()
    with pytest.raises(ValidationError) as refused:
        load(text)
    assert time.monotonic() - started < 20
    return faults_of(refused.value)[0].kind


def test_a_billion_laughs_are_refused() -> None:
    """Aliases count as what they stand for, and are refused before they are written out."""
    lines = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    assert kind(Workflow.from_yaml, "name: w\nvariables:\n  " + "\n  ".join(lines)) == "too_large"


@pytest.mark.parametrize("deep", ["[" * 100_000, "{a: " * 5000, "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1)])
def test_deep_yaml_is_refused(deep: str) -> None:
    """Nesting is limited; the parser's own stack is never in danger."""
    assert kind(Workflow.from_yaml, deep) == "too_deep"


@pytest.mark.parametrize("deep", ["[" * 100_000, '{"a": ' * 5000])
def test_deep_json_is_refused(deep: str) -> None:
    """Nesting is limited in JSON too."""
    assert kind(Workflow.from_json, deep) == "too_deep"


@pytest.mark.parametrize("load", [Workflow.from_yaml, Workflow.from_json])
def test_huge_texts_are_refused(load: Any) -> None:
    """A document over the limit is refused before it is read."""
    assert kind(load, " " * (MAX_CHARACTERS + 1)) == "too_large"


def test_a_text_of_too_many_parts_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts are counted as they are read, in both formats."""
    assert MAX_NODES > 1_000_000
    for module, load in (("yaml_reader", Workflow.from_yaml), ("json_reader", Workflow.from_json)):
        monkeypatch.setattr(f"highway_dsl.{module}.MAX_NODES", 10)
        assert kind(load, "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]") == "too_large"


def test_large_documents_load_fast() -> None:
    """Two thousand tasks take a few seconds at most, on a slow machine, in either format."""
    builder = WorkflowBuilder("big")
    for number in range(2000):
        builder.task(f"t{number}", "f", args=[1, "{{x}}"])
    workflow = builder.build()
    for load, text in ((Workflow.from_yaml, workflow.to_yaml()), (Workflow.from_json, workflow.to_json())):
        started = time.process_time()
        assert len(load(text).tasks) == 2000
        assert time.process_time() - started < 5


def test_a_character_that_no_text_has_is_told_with_its_place() -> None:
    """Control characters are refused where they stand."""
    with pytest.raises(ValidationError, match=r"f\.yaml:2:4: the character '\\x01' is not allowed"):
        Workflow.from_yaml("name: x\na: \x01\n", "f.yaml")
