"""What is refused and with which words, row by row."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from highway_dsl import (
    BaseOperator,
    ConditionOperator,
    OperatorType,
    ParallelOperator,
    RetryPolicy,
    SwitchOperator,
    TaskOperator,
    TimeoutPolicy,
    WaitOperator,
    Workflow,
    WorkflowBuilder,
    faults_of,
)
from highway_dsl.cron import cron_fault

TASK = {"operator_type": "task", "task_id": "a", "function": "f"}


def document(**fields: Any) -> str:
    return json.dumps({"name": "w", "tasks": {"a": TASK}, **fields})


def kinds(text: str) -> list[str]:
    """The kinds of the faults a JSON document is refused for."""
    with pytest.raises(ValidationError) as refused:
        Workflow.from_json(text)
    return [fault.kind for fault in faults_of(refused.value)]


@pytest.mark.parametrize("named", ["X", "try_catch", None])
def test_an_unknown_operator_type_is_refused_by_name(named: str | None) -> None:
    """The message is `Unknown operator type: X`, also for a missing type and the reserved one."""
    body = {"task_id": "a"} if named is None else {"task_id": "a", "operator_type": named}
    with pytest.raises(ValueError, match=f"Unknown operator type: {named}"):
        Workflow.model_validate({"name": "w", "tasks": {"a": body}})
    with pytest.raises(ValidationError, match=f"Unknown operator type: {named}"):
        Workflow.from_json(document(tasks={"a": body}))


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        (Workflow, {}),
        (TaskOperator, {"task_id": "a"}),
        (TaskOperator, {"function": "f"}),
        (TimeoutPolicy, {}),
        (ConditionOperator, {"task_id": "a"}),
    ],
)
def test_a_required_field_is_required(model: Any, fields: dict[str, Any]) -> None:
    """Without it the model says `Field required`."""
    with pytest.raises(ValidationError, match="Field required"):
        model(**fields)


def test_the_branches_of_a_condition_are_optional() -> None:
    """`if_true` and `if_false` default to None."""
    condition = ConditionOperator(task_id="c", condition="x")
    assert (condition.if_true, condition.if_false) == (None, None)


def test_branches_and_cases_are_needed_in_a_whole_workflow_only() -> None:
    """The models allow their absence; a document or a build does not."""
    assert {} == ParallelOperator(task_id="p").branches == SwitchOperator(task_id="s", switch_on="x").cases
    parallel = {"operator_type": "parallel", "task_id": "p"}
    switch = {"operator_type": "switch", "task_id": "s", "switch_on": "x"}
    assert kinds(document(tasks={"p": parallel, "s": switch})) == ["field", "field"]


@pytest.mark.parametrize("name", ["1 bad-name!", "", "a b", "1a"])
def test_a_workflow_is_named_by_an_identifier(name: str) -> None:
    """The name is refused at build and load; models and sub-builders take any."""
    assert kinds(document(name=name)) == ["name"]
    with pytest.raises(ValidationError, match="no name for a workflow"):
        WorkflowBuilder(name).build()
    assert Workflow(name=name).name == name
    WorkflowBuilder("w").parallel("p", {"free text!": lambda b: b.task("a", "f")}).build()


@pytest.mark.parametrize("task_id", ["a b", "a$", "", "a-b", "a\n"])
def test_a_task_id_has_no_special_characters(task_id: str) -> None:
    """Only letters, digits and underscores make an id."""
    with pytest.raises(ValidationError, match="no task id"):
        WorkflowBuilder("w").task(task_id, "f").build()


def test_a_task_stands_under_its_own_id() -> None:
    """A mapping key that differs from the task's id is refused."""
    assert kinds(document(tasks={"b": TASK})) == ["task_id"]


