"""The same programs on the published 1.1.0 and on ours."""

from __future__ import annotations

import json
import warnings
from typing import Any

import yaml
from hypothesis import given, settings

from highway_dsl import HighwayWarning, Workflow, workflow_dsl

from .builder_programs import result
from .deviations import comparable, neutral
from .programs import EVERY_PROGRAM, programs
from .upstream import Upstream


def ours(program: dict[str, Any]) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HighwayWarning)
        return result(workflow_dsl, neutral(program))


@settings(EVERY_PROGRAM, max_examples=80)
@given(program=programs())
def test_a_builder_program_means_the_same_as_in_1_1_0(upstream: Upstream, program: dict[str, Any]) -> None:
    """Apart from the listed deviations, every serialised form is that of 1.1.0, and its documents load."""
    played = upstream.play(program)
    theirs, mine = comparable(played), ours(program)
    assert _ordered(theirs["json"]) == _ordered(mine["json"])
    assert yaml.safe_load(theirs["yaml"]) == yaml.safe_load(mine["yaml"])
    for form in ("order", "internal", "dump"):
        assert theirs[form] == mine[form]
    built = Workflow.from_json(mine["json"])
    assert built == Workflow.from_yaml(played["yaml"])
    assert built == Workflow.from_json(played["json"])


def test_yaml_is_written_to_the_letter_as_by_1_1_0(upstream: Upstream) -> None:
    """Block style, sorted keys, unindented items, templates in single quotes, other letters escaped."""
    step = {
        "do": "task",
        "id": "a",
        "own": {"function": "f"},
        "fields": {"args": ["{{x}}", "é", "yes", [], {}, None, 1.5, 1e30, "multi\nline\n", "long words " * 30]},
        "after": [["retry", {"delay": {"$seconds": 90}}], ["timeout", {"timeout": {"$seconds": 34560000}}]],
    }
    program = {"name": "w", "settings": [["add_tags", "x"]], "steps": [step]}
    assert upstream.play(program)["yaml"] == ours(program)["yaml"]


def _ordered(text: str) -> Any:
    """JSON as lists of pairs, which are equal only in the same order."""
    return json.loads(text, object_pairs_hook=list)
