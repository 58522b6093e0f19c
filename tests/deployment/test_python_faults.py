"""Python files whose workflows are wrong: everything at once, each with the line that made its task."""

from __future__ import annotations

from pathlib import Path

import pytest

from durablectl import exits
from tests.command import UNREACHABLE, Command, Said, calling

WRONG = """\
from highway_dsl import TaskOperator, Workflow, WorkflowBuilder

flow = (
    WorkflowBuilder("1 bad")
    .set_schedule("banana")
    .task("a", "f", args=["{{nope}}"], dependencies=["no"])
    .task("b", 5, retry_polcy=3)
    .condition(
        "c",
        condition="{{a}} > ",
        if_true=lambda b: b.task(
            "yes", "f", args=["{{itm}}"]
        ),
        if_false=lambda b: b.task("yes", "g"),
    )
    .foreach("each", items="{{a}}", loop_body=lambda b: (
        b.task("in1", "f", args=["{{itme}}"])
         .task("in2", "f", on_failure_task_id="nobody")
    ))
    .task("a", "again")
    .build()
)
WorkflowBuilder("unnamed").task("x", "f", args=["{{y}}"], dependencies=["w"]).build()
direct = Workflow(name="direct")
direct.add_task(TaskOperator(task_id="t", function="f", args=["{{z}}"]))
"""
FAULTS = [
    ":4: '1 bad' is no name for a workflow",
    ":4: schedule: 'banana' has 1 fields",
    ":6: task 'a': dependencies: there is no task 'no'",
    ":6: task 'a': args: nothing defines 'nope'",
    ":7: task 'b': TaskOperator has no field 'retry_polcy' (did you mean 'retry_policy'?)",
    ":7: task 'b': function: Input should be a valid string",
    ":8: task 'c': condition: unexpected 'end of template'",
    ":11: task 'yes': args: nothing defines 'itm'",
    ":14: task 'yes': is added twice (first in line 11)",
    ":17: task 'in1': args: nothing defines 'itme' (did you mean 'item'?)",
    ":18: task 'in2': on_failure_task_id: there is no task 'nobody'",
    ":20: task 'a': is added twice (first in line 6)",
    ":25: task 't': args: nothing defines 'z'",
    ":23: task 'x': dependencies: there is no task 'w'",
    ":23: task 'x': args: nothing defines 'y'",
]


@pytest.fixture
def durable(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command in a directory of its own, with a store that would not answer."""
    monkeypatch.chdir(tmp_path)
    return calling(capsys, monkeypatch, UNREACHABLE)


def lines(said: Said, file: str) -> list[str]:
    """The complaints about a file, without what stands before them."""
    return [line.partition(file)[2] for line in said.err.splitlines() if file in line and "cannot be used" not in line]


@pytest.mark.parametrize("verb", ["check", "deploy", "run", "simulate", "graph"])
def test_every_fault_of_a_python_file_is_told_with_its_line(durable: Command, verb: str) -> None:
    """Of the building, of the fields and of the templates, in every workflow of the file, before a write."""
    file = f"wrong_{verb}.py"
    Path(file).write_text(WRONG)
    said = durable(verb, file)
    assert (said.code, said.out, "Traceback" in said.err) == (exits.REFUSED, "", False)
    found = [line for line in lines(said, file) if "start_task" not in line]
    assert len(FAULTS) == len(found), found
    assert all(line.startswith(start) for start, line in zip(FAULTS, found, strict=True)), found


@pytest.mark.parametrize("verb", ["check", "run"])
@pytest.mark.parametrize(
    ("last", "complaint"),
    [
        ("RetryPolicy(max_retries=-1)", ":3: max_retries: Input should be greater than or equal to 0"),
        ("WorkflowBuilder('b').task('y', 'f').retry(max_retries=-1)", ":3: max_retries: Input should be"),
        ("missing", ":3: cannot be run: NameError: name 'missing' is not defined"),
    ],
)
def test_an_error_of_the_program_hides_no_fault_before_it(
    durable: Command, verb: str, last: str, complaint: str
) -> None:
    """What was built until then is judged, and the error has its line."""
    file = f"raises_{verb}_{abs(hash(last))}.py"
    text = "from highway_dsl import RetryPolicy, WorkflowBuilder\n"
    text += f"a = WorkflowBuilder('a').task('x', 'f', args=['{{{{u}}}}'], dependencies=['no']).build()\n{last}\n"
    Path(file).write_text(text)
    said = durable(verb, file)
    found = lines(said, file)
    assert (said.code, len(found)) == (exits.REFUSED, 3), said.err
    assert found[0].startswith(":2: task 'x': dependencies: there is no task 'no'")
    assert found[1].startswith(":2: task 'x': args: nothing defines 'u'")
    assert found[2].startswith(complaint)


@pytest.mark.parametrize("last", ["1/0", "def (", "import nowhere_to_be_found"])
def test_a_program_that_cannot_be_run_says_in_which_line(durable: Command, last: str) -> None:
    """The line is that of the file, whatever went wrong in it."""
    Path("fails.py").write_text(f"x = 1\n{last}\n")
    said = durable("check", "fails.py")
    assert (said.code, said.err.startswith("error: fails.py:2")) == (exits.REFUSED, True), said.err


def test_a_task_made_in_another_file_has_the_line_there(
    durable: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A workflow that two files build is told where each task comes from."""
    monkeypatch.syspath_prepend(tmp_path)
    Path("shared_parts.py").write_text("def ship(builder):\n    return builder.task('ship', 'f', args=['{{lost}}'])\n")
    text = "from highway_dsl import WorkflowBuilder\nfrom shared_parts import ship\n"
    Path("flow.py").write_text(text + "flow = ship(WorkflowBuilder('flow').task('a', '')).build()\n")
    said = durable("check", "flow.py")
    assert "flow.py:3: task 'a': names no function" in said.err
    assert "shared_parts.py:2: task 'ship': args: nothing defines 'lost'" in said.err


def test_two_workflows_of_one_name_in_a_file_are_a_fault(durable: Command) -> None:
    """None of them is dropped in silence; the same one twice is one."""
    start = "from highway_dsl import WorkflowBuilder\na = WorkflowBuilder('s').task('x', 'tools.echo').build()\n"
    Path("two.py").write_text(start + "b = WorkflowBuilder('s').task('y', 'tools.echo').build()\n")
    Path("one.py").write_text(start + "b = a.model_copy()\n")
    said = durable("check", "two.py")
    assert (said.code, "two.py: builds two workflows that are named 's'" in said.err) == (exits.REFUSED, True)
    assert durable("check", "one.py").code == exits.OK