@pytest.mark.parametrize(
    "build",
    [
        lambda: WorkflowBuilder("w").task("a", "f").task("a", "g"),
        lambda: WorkflowBuilder("w").parallel("p", {"x": lambda b: b.task("a", "f"), "y": lambda b: b.task("a", "g")}),
        lambda: WorkflowBuilder("w").task("a", "f").foreach("l", "x", lambda b: b.task("a", "g")),
        lambda: WorkflowBuilder("w").condition("c", "x", lambda b: b.task("a", "f").task("a", "f"), lambda b: b),
    ],
)
def test_an_id_is_given_once(build: Any) -> None:
    """A second task of the same id is refused at build, in branches and bodies too."""
    with pytest.raises(ValidationError, match="task 'a': is added twice"):
        build().build()


def test_adding_a_second_task_of_the_same_id_is_refused() -> None:
    """`Workflow.add_task` never replaces a task."""
    workflow = Workflow(name="w").add_task(TaskOperator(task_id="a", function="f"))
    with pytest.raises(ValueError, match="already has a task 'a'"):
        workflow.add_task(TaskOperator(task_id="a", function="g"))


@pytest.mark.parametrize(
    ("field", "task"),
    [
        ("dependencies", {**TASK, "dependencies": ["nobody"]}),
        ("on_success_task_id", {**TASK, "on_success_task_id": "nobody"}),
        ("on_failure_task_id", {**TASK, "on_failure_task_id": "nobody"}),
        ("branches", {"operator_type": "parallel", "task_id": "a", "branches": {"x": ["nobody"]}}),
        ("cases", {"operator_type": "switch", "task_id": "a", "switch_on": "x", "cases": {"1": "nobody"}}),
        ("if_true", {"operator_type": "condition", "task_id": "a", "condition": "x", "if_true": "nobody"}),
        ("join_tasks", {"operator_type": "join", "task_id": "a", "join_tasks": ["nobody"]}),
    ],
)
def test_a_reference_names_a_task(field: str, task: dict[str, Any]) -> None:
    """An unknown id is refused wherever it is named, with the field and the id."""
    with pytest.raises(ValidationError, match=f"task 'a': {field}: there is no task 'nobody'"):
        Workflow.from_json(document(tasks={"a": task}))


def test_an_unknown_default_case_is_refused() -> None:
    """The default of a switch is a reference like its cases."""
    cases = {
        "operator_type": "switch",
        "task_id": "s",
        "switch_on": "x",
        "cases": {"1": "a"},
        "default": "no",
    }
    assert kinds(document(tasks={"a": TASK, "s": cases})) == ["unknown_task"]


def test_the_start_task_exists() -> None:
    """An unknown start_task is refused, with the nearest id as a hint."""
    with pytest.raises(ValidationError, match=r"start_task: there is no task 'ab' \(did you mean 'a'\?\)"):
        Workflow.from_json(document(start_task="ab"))


def test_callbacks_set_after_build_are_checked_by_check() -> None:
    """A workflow may be changed after build; `check` sees it as it is then."""
    workflow = WorkflowBuilder("w").task("a", "f").build()
    assert workflow.check() is workflow
    workflow.tasks["a"].on_failure_task_id = "nobody"
    with pytest.raises(ValidationError, match="there is no task 'nobody'"):
        workflow.check()


@pytest.mark.parametrize("tasks", [[], None, {"a": None}, {"a": []}, {"a": "f"}])
def test_tasks_of_the_wrong_shape_are_a_validation_error(tasks: Any) -> None:
    """Never an AttributeError, whatever stands where tasks should."""
    with pytest.raises(ValidationError):
        Workflow(name="w", tasks=tasks)
    with pytest.raises(ValidationError):
        Workflow.from_json(document(tasks=tasks))


def test_operators_are_accepted_as_tasks() -> None:
    """`Workflow(tasks=...)` takes operators as well as their data."""
    task = TaskOperator(task_id="a", function="f")
    assert task is Workflow(name="w", tasks={"a": task}).tasks["a"]


def test_an_operator_has_its_own_type() -> None:
    """Another type is refused, and assigning one is."""
    with pytest.raises(ValidationError):
        TaskOperator(task_id="a", function="f", operator_type="wait")  # type: ignore[arg-type]
    task = TaskOperator(task_id="a", function="f", operator_type="task")  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="Field is frozen"):
        task.operator_type = OperatorType.WAIT  # type: ignore[assignment]


