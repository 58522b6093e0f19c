"""What `durable check` says: everything at once, each with its task and its place, from one look at each file."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from durablectl import exits
from highway_dsl import Workflow
from interpreter.highway import check_workflow
from tests.command import UNREACHABLE, Said, calling

FAULTY = """\
name: faulty
variables: {city: Oslo}
schedule: banana
tasks:
  first:
    operator_type: task
    task_id: first
    args: ["{{ctiy}}"]
    result_key: found
  second:
    operator_type: condition
    task_id: second
    condition: "{{fuond}} > 3"
    if_true: nobody
    dependencies: [first]
  loop:
    operator_type: foreach
    task_id: loop
    items: 5
    loop_body:
      - {task_id: inner, operator_type: task, function: f, args: ["{{item}}", "{{itm}}"], on_failure_task_id: cure}
      - {task_id: other, operator_type: tsk}
  cure: {task_id: cure, operator_type: task, function: f, args: ["{{error_message}} {{item}}"]}
  wait:
    task_id: wait
    operator_type: wait_for_event
    event_name: never_said
    dependencies: [loop, secnd]
  s: {task_id: s, operator_type: switch, switch_on: "{{found}}", cases: {x: p, y: q}, dependencies: [first]}
  p: {task_id: p, operator_type: task, function: f, dependencies: [s]}
  q: {task_id: q, operator_type: task, function: f, dependencies: [s]}
  end: {task_id: end, operator_type: task, function: f, dependencies: [q], kwargs: {x: "{{broken"}}
