"""The serialised forms of values, row by row."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
import yaml

from highway_dsl import (
    ForEachOperator,
    OperatorType,
    RetryPolicy,
    TaskOperator,
    WaitOperator,
    Workflow,
    WorkflowBuilder,
)

DURATIONS = [
    (timedelta(seconds=10), "PT10S"),
    (timedelta(minutes=5), "PT5M"),
    (timedelta(seconds=90), "PT1M30S"),
    (timedelta(days=1), "P1D"),
    (timedelta(days=1, hours=2, seconds=3), "P1DT2H3S"),
    (timedelta(seconds=1.5), "PT1.5S"),
    (timedelta(0), "PT0S"),
    (-timedelta(seconds=5), "-PT5S"),
    (timedelta(days=400), "P1Y35D"),
]
INDIA = timezone(timedelta(hours=5, minutes=30))
MOMENTS = [
    (datetime(2025, 1, 1), "2025-01-01T00:00:00", "datetime:2025-01-01T00:00:00"),
    (datetime(2025, 1, 1, tzinfo=UTC), "2025-01-01T00:00:00Z", "datetime:2025-01-01T00:00:00+00:00"),
    (datetime(2025, 1, 1, tzinfo=INDIA), "2025-01-01T00:00:00+05:30", "datetime:2025-01-01T00:00:00+05:30"),
    (datetime(2025, 1, 1, 0, 0, 0, 7), "2025-01-01T00:00:00.000007", "datetime:2025-01-01T00:00:00.000007"),
]


def written(workflow: Workflow) -> tuple[Any, Any]:
    """What YAML and JSON say, read by parsers that know nothing of us."""
    return yaml.safe_load(workflow.to_yaml()), json.loads(workflow.to_json())


@pytest.mark.parametrize(("length", "text"), [row for row in DURATIONS if row[0] >= timedelta(0)])
def test_durations_of_policies_are_iso_8601(length: timedelta, text: str) -> None:
    """A duration is written in ISO 8601, years of 365 days, and read back the same."""
    workflow = WorkflowBuilder("w").task("a", "f").retry(delay=length).build()
    assert [text, text] == [data["tasks"]["a"]["retry_policy"]["delay"] for data in written(workflow)]
    assert length == RetryPolicy(delay=text).delay  # type: ignore[arg-type]


@pytest.mark.parametrize(("length", "text"), DURATIONS)
def test_a_wait_for_a_duration_is_iso_8601_and_loads_as_a_duration(length: timedelta, text: str) -> None:
    """A wait is written like any duration; loading gives the duration back, never text."""
    workflow = WorkflowBuilder("w").wait("a", length).build()
    assert [text, text] == [data["tasks"]["a"]["wait_for"] for data in written(workflow)]
    for loaded in (Workflow.from_yaml(workflow.to_yaml()), Workflow.from_json(workflow.to_json())):
        assert length == getattr(loaded.tasks["a"], "wait_for", None)


@pytest.mark.parametrize(("moment", "text", "prefixed"), MOMENTS)
def test_a_wait_for_a_moment_is_iso_8601_and_loads_as_a_moment(moment: datetime, text: str, prefixed: str) -> None:
    """A moment is written as quoted text with its offset and microseconds, and loads as a datetime."""
    workflow = WorkflowBuilder("w").wait("a", moment).build()
    assert [text, text] == [data["tasks"]["a"]["wait_for"] for data in written(workflow)]
    assert f"wait_for: '{text}'" in workflow.to_yaml()
    assert prefixed == workflow.tasks["a"].model_dump()["wait_for"]
    for loaded in (Workflow.from_yaml(workflow.to_yaml()), Workflow.from_json(workflow.to_json())):
        assert moment == getattr(loaded.tasks["a"], "wait_for", None)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("duration:60", timedelta(seconds=60)),
        ("duration:3600.0", timedelta(hours=1)),
        ("datetime:2025-01-01T00:00:00", datetime(2025, 1, 1)),
        ("PT1H", timedelta(hours=1)),
        ("P1D", timedelta(days=1)),
        ("P1W", timedelta(weeks=1)),
        ("-PT5S", timedelta(seconds=-5)),
        ("2025-01-01T00:00:00Z", datetime(2025, 1, 1, tzinfo=UTC)),
        ("2025-01-01", datetime(2025, 1, 1)),
        (5, timedelta(seconds=5)),
        (1.5, timedelta(seconds=1.5)),
        (True, timedelta(seconds=1)),
        ("event_name", "event_name"),
        ("time:04:00:00", "time:04:00:00"),
        ("{{x}}", "{{x}}"),
        ("PRODUCTION", "PRODUCTION"),
        ("", ""),
    ],
)
def test_every_form_of_a_wait_is_read(given: object, meant: object) -> None:
    """Prefixed, ISO and numeric forms are times; other text stays as it is."""
    assert meant == WaitOperator.model_validate({"task_id": "a", "wait_for": given}).wait_for


def test_an_unquoted_yaml_timestamp_is_a_moment() -> None:
    """A wait written as a bare timestamp means the moment."""
    text = "name: w\ntasks: {a: {operator_type: wait, task_id: a, wait_for: 2025-01-01T00:00:00}}"
    assert datetime(2025, 1, 1) == getattr(Workflow.from_yaml(text).tasks["a"], "wait_for", None)


def test_the_dump_of_a_wait_has_the_prefixed_form() -> None:
    """`WaitOperator.model_dump()` gives `duration:<seconds>`, always a float."""
    wait = WaitOperator(task_id="a", wait_for=timedelta(hours=1))
    assert wait.model_dump()["wait_for"] == "duration:3600.0"
    assert "wait_for" not in wait.model_dump(exclude={"wait_for"})


@pytest.mark.parametrize(("moment", "text", "_"), MOMENTS)
def test_a_start_date_is_iso_8601(moment: datetime, text: str, _: str) -> None:
    """A start date is written like any moment and loads as a datetime."""
    workflow = WorkflowBuilder("w").set_start_date(moment).build()
    assert [text, text] == [data["start_date"] for data in written(workflow)]
    assert moment == Workflow.from_yaml(workflow.to_yaml()).start_date


def test_a_loaded_operator_type_equals_the_enumeration() -> None:
    """A type is written as its text, and a loaded one is the member of the enumeration."""
    workflow = WorkflowBuilder("w").task("a", "f").build()
    assert [data["tasks"]["a"]["operator_type"] for data in written(workflow)] == ["task", "task"]
    loaded = Workflow.from_yaml(workflow.to_yaml()).tasks["a"].operator_type
    assert (OperatorType.TASK, "task", OperatorType) == (loaded, loaded, type(loaded))


def test_empty_fields_are_left_out_and_nulls_of_the_author_stay() -> None:
    """Fields without a value are not written; `None` inside arguments and variables is `null`."""
    workflow = WorkflowBuilder("w").task("a", "f", args=[None], kwargs={"x": None}).build()
    workflow.set_variables({"y": None})
    for data in written(workflow):
        assert {"args", "dependencies", "description", "function", "kwargs", "metadata", "operator_type"} | {
            "task_id"
        } == set(data["tasks"]["a"])
        assert (
            data["tasks"]["a"]["args"],
            data["tasks"]["a"]["kwargs"],
            data["variables"],
        ) == ([None], {"x": None}, {"y": None})


def test_the_fields_of_a_written_workflow() -> None:
    """A workflow that sets nothing writes exactly these fields."""
    fields = "catchup description is_paused max_active_runs name start_task tags tasks variables version"
    for data in written(WorkflowBuilder("w").task("a", "f").build()):
        assert fields.split() == sorted(data)


def test_yaml_is_sorted_and_json_in_the_order_of_the_model() -> None:
    """YAML sorts at every level, tasks too; JSON keeps the order of models and of tasks."""
    workflow = WorkflowBuilder("w").task("z", "f", result_key="r").task("a", "f").build()
    top = [line.split(":")[0] for line in workflow.to_yaml().splitlines() if line[0].isalpha()]
    assert sorted(top) == top
    assert list(Workflow.from_yaml(workflow.to_yaml()).tasks) == ["a", "z"]
    data = json.loads(workflow.to_json())
    assert list(data["tasks"]) == ["z", "a"]
    assert [
        *("task_id", "operator_type", "dependencies", "metadata", "description"),
        *("function", "args", "kwargs", "result_key"),
    ] == list(data["tasks"]["z"])
    assert workflow.to_json().startswith('{\n  "name"')


def test_the_mark_of_internal_tasks_is_never_written() -> None:
    """`is_internal_loop_task` is derived from the bodies, not stored."""
    workflow = WorkflowBuilder("w").foreach("l", "x", lambda b: b.task("a", "f")).build()
    assert "is_internal_loop_task" not in workflow.to_yaml() + workflow.to_json()
    assert Workflow.from_json(workflow.to_json()).tasks["a"].is_internal_loop_task


def test_templates_are_single_quoted_and_other_letters_escaped() -> None:
    """YAML quotes templates and escapes what is not ASCII; JSON does not."""
    workflow = WorkflowBuilder("w").task("a", "f", args=["{{x}}", "é"]).build()
    assert "'{{x}}'" in workflow.to_yaml()
    assert r'"\xE9"' in workflow.to_yaml()
    assert '"é"' in workflow.to_json()


def test_a_loaded_loop_shares_its_body_with_the_workflow() -> None:
    """A change to a loaded task is a change to the loop that runs it."""
    built = WorkflowBuilder("w").foreach("l", "x", lambda b: b.task("a", "f")).build()
    loaded = Workflow.from_yaml(built.to_yaml())
    loop = loaded.tasks["l"]
    assert isinstance(loop, ForEachOperator)
    assert loop.loop_body[0] is loaded.tasks["a"]


def test_a_copy_of_a_task_changed_after_loading_is_written_in_both_places() -> None:
    """Setting a callback on a task of a body reaches the inline copy too."""
    built = WorkflowBuilder("w").foreach("l", "x", lambda b: b.task("a", "f")).task("h", "f").build()
    loaded = Workflow.from_json(built.to_json())
    loaded.tasks["a"].on_failure_task_id = "h"
    assert loaded.faults() == []
    assert loaded.to_yaml().count("on_failure_task_id: h") == 2


def test_fields_of_later_versions_are_written_only_where_they_say_something() -> None:
    """A plain task dumps exactly the fields of 1.1.0."""
    fields = "task_id operator_type dependencies retry_policy timeout_policy metadata description"
    fields += " on_success_task_id on_failure_task_id function args kwargs result_key"
    assert fields.split() == list(TaskOperator(task_id="a", function="f").model_dump())