def test_other_attributes_are_checked_when_the_workflow_is() -> None:
    """Assignment is free (section 15.8 needs it); nonsense is found by `check`."""
    workflow = WorkflowBuilder("w").task("a", "f").task("b", "f").build()
    workflow.tasks["b"].task_id = 5  # type: ignore[assignment]
    workflow.tasks["a"].retry_policy = RetryPolicy()
    workflow.tasks["a"].retry_policy.max_retries = -1
    assert sorted(fault.kind for fault in workflow.faults()) == ["greater_than_equal", "string_type"]


@pytest.mark.parametrize(
    ("cron", "word"),
    [
        ("banana", "fields"),
        ("", "fields"),
        ("0 0 2 * * *", "6 fields"),
        ("61 * * * *", "minute"),
        ("* 25 * * *", "hour"),
        ("* * 32 * *", "day of month"),
        ("* * * 13 *", "month"),
        ("* * * * 9", "day of week"),
        ("H * * * *", "minute"),
        ("R(0-5) * * * *", "minute"),
        ("0 0 31 2 *", "never fires"),
        ("@often", "@daily"),
    ],
)
def test_a_bad_cron_is_refused_by_its_field(cron: str, word: str) -> None:
    """Five fields, each in its range, that fire some day; the message names what is wrong."""
    with pytest.raises(ValidationError, match=word):
        WorkflowBuilder("w").set_schedule(cron).build()
    assert kinds(document(schedule=cron)) == ["cron"]


@pytest.mark.parametrize("cron", ["@daily", "0 0 * * 7", "0 0 * * MON-FRI", "0 0 1 JAN *", "0 0 29 2 *"])
def test_other_valid_crons_are_accepted(cron: str) -> None:
    """Names of months, days and common schedules, Sunday as 7, and leap days are fine."""
    assert cron_fault(cron) is None


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"max_active_runs": 0}, "greater_than_equal"),
        ({"default_retry_policy": {"max_retries": -1}}, "greater_than_equal"),
        ({"default_retry_policy": {"backoff_factor": -1}}, "greater_than_equal"),
        ({"default_retry_policy": {"delay": "-PT5S"}}, "greater_than_equal"),
        ({"default_retry_policy": {"delay": "10"}}, "time_delta_parsing"),
        ({"start_date": "soon"}, "datetime_from_date_parsing"),
        ({"timezone": "Mars/Olympus"}, "timezone"),
        ({"overlap": "sometimes"}, "literal_error"),
        ({"catchup": "sometimes"}, "value_error"),
    ],
)
def test_a_bad_policy_or_setting_is_refused(fields: dict[str, Any], kind: str) -> None:
    """Numbers out of range and words that mean nothing are refused on load."""
    assert [kind] == kinds(document(**fields))


@pytest.mark.parametrize("delay", [10, 10.0, "00:00:10", "PT10S"])
def test_a_delay_has_many_forms(delay: Any) -> None:
    """Numbers, clock times and ISO durations are all ten seconds."""
    assert RetryPolicy(delay=delay).delay.total_seconds() == 10


def test_a_timeout_is_longer_than_nothing() -> None:
    """A timeout of zero would fail every attempt."""
    with pytest.raises(ValidationError):
        TimeoutPolicy(timeout=0)  # type: ignore[arg-type]


def test_a_start_date_in_text_is_refused_by_its_setter() -> None:
    """The setter takes a datetime only, and text assigned behind its back is found at build."""
    with pytest.raises(TypeError, match="start_date is a datetime"):
        WorkflowBuilder("w").set_start_date("2025-01-01")  # type: ignore[arg-type]
    builder = WorkflowBuilder("w")
    builder.workflow.start_date = "2025-01-01"  # type: ignore[assignment]
    with pytest.raises(ValidationError, match="start_date is a datetime"):
        builder.build()


