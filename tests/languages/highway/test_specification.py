"""Every example of the specification builds, is valid, and survives YAML and JSON."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
import yaml
from pydantic import ValidationError

from highway_dsl import BaseOperator, RetryPolicy, TaskOperator, TimeoutPolicy, Workflow
from highway_dsl.check import references
from highway_dsl.cron import cron_fault

from .spec_builders import BUILDERS
from .spec_documents import FRAGMENTS, JSON_11_2, YAML_11_1, YAML_11_3, YAML_15_1, document
from .spec_operators import OPERATORS
from .spec_scenarios import SCENARIOS


def assert_survives(workflow: Workflow) -> None:
    assert workflow.faults() == []
    assert Workflow.from_yaml(workflow.to_yaml()) == workflow
    assert Workflow.from_json(workflow.to_json()) == workflow


@pytest.mark.parametrize("section", BUILDERS)
def test_a_builder_program_of_the_specification_builds(section: str) -> None:
    """Each program of sections 6 to 15 builds a valid workflow that loses nothing in YAML or JSON."""
    assert_survives(BUILDERS[section]())


@pytest.mark.parametrize("section", OPERATORS)
def test_an_operator_of_the_specification_is_valid(section: str) -> None:
    """Each operator of sections 5 and 13 is valid in a workflow that has the tasks it names."""
    operator = OPERATORS[section]
    workflow = Workflow(name="section").add_task(operator)
    inside = {task.task_id for task in getattr(operator, "loop_body", [])}
    for name in sorted({name for _, name in references(operator)} - inside):
        workflow.add_task(TaskOperator(task_id=name, function="f"))
    assert_survives(workflow)


@pytest.mark.parametrize("section", FRAGMENTS)
def test_a_document_of_the_specification_is_the_operator_beside_it(section: str) -> None:
    """Each YAML example of section 5 loads as its Python example (loop ids aside, which either may have)."""
    workflow = Workflow.from_yaml(document(section))
    assert_survives(workflow)
    assert _without_loop_ids(OPERATORS[section]) == _without_loop_ids(workflow.tasks[OPERATORS[section].task_id])


@pytest.mark.parametrize("text", [YAML_11_1, YAML_15_1], ids=["11.1", "15.1"])
def test_a_yaml_document_of_the_specification_is_what_its_program_builds(text: str) -> None:
    """The YAML of sections 11.1 and 15.1 is the workflow built there; fields left out have their defaults."""
    section = "11.1" if text is YAML_11_1 else "15.1"
    assert Workflow.from_yaml(text) == BUILDERS[section]()


def test_the_yaml_of_section_11_1_is_what_to_yaml_writes() -> None:
    """`to_yaml` writes exactly the fields of the example, empty ones too."""
    assert yaml.safe_load(YAML_11_1) == yaml.safe_load(BUILDERS["11.1"]().to_yaml())


def test_the_json_of_section_11_2_is_what_to_json_writes() -> None:
    """`to_json` writes exactly the fields of the example; null fields are left out."""
    assert json.loads(JSON_11_2) == json.loads(BUILDERS["11.1"]().to_json())
    assert Workflow.from_json(JSON_11_2) == BUILDERS["11.1"]()


def test_section_11_3_refuses_an_unknown_operator_type() -> None:
    """An unknown operator type raises a ValidationError with the text the specification gives."""
    with pytest.raises(ValidationError, match="Unknown operator type: INVALID_TYPE"):
        Workflow.from_yaml(YAML_11_3)


def test_the_chain_of_section_12_2_is_its_explicit_form() -> None:
    """Tasks without dependencies follow the task before them."""
    assert BUILDERS["12.2 explicit"]() == BUILDERS["12.2"]()


def test_section_12_3_isolates_the_loop() -> None:
    """The first task of a body depends on the loop and is internal to it."""
    process = BUILDERS["12.3"]().tasks["process"]
    assert (process.dependencies, process.is_internal_loop_task) == (["process_items"], True)


def test_section_12_4_ties_branches_to_their_parallel() -> None:
    """Tasks of branches depend on the parallel, which lists them."""
    tasks = BUILDERS["12.4"]().tasks
    assert getattr(tasks["parallel_transform"], "branches", None) == {"a": ["t_a"], "b": ["t_b"]}
    assert [tasks["t_a"].dependencies, tasks["t_b"].dependencies] == [["parallel_transform"]] * 2


@pytest.mark.parametrize("cron", ["0 2 * * *", "*/15 * * * *", "0 0 * * 1", "0 9-17 * * 1-5"])
def test_the_cron_expressions_of_section_6_1_are_valid(cron: str) -> None:
    """Each cron expression of section 6.1 is accepted."""
    assert cron_fault(cron) is None


def test_the_policies_of_section_4_write_iso_durations() -> None:
    """Policies keep their values and write durations as ISO 8601 (sections 4.4 and 4.5)."""
    retry = RetryPolicy(max_retries=3, delay=timedelta(seconds=10), backoff_factor=2.0)
    timeout = TimeoutPolicy(timeout=timedelta(hours=2), kill_on_timeout=True)
    assert retry.model_dump(mode="json") == {"max_retries": 3, "delay": "PT10S", "backoff_factor": 2.0}
    assert timeout.model_dump(mode="json") == {"timeout": "PT2H", "kill_on_timeout": True}


def test_section_15_has_nine_scenarios() -> None:
    """No scenario of section 15 is left out (15.7 has two workflows)."""
    assert {f"15.{n}" for n in range(1, 10)} == {name.split()[0] for name in SCENARIOS}


def _without_loop_ids(operator: BaseOperator) -> dict[str, object]:
    data = operator.model_dump()
    for inner in data.get("loop_body", []):
        inner["dependencies"] = [name for name in inner["dependencies"] if name != operator.task_id]
    return data