"""
FAULTS = [
    ":3:1: schedule: 'banana' has 1 fields",
    ":5:3: task 'first': function: Field required",
    ":5:3: task 'first': args: nothing defines 'ctiy' (did you mean 'city'?)",
    ":10:3: task 'second': condition: nothing defines 'fuond' (did you mean 'found'?)",
    ":14:5: task 'second': if_true: there is no task 'nobody'",
    ":19:5: task 'loop': items: Input should be a valid string",
    ":21:9: task 'inner': args: nothing defines 'itm' (did you mean 'item'?)",
    ":22:9: task 'other': loop_body: Unknown operator type: tsk",
    ":28:26: task 'wait': dependencies: there is no task 'secnd' (did you mean 'second'?)",
    ":32:3: task 'end': kwargs: ",
]
WARNINGS = [
    ":24:3: task 'wait': nobody is known to emit 'never_said'",
    ":32:3: task 'end': runs only after 'q'",
]


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Said]:
    """`durable check` on files of a directory of its own; it needs no database."""
    monkeypatch.chdir(tmp_path)
    durable = calling(capsys, monkeypatch, UNREACHABLE)

    def call(*arguments: str, **files: str) -> Said:
        for name, text in files.items():
            (tmp_path / name.replace("_", ".")).write_text(text)
        return durable("check", *arguments)

    return call


def test_faults_of_shape_and_of_meaning_are_told_together(check: Callable[..., Said]) -> None:
    """Fields, references, templates, events and joins: one look finds them all, in the order of the file."""
    said = check("a.yaml", a_yaml=FAULTY)
    assert said.code == exits.REFUSED
    errors = [line for line in said.err.splitlines() if line.startswith("error: ")]
    warnings = [line for line in said.err.splitlines() if line.startswith("warning: ")]
    assert len(FAULTS) == len(errors)
    assert len(WARNINGS) == len(warnings)
    assert all(line.startswith(f"error: a.yaml{start}") for start, line in zip(FAULTS, errors, strict=True)), errors
    assert all(line.startswith(f"warning: a.yaml{start}") for start, line in zip(WARNINGS, warnings, strict=True))
    assert said.out == ""


def test_a_faulty_file_hides_nothing_of_another(check: Callable[..., Said]) -> None:
    """An event that a faulty workflow emits is known to the others, and a sound one is listed."""
    waits = "name: waits\ntasks:\n  w: {task_id: w, operator_type: wait_for_event, event_name: ping}\n"
    emits = "name: emits\ntasks:\n  e: {task_id: e, operator_type: emit_event, event_name: ping}\n  x: {task_id: x}\n"
    said = check("a.yaml", "b.yaml", a_yaml=waits, b_yaml=emits)
    assert (said.code, "warning" in said.err, said.out.split()[:2]) == (exits.REFUSED, False, ["ok", "waits"])
    assert "b.yaml:4:3: task 'x': Unknown operator type: None" in said.err


def test_two_workflows_of_one_name_are_a_fault_like_others(check: Callable[..., Said]) -> None:
    """It names both files, and the rest is said too."""
    text = "name: same\ntasks:\n  e: {task_id: e, operator_type: task, function: f, args: ['{{x}}']}\n"
    said = check("a.yaml", "b.yaml", a_yaml=text, b_yaml=text)
    assert said.code == exits.REFUSED
    assert "b.yaml: workflow 'same' is also in a.yaml" in said.err
    assert said.err.count("nothing defines 'x'") == 2


@pytest.mark.parametrize("others", [[], ["other.yaml"]])
def test_a_python_file_is_run_once(check: Callable[..., Said], others: list[str]) -> None:
    """Whatever it does besides building a workflow is done once, alone or next to other files."""
    flow = "from highway_dsl import WorkflowBuilder\nfrom pathlib import Path\n"
    flow += "with Path('ran').open('a') as ran: ran.write('x')\n"
    flow += "workflow = WorkflowBuilder('flow').task('one', 'tools.echo').build()\n"
    other = "name: other\ntasks:\n  e: {task_id: e, operator_type: task, function: f}\n"
    said = check("flow.py", *others, flow_py=flow, other_yaml=other)
    assert (said.code, Path("ran").read_text()) == (exits.OK, "x"), said.err


def parts(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in inner:
        yield from parts(value, (*path, key))


SOUND = yaml.safe_load(FAULTY)
PLACES = [path for path in parts(SOUND) if path and path[:2] != ("tasks", "end") and path != ("tasks",)]
junk = st.one_of(
    st.none(),
    st.integers(-2, 2),
    st.sampled_from(["", "x", "first", "{{x", "{{nope}}", "task"]),
    st.sampled_from([[], {}, [1], ["first"], {"a": 1}, {"a": ["b"]}, [{"task_id": "z"}], 1.5, True]),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(PLACES), junk), min_size=1, max_size=4))
def test_no_damage_hides_the_faults_of_another_task(damage: list[tuple[tuple[Any, ...], Any]]) -> None:
    """Whatever is wrong elsewhere, a template that does not parse is reported, and nothing breaks down."""
    document = copy.deepcopy(SOUND)
    for path, value in damage:
        place = document
        try:
            for part in path[:-1]:
                place = place[part]
            place[path[-1]] = copy.deepcopy(value)  # later damage may go into it
        except (KeyError, IndexError, TypeError):
            continue
    try:
        found = check_workflow(Workflow.survey_json(json.dumps(document), "f.json"))
    except ValidationError:
        assert not isinstance(document.get("tasks"), dict)
        return
    assert ("end", "template") in {(fault.task_id, fault.kind) for fault in found.faults}


def test_a_field_that_nothing_reads_is_doubted_wherever_it_stands(check: Callable[..., Said]) -> None:
    """Of the workflow, of a task, of a task in a body and of a policy, each with its line and the nearest known one."""
    text = """\
name: slips
fail_fsat: true
default_retry_policy: {max_retrys: 5}
tasks:
  a: {task_id: a, operator_type: task, function: f, queue: gpu}
  each:
    task_id: each
    operator_type: foreach
    items: "{{[1]}}"
    loop_body:
      - task_id: b
        operator_type: task
        function: f
        timeout_policy: {timeout: PT1S, kill_on_timout: false}
"""
    said = check("a.yaml", a_yaml=text)
    assert said.code == exits.OK
    assert [line.removeprefix("warning: a.yaml") for line in said.err.splitlines()] == [
        ":2:1: nothing reads the field 'fail_fsat' (did you mean 'fail_fast'?)",
        ":3:24: nothing reads the field 'max_retrys' (did you mean 'max_retries'?)",
        ":5:53: task 'a': nothing reads the field 'queue'",
        ":14:41: task 'b': nothing reads the field 'kill_on_timout' (did you mean 'kill_on_timeout'?)",
    ]