@pytest.mark.parametrize("case", ["yes", "no", "on", "true", "1", "1.0", "2025-01-01", "null", "~", "0x1F"])
def test_the_cases_of_a_switch_are_text(case: str) -> None:
    """A case in YAML means its text, whatever YAML would make of it as a value (section 5.9)."""
    text = f"""
name: w
tasks:
  a: {{operator_type: task, task_id: a, function: f}}
  s: {{operator_type: switch, task_id: s, switch_on: x, cases: {{{case}: a}}}}
"""
    assert {case: "a"} == getattr(Workflow.from_yaml(text).tasks["s"], "cases", None)


def test_unknown_fields_are_ignored_by_models_linted_on_load_and_refused_by_the_builder() -> None:
    """A misspelt field is never silently lost where a person wrote it."""
    assert not hasattr(TaskOperator(task_id="a", function="f", bogus=1), "bogus")  # type: ignore[call-arg]
    loaded = Workflow.load_json(document(tasks={"a": {**TASK, "retries": 3}}, colour="red"))
    assert [str(fault.loc[-1]) for fault in loaded.lint()] == ["colour", "retries"]
    with pytest.raises(TypeError, match="TaskOperator has no field retries"):
        WorkflowBuilder("w").task("a", "f", retries=3)


@pytest.mark.parametrize(
    ("wait", "words"),
    [
        ("duration:abc", "could not convert string to float: 'abc'"),
        ("datetime:bogus", "Invalid isoformat string: 'bogus'"),
        ("duration:nan", "NaN"),
        ("duration:1e400", "infinity"),
        ("duration:1e300", "too large"),
        (None, "wait_for is"),
        ([1], "wait_for is"),
    ],
)
def test_a_wait_that_names_no_time_is_a_validation_error(wait: Any, words: str) -> None:
    """Bad times are refused by the model, with Python's own words."""
    with pytest.raises(ValidationError, match=words):
        WaitOperator(task_id="a", wait_for=wait)


@pytest.mark.parametrize("wait", ["event_name", "{{x}}", "time:25:00:00", "tomorrow"])
def test_other_text_to_wait_for_is_refused_in_a_whole_workflow(wait: str) -> None:
    """The model keeps it (as 1.1.0 does), a build refuses it: templates are not supported (section 5.3)."""
    with pytest.raises(ValidationError, match="neither a duration"):
        WorkflowBuilder("w").wait("a", wait).build()


def test_a_time_of_day_is_something_to_wait_for() -> None:
    """`time:HH:MM:SS` is accepted as it is."""
    built = WorkflowBuilder("w").wait("a", "time:04:00:00").build()
    assert getattr(built.tasks["a"], "wait_for", None) == "time:04:00:00"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {1, object()}, "\ud800"])
def test_a_value_that_json_cannot_write_is_refused_at_build(value: Any) -> None:
    """Rather than turned into null, or an error when the workflow is stored."""
    with pytest.raises(ValidationError, match="args: holds"):
        WorkflowBuilder("w").task("a", "f", args=[value]).build()


def test_one_id_has_one_definition() -> None:
    """A body's task declared differently among the workflow's is refused; declared equally it is one."""
    loop = {"operator_type": "foreach", "task_id": "l", "items": "x", "loop_body": [TASK]}
    assert Workflow.from_json(document(tasks={"l": loop, "a": TASK})).faults() == []
    assert kinds(document(tasks={"l": loop, "a": {**TASK, "function": "g"}})) == ["duplicate_id"]


def test_a_task_is_in_the_body_of_one_loop() -> None:
    """The same id in the bodies of two loops that do not contain each other is refused."""
    loops = {name: {"operator_type": "foreach", "task_id": name, "items": "x", "loop_body": [TASK]} for name in "lm"}
    assert kinds(document(tasks=loops)) == ["duplicate_id"]


def test_everything_is_exported() -> None:
    """`from highway_dsl import *` works and gives the base class too."""
    names: dict[str, Any] = {}
    exec("from highway_dsl import *", names)
    assert names["BaseOperator"] is BaseOperator
    assert OperatorType.TRY_CATCH.value == "try_catch"
