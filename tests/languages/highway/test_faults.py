"""All faults of a document at once, each with its task and its place."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from pydantic import ValidationError

from highway_dsl import Fault, Position, Workflow, WorkflowBuilder, faults_of

YAML = """\
name: 1 bad
schedule: banana
max_active_runs: 0
tasks:
  a:
    operator_type: task
    task_id: a
    dependencies: [b, nobody]
    retry_policy: {max_retries: -1}
  b:
    operator_type: bogus
  loop:
    operator_type: foreach
    task_id: loop
    items: x
    loop_body:
      - operator_type: task
        task_id: inner
  d:
    operator_type: task
    task_id: d
    function: f
    dependencies: [e]
  e:
    operator_type: task
    task_id: e
    function: f
    dependencies: [d, inner]
    on_failure_task_id: f
  d: {}
"""
EXPECTED = [
    ("name", None, 1, 1),
    ("cron", None, 2, 1),
    ("greater_than_equal", None, 3, 1),
    ("missing", "a", 5, 3),
    ("unknown_task", "a", 8, 23),
    ("greater_than_equal", "a", 9, 20),
    ("value_error", "b", 10, 3),
    ("missing", "inner", 17, 9),
    ("circle", "d", 19, 3),
    ("unknown_task", "e", 29, 5),
    ("duplicate_key", None, 30, 3),
]


def refused(load: Any, text: str | bytes, file: str | None = None) -> list[Fault]:
    with pytest.raises(ValidationError) as error:
        load(text, file)
    return faults_of(error.value)


def test_a_document_is_refused_for_all_its_faults() -> None:
    """Fields, names, references and circles are found together, in the order of the file."""
    found = refused(Workflow.from_yaml, YAML, "flow.yaml")
    places = [(f.kind, f.task_id, f.position and f.position.line, f.position and f.position.column) for f in found]
    assert places == EXPECTED
    assert {"flow.yaml"} == {fault.position.file for fault in found if fault.position}


def test_the_error_reads_like_a_compilers() -> None:
    """Each line of the error starts with file, line and column, and names the task."""
    with pytest.raises(ValidationError) as error:
        Workflow.from_yaml(YAML, "flow.yaml")
    assert "flow.yaml:8:23: task 'a': dependencies: there is no task 'nobody'" in str(error.value)
    assert "flow.yaml:17:9: task 'inner': function: Field required" in str(error.value)
    assert "flow.yaml:10:3: task 'b': Unknown operator type: bogus" in str(error.value)


def test_an_error_can_be_sent_as_json() -> None:
    """What the error carries are plain values."""
    with pytest.raises(ValidationError) as error:
        Workflow.from_yaml(YAML)
    sent = json.loads(error.value.json(include_url=False))
    assert tuple(sent[4]["ctx"][name] for name in ("line", "column", "task_id")) == (8, 23, "a")


def test_json_has_the_same_faults_at_its_own_places() -> None:
    """A JSON document is refused for the same things, with its lines and columns."""
    text = '{"name": "w",\n "tasks": {\n  "a": {"task_id": "a", "operator_type": "task",\n   "function": "f",'
    text += '\n   "dependencies": ["a",\n     "nobody"]}}}'
    found = refused(Workflow.from_json, text, "flow.json")
    assert [("circle", Position(3, 3, "flow.json")), ("unknown_task", Position(6, 6, "flow.json"))] == [
        (fault.kind, fault.position) for fault in found
    ]


def test_every_task_has_its_place() -> None:
    """A loaded document knows line and column of each task, in bodies too, for YAML and JSON."""
    built = WorkflowBuilder("w").task("a", "f").foreach("l", "x", lambda b: b.task("b", "f")).build()
    documents = [Workflow.load_yaml(built.to_yaml(), "x.yaml"), Workflow.load_json(built.to_json(), "x.json")]
    for document, text in zip(documents, (built.to_yaml(), built.to_json()), strict=True):
        for task_id in built.tasks:
            position = document.position(task_id)
            assert position is not None
            written = text.splitlines()[position.line - 1][position.column - 1 :]
            assert re.match(rf'"?{task_id}"?:', written)
        assert document.position("nobody") is None
    inline = "name: w\ntasks:\n  l:\n    operator_type: while\n    task_id: l\n    condition: x\n    loop_body:\n"
    inline += "    - operator_type: task\n      task_id: b\n      function: f\n"
    assert Position(8, 7) == Workflow.load_yaml(inline).position("b")


@pytest.mark.parametrize(
    ("load", "text", "kind", "line", "column"),
    [
        (Workflow.from_yaml, "name: w\ntasks: [", "yaml_syntax", 3, 1),
        (Workflow.from_yaml, "name: w\n\ttasks: {}", "yaml_syntax", 2, 1),
        (Workflow.from_yaml, "name: w\n---\nname: v", "yaml_syntax", 2, 1),
        (Workflow.from_yaml, "name: !!python/name:os.system x", "yaml_tag", 1, 7),
        (Workflow.from_yaml, "name: w\ntasks: !!python/object:x {}", "yaml_tag", 2, 8),
        (Workflow.from_yaml, "name: *x", "yaml_alias", 1, 7),
        (Workflow.from_yaml, "name: w\nvariables: &v {x: *v}", "yaml_alias", 2, 19),
        (Workflow.from_yaml, "name: w\nvariables: {[a]: 1}", "yaml_key", 2, 13),
        (Workflow.from_yaml, "name: \x07", "yaml_syntax", 1, 7),
        (Workflow.from_yaml, b"name: w\nx: \xff", "encoding", 2, 1),
        (Workflow.from_yaml, "", "model_type", 1, 1),
        (Workflow.from_yaml, "[]", "model_type", 1, 1),
        (Workflow.from_json, '{"name": "w",\n "tasks": }', "json_syntax", 2, 11),
        (Workflow.from_json, '{"name": "w"} x', "json_syntax", 1, 15),
        (Workflow.from_json, '{"name": "w"', "json_syntax", 1, 13),
        (Workflow.from_json, "{'name': 1}", "json_syntax", 1, 2),
        (Workflow.from_json, '{"name": "w\n"}', "json_syntax", 1, 12),
        (Workflow.from_json, '{"name": NaN}', "json_syntax", 1, 10),
        (Workflow.from_json, '{"name": 01}', "json_syntax", 1, 11),
        (Workflow.from_json, '{"a": ' + "1" * 5000 + "}", "json_syntax", 1, 7),
        (Workflow.from_json, '{"name": "\\ud800"}', "json_syntax", 1, 10),
        (Workflow.from_json, "", "json_syntax", 1, 1),
        (Workflow.from_json, "null", "model_type", 1, 1),
    ],
)
def test_a_text_that_is_no_document_says_where(load: Any, text: str | bytes, kind: str, line: int, column: int) -> None:
    """Syntax errors are validation errors too, with their place."""
    found = refused(load, text)
    assert [(kind, Position(line, column))] == [(fault.kind, fault.position) for fault in found]


def test_a_key_given_twice_is_refused_in_json_too() -> None:
    """The second of two equal keys would silently win."""
    found = refused(Workflow.from_json, '{"name": "w",\n "name": "v"}')
    assert [("duplicate_key", Position(2, 2))] == [(fault.kind, fault.position) for fault in found]


def test_a_broken_loop_does_not_make_its_tasks_unknown() -> None:
    """References to tasks inside a loop of the wrong shape are not faults of their own."""
    text = """
name: w
tasks:
  l:
    operator_type: foreach
    task_id: l
    loop_body: [{operator_type: task, task_id: a, function: f}]
  b: {operator_type: task, task_id: b, function: f, on_failure_task_id: a}
"""
    assert [fault.kind for fault in refused(Workflow.from_yaml, text)] == ["missing"]


def test_a_braced_message_is_not_a_template() -> None:
    """What authors write may hold braces; messages show it as it is."""
    with pytest.raises(ValidationError, match=re.escape("'{{x}}' is neither")):
        WorkflowBuilder("w").wait("a", "{{x}}").build()


def test_faults_of_pydantics_own_errors_can_be_read() -> None:
    """An error raised by a model, not by us, gives faults as well."""
    with pytest.raises(ValidationError) as error:
        Workflow.model_validate({"name": "w", "tasks": {"a": {"operator_type": "task", "task_id": "a"}}})
    (fault,) = faults_of(error.value)
    assert (
        fault.loc,
        fault.task_id,
        fault.message,
    ) == (("tasks", "a", "function"), "a", "function: Field required")
