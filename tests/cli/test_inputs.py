"""What people type for values and times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from durablectl.exits import WrongUse
from durablectl.inputs import json_value, moment, moment_or_age, named_values


def test_values_are_json_where_they_are_json_and_text_otherwise() -> None:
    """`n=3` is a number, `who=world` needs no quotes, and quotes make text of anything."""
    given = ["n=3", "who=world", 'zip="07"', "house=07", "ok=true", "sum=a=b", "none=null", 'list=["a"]', "void="]
    expected = {
        "n": 3, "who": "world", "zip": "07", "house": "07", "ok": True, "sum": "a=b", "none": None, "list": ["a"],
        "void": "",
    }  # fmt: skip
    assert expected == named_values(given)


def test_objects_and_files_are_merged_in_the_order_given(tmp_path: Path) -> None:
    """A later argument wins, whatever form it has."""
    (tmp_path / "in.json").write_text('{"a": 1, "b": 1}')
    assert named_values([f"@{tmp_path / 'in.json'}", '{"b": 2}', "c=3"]) == {"a": 1, "b": 2, "c": 3}


@pytest.mark.parametrize("wrong", ["word", "=1", "[1]", "{", "@/nowhere/at.all", '"text"', '{"a": NaN}'])
def test_an_input_that_is_no_object_is_refused(wrong: str) -> None:
    """Arguments go by name: anything else is refused before anything is written."""
    with pytest.raises(WrongUse, match="--input"):
        named_values([wrong])


def test_a_payload_must_be_json() -> None:
    """Text without quotes is refused with an example."""
    assert json_value('{"a": [1]}', "--payload") == {"a": [1]}
    with pytest.raises(WrongUse, match="text needs quotes"):
        json_value("text", "--payload")


def test_a_time_needs_a_zone() -> None:
    """Nobody guesses which zone was meant."""
    assert datetime(2026, 1, 31, 9, tzinfo=UTC) == moment("2026-01-31T09:00:00Z", "--at")
    for wrong in ("2026-01-31T09:00:00", "tomorrow"):
        with pytest.raises(WrongUse, match="--at"):
            moment(wrong, "--at")


def test_an_age_is_a_time_too() -> None:
    """`2h` is two hours ago."""
    assert abs(datetime.now(UTC) - timedelta(hours=2) - moment_or_age("2h", "--since")) < timedelta(minutes=5)
