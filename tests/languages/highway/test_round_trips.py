"""Laws of the serialised forms, over random workflows."""

from __future__ import annotations

import json
import warnings
from datetime import datetime, timedelta
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from highway_dsl import HighwayWarning, TaskOperator, WaitOperator, Workflow, WorkflowBuilder, workflow_dsl
from highway_dsl.canonical import canonical, content_hash

from .builder_programs import play
from .programs import EVERY_PROGRAM, programs


def build(program: dict[str, Any]) -> Workflow:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HighwayWarning)
        workflow: Workflow = play(workflow_dsl, program)
    return workflow


@settings(EVERY_PROGRAM, max_examples=40)
@given(programs())
def test_yaml_and_json_lose_nothing(program: dict[str, Any]) -> None:
    """A workflow equals its reload from either format, which writes and hashes the same again."""
    workflow = build(program)
    by_yaml, by_json = Workflow.from_yaml(workflow.to_yaml()), Workflow.from_json(workflow.to_json())
    assert workflow == by_yaml == by_json
    assert (workflow.to_yaml(), workflow.to_json()) == (by_yaml.to_yaml(), by_json.to_json())
    assert len({each.content_hash() for each in (workflow, by_yaml, by_json)}) == 1
    assert by_yaml == Workflow.model_validate(by_yaml.model_dump()) == by_json.model_copy(deep=True)


@settings(EVERY_PROGRAM, max_examples=15)
@given(programs(), st.randoms(use_true_random=False))
def test_the_hash_does_not_depend_on_the_order_of_keys(program: dict[str, Any], random: Any) -> None:
    """A document with its keys in any order is the same version."""
    workflow = build(program)
    shuffled = _shuffled(json.loads(workflow.to_json()), random)
    by_json = Workflow.from_json(json.dumps(shuffled))
    by_yaml = Workflow.from_yaml(yaml.safe_dump(shuffled, sort_keys=False))
    assert {workflow.content_hash()} == {by_json.content_hash(), by_yaml.content_hash()}


@given(st.timedeltas())
def test_every_duration_survives_as_a_wait(length: timedelta) -> None:
    """To the microsecond, of either sign, of any length."""
    wait = WaitOperator(task_id="a", wait_for=length)
    assert wait == WaitOperator.model_validate_json(wait.model_dump_json())


@given(st.datetimes(timezones=st.none() | st.timezones()))
def test_every_moment_survives_as_a_wait(moment: datetime) -> None:
    """As the same instant with the same offset, to the microsecond."""
    if moment.utcoffset() is not None and moment.utcoffset() % timedelta(minutes=1):  # type: ignore[operator]
        return  # ISO 8601 offsets have no seconds; those of some historic zones do
    read = WaitOperator.model_validate_json(WaitOperator(task_id="a", wait_for=moment).model_dump_json()).wait_for
    assert isinstance(read, datetime)
    assert (moment.utcoffset(), moment.replace(tzinfo=None)) == (read.utcoffset(), read.replace(tzinfo=None))


def test_a_different_workflow_has_a_different_hash() -> None:
    """Any change to what a workflow says changes its version; a default written out does not."""
    plain = WorkflowBuilder("w").task("a", "f").build()
    seen = {plain.content_hash()}
    for change in (
        {"args": [1]},
        {"args": [1.5]},
        {"args": ["1"]},
        {"args": [None]},
        {"trigger_rule": "all_done"},
    ):
        seen.add(WorkflowBuilder("w").task("a", "f", **change).build().content_hash())  # type: ignore[arg-type]
    assert len(seen) == 6
    short = "name: w\nstart_task: a\ntasks: {a: {operator_type: task, task_id: a, function: f}}"
    assert content_hash(plain) == Workflow.from_yaml(short).content_hash()


def test_the_canonical_form_is_sorted_compact_json() -> None:
    """Bytes in UTF-8: no spaces, no nulls, keys sorted."""
    workflow = Workflow(name="w", tasks={"a": TaskOperator(task_id="a", function="é")})
    task = '{"args":[],"dependencies":[],"description":"","function":"é","kwargs":{},"metadata":{},'
    task += '"operator_type":"task","task_id":"a"}'
    head = '{"catchup":false,"description":"","is_paused":false,"max_active_runs":1,"name":"w","tags":[],'
    expected = f'{head}"tasks":{{"a":{task}}},"variables":{{}},"version":"1.1.0"}}'
    assert expected.encode() == canonical(workflow) == workflow.canonical()


@pytest.mark.parametrize("pause", ["PT90S", "PT1M30S", "duration:90"])
def test_equal_durations_are_the_same_version(pause: str) -> None:
    """However a duration is written."""
    texts = [f"name: w\ntasks: {{a: {{operator_type: wait, task_id: a, wait_for: {p}}}}}" for p in (pause, "PT90S")]
    assert len({Workflow.from_yaml(text).content_hash() for text in texts}) == 1


def test_empty_branches_and_every_operator_in_a_body_survive() -> None:
    """What 1.1.0 loses on reload: empty branches, waits, and events inside loops."""

    def body(builder: WorkflowBuilder) -> WorkflowBuilder:
        return (
            builder.task("a", "f")
            .wait("b", timedelta(days=1))
            .emit_event("c", "e")
            .wait_for_event("d", "e")
            .switch("s", "x", {"1": "a2"})
            .task("a2", "f")
            .condition("g", "x", lambda b: b, lambda b: b)
            .parallel("p", {"x": lambda b: b})
            .foreach("i", "x", lambda b: b.while_loop("w", "x", lambda c: c.task("z", "f")))
            .join("j", ["a"])
            .terminate("t")
            .child_workflow("k", "other")
        )

    workflow = WorkflowBuilder("w").foreach("l", "x", body).build()
    for loaded in (Workflow.from_yaml(workflow.to_yaml()), Workflow.from_json(workflow.to_json())):
        assert workflow == loaded
        inner = getattr(loaded.tasks["l"], "loop_body", [])
        assert [type(task) for task in inner] == [type(workflow.tasks[task.task_id]) for task in inner]
    assert len(yaml.safe_load(workflow.to_yaml())["tasks"]["l"]["loop_body"]) == 14


def test_a_flowchart_shows_every_task_and_way() -> None:
    """Mermaid gets nodes by kind, loops as boxes, labelled ways, and dotted lines to handlers."""
    workflow = (
        WorkflowBuilder("w")
        .task("end", "f")
        .condition("c", "x", lambda b: b.task("t", "f"), lambda b: b)
        .foreach("l", "x", lambda b: b.task("i", "f"))
        .on_failure("h")
        .switch("s", "x", {'a"b': "h2"})
        .task("h", "f")
        .task("h2", "f", dependencies=["s"])
        .build()
    )
    assert workflow.to_mermaid().splitlines() == [
        "flowchart TD",
        '    t_end["end"]',
        '    t_c{"c (condition)"}',
        '    t_t["t"]',
        '    subgraph t_l["l (foreach)"]',
        '        t_i["i"]',
        "    end",
        '    t_s{"s (switch)"}',
        '    t_h["h"]',
        '    t_h2["h2"]',
        "    t_end --> t_c",
        '    t_c -- "true" --> t_t',
        "    t_c --> t_l",
        "    t_l -. failure .-> t_h",
        "    t_l --> t_s",
        '    t_s -- "a&quot;b" --> t_h2',
    ]


def _shuffled(value: Any, random: Any) -> Any:
    if isinstance(value, dict):
        keys = list(value)
        random.shuffle(keys)
        return {key: _shuffled(value[key], random) for key in keys}
    return [_shuffled(inner, random) for inner in value] if isinstance(value, list) else value
