"""The examples as a newcomer runs them: by the command that their first lines name."""

from __future__ import annotations

import importlib
import shlex
from pathlib import Path
from typing import Any

import pytest

import examples.highway
from durablectl import exits
from highway_dsl import WorkflowBuilder
from interpreter.highway import compile_workflow
from interpreter.highway.inputs import needed_inputs
from tests.command import Command, calling

FOLDER = Path(examples.highway.__file__).parent
DAY = "data_interval_start=2025-01-02T00:00:00Z"


@pytest.fixture
def durable(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, durable_dsn: str) -> Command:
    """The command in the repository, with a store of its own."""
    monkeypatch.chdir(FOLDER.parents[1])
    return calling(capsys, monkeypatch, durable_dsn)


def command_of(name: str) -> list[str]:
    """What an example says to type."""
    module: Any = importlib.import_module(f"examples.highway.{name}")
    return shlex.split(module.__doc__.split("durable run ")[1].splitlines()[0])


@pytest.mark.parametrize(
    ("name", "steps", "result"),
    [
        ("etl", ["extract done", "attempt 2", "report@load done"], '{"count": 4}'),
        ("order_router", ["ship done", "notify done"], '"told the customer of 1"'),
        ("bank_batch", ["adjust done", "close_month done", "regions[2]/risk_report done"], '"thaw"'),
    ],
)
def test_an_example_runs_as_it_says(durable: Command, name: str, steps: list[str], result: str) -> None:
    """Its steps are shown while it runs, and its result at the end."""
    said = durable("run", *command_of(name))
    assert said.code == exits.OK, said.err
    assert all(step in said.out for step in steps)
    assert said.out.splitlines()[-1] == result
    assert "warning" not in said.err


def test_the_fan_out_is_served_by_whoever_runs_one_of_it(durable: Command) -> None:
    """One file with four workflows: one is named, all are deployed, and those started by name run there too."""
    assert durable("deploy", "examples/highway/fan_out.py").code == exits.OK
    for name in ("prices", "risk", "ingest"):
        assert durable("run", name, "--input", DAY).code == exits.OK
    said = durable("run", *command_of("fan_out"))
    assert (said.code, said.out.splitlines()[-1]) == (exits.OK, '"prices 12, risk 18"'), said.err
    assert "warning" not in said.err


def test_an_example_without_its_input_says_what_to_add(durable: Command) -> None:
    """Before anything is deployed or started."""
    said = durable("run", "examples/highway/bank_batch.py")
    assert said.code == exits.REFUSED
    assert (
        said.err
        == "durable: 'bank_batch' needs 'breaks', 'day_kind': add --input breaks=VALUE --input day_kind=VALUE\n"
    )
    assert durable("run", "bank_batch").code == exits.REFUSED
    said = durable("run", "examples/highway/etl.py", "--input", "table=x", "--input", "tabel=y", "--wait")
    assert "'etl' reads no input 'tabel'; it reads table" in said.err


def test_a_file_of_many_says_which_there_are(durable: Command) -> None:
    """And refuses one that it does not have."""
    said = durable("run", "examples/highway/fan_out.py")
    assert (said.code, "fan_out.py:report" in said.err) == (exits.USAGE, True)
    said = durable("run", "examples/highway/fan_out.py:nobody")
    assert (said.code, "it has ingest, prices, risk, report" in said.err) == (exits.USAGE, True)


def test_an_input_that_a_deployed_workflow_needs_is_asked_for(durable: Command) -> None:
    """By name too: nothing is started without it. What only one branch reads is not asked for."""
    durable("deploy", "examples/highway/etl.py")
    said = durable("run", "etl")
    assert (said.code, "missing 'table'" in said.err) == (exits.REFUSED, True)
    assert durable("runs", "list", "--json").out.strip() == "[]"


def test_only_inputs_that_every_run_reads_are_needed() -> None:
    """Not those of one branch, of a loop's body, of a handler, with a default, or in a condition."""
    workflow = (
        WorkflowBuilder("w")
        .task("a", "f", args=["{{inputs.first}} and {{ inputs.deep.er }}"], kwargs={"x": ["{{inputs.listed}}"]})
        .on_failure("cure")
        .parallel("p", branches={"x": lambda b: b.task("b", "f", args=["{{inputs.branch}}"])})
        .condition(
            "c",
            condition="{{inputs.asked}}",
            if_true=lambda b: b.task("t", "f", args=["{{inputs.one_way}}"]),
            if_false=lambda b: b,
        )
        .foreach("each", items="{{inputs.items}}", loop_body=lambda b: b.task("i", "f", args=["{{inputs.inner}}"]))
        .task("d", "f", args=["{{inputs.default | default(1)}}", "{{inputs.x if inputs.y else 1}}"])
        .task("cure", "f", args=["{{inputs.rescue}}"])
        .build()
    )
    assert needed_inputs(compile_workflow(workflow)) == ["branch", "deep", "first", "items", "listed"]
    ending = WorkflowBuilder("w").terminate("end").task("a", "f", args=["{{inputs.x}}"], dependencies=[]).build()
    assert needed_inputs(compile_workflow(ending)) == []
