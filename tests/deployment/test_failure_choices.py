"""`fail_fast` and `accept_handled` of deployed workflows: fields of the definition, in every way to write one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from durable import RunFailed
from durablectl import exits
from durablectl.main import run
from highway_dsl import Workflow, WorkflowBuilder
from interpreter.deployment import Deployed, load
from interpreter.secrets import Vault

HASTY = """\
name: hasty
{choice}
tasks:
  bad: {{task_id: bad, operator_type: task, function: tools.fail, args: [no luck]}}
  ear: {{task_id: ear, operator_type: wait_for_event, event_name: never}}
  after: {{task_id: after, operator_type: task, function: tools.echo, dependencies: [ear]}}
"""
HANDLED = """\
name: handled
start_task: bad
{choice}
tasks:
  bad: {{task_id: bad, operator_type: task, function: tools.fail, args: [no luck], on_failure_task_id: cure}}
  cure: {{task_id: cure, operator_type: task, function: tools.echo, args: ["{{{{error_message}}}}"]}}
"""
BUILT = """\
from highway_dsl import WorkflowBuilder

builder = WorkflowBuilder("handled").set_accept_handled()
builder.task("bad", "tools.fail", args=["no luck"]).on_failure("cure")
builder.task("cure", "tools.echo", args=["{{error_message}}"])
workflow = builder.build()
"""


def written(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_text(text)
    return file


async def deployed(runtime: Any, folder: Path, name: str, text: str) -> str:
    """A file deployed to a worker that serves what is deployed; the name of its workflow."""
    (loaded,) = load(written(folder, name, text))
    await runtime.client.deploy(loaded.deployment())
    return loaded.name


async def test_a_deployed_workflow_stops_at_its_first_failure_if_it_says_so(runtime: Any, tmp_path: Path) -> None:
    """The wait for an event that never comes is stopped, and what follows it never starts."""
    await runtime.work(catalogue=Deployed([], Vault(runtime.dsn)))
    name = await deployed(runtime, tmp_path, "hasty.yaml", HASTY.format(choice="fail_fast: true"))
    run_id = await runtime.client.start(name)
    with pytest.raises(RunFailed, match="no luck"):
        await runtime.client.result(run_id, timeout=30)
    rows = await runtime.sql("select step, message from durable.log where run_id = %s and level = 'why'", run_id)
    assert {("ear", "cancelled"), ("after", "cancelled")} <= set(rows)


async def test_without_fail_fast_a_deployed_workflow_goes_on_beside_a_failure(runtime: Any, tmp_path: Path) -> None:
    """The wait goes on, its event lets the rest run, and then the run fails."""
    await runtime.work(catalogue=Deployed([], Vault(runtime.dsn)))
    name = await deployed(runtime, tmp_path, "slow.yaml", HASTY.format(choice="fail_fast: false"))
    run_id = await runtime.client.start(name)
    await runtime.state_is(run_id, "parked")
    await runtime.client.emit("never")
    with pytest.raises(RunFailed, match="no luck"):
        await runtime.client.result(run_id, timeout=30)
    assert "after" in {step.name for step in await runtime.client.steps(run_id)}


@pytest.mark.parametrize("kind", ["yaml", "json", "py"])
async def test_a_deployed_workflow_accepts_handled_failures_if_it_says_so(
    runtime: Any, tmp_path: Path, kind: str
) -> None:
    """In YAML, in JSON and from the builder; the handler has run, and the run succeeds."""
    text = HANDLED.format(choice="accept_handled: true")
    forms = {"yaml": text, "json": Workflow.from_yaml(text).to_json(), "py": BUILT}
    await runtime.work(catalogue=Deployed([], Vault(runtime.dsn)))
    name = await deployed(runtime, tmp_path, f"handled_{kind}.{kind}", forms[kind])
    run_id = await runtime.client.start(name)
    await runtime.client.result(run_id, timeout=30)
    handled = {step.name: step.body for step in await runtime.client.steps(run_id)}
    assert (await runtime.client.state(run_id), handled["cure@bad"]) == ("succeeded", "no luck")


async def test_a_handled_failure_fails_a_deployed_run_otherwise(runtime: Any, tmp_path: Path) -> None:
    """It is what 'failed' means unless the workflow says more."""
    await runtime.work(catalogue=Deployed([], Vault(runtime.dsn)))
    name = await deployed(runtime, tmp_path, "strict.yaml", HANDLED.format(choice="accept_handled: false"))
    with pytest.raises(RunFailed, match="no luck"):
        await runtime.run(name)


def test_the_choice_is_part_of_the_version(tmp_path: Path) -> None:
    """YAML, JSON and Python are one version with it and another without; a false says nothing."""
    text = HANDLED.format(choice="accept_handled: true")
    files = {
        "a.yaml": text,
        "a.json": Workflow.from_yaml(text).to_json(),
        "a.py": BUILT,
        "b.yaml": HANDLED.format(choice="accept_handled: false"),
        "c.yaml": HANDLED.format(choice=""),
        "d.yaml": HANDLED.format(choice="accept_handled: true\nfail_fast: true"),
    }
    version = {name: load(written(tmp_path, name, body))[0].deployment().version for name, body in files.items()}
    assert version["a.yaml"] == version["a.json"] == version["a.py"]
    assert version["b.yaml"] == version["c.yaml"]
    assert len(set(version.values())) == 3


def test_simulate_and_run_honour_the_choice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, durable_dsn: str
) -> None:
    """`durable simulate` says what a run will come to, and `durable run` comes to it."""
    monkeypatch.setenv("DURABLE_DATABASE_URL", durable_dsn)
    fast = str(written(tmp_path, "f.yaml", HASTY.format(choice="fail_fast: true")))
    kind = str(written(tmp_path, "h.yaml", HANDLED.format(choice="accept_handled: true")))
    assert run(["simulate", fast, "--outcome", "bad=fail"]) == exits.FAILED
    assert "cancelled        after  (something else failed" in capsys.readouterr().out
    assert run(["simulate", kind, "--outcome", "bad=fail"]) == exits.OK
    assert run(["simulate", kind, "--outcome", "bad=fail", "--outcome", "cure=fail"]) == exits.FAILED
    capsys.readouterr()
    assert run(["run", fast, "--json"]) == exits.FAILED
    assert json.loads(capsys.readouterr().out)["error"]["message"].startswith("no luck")
    assert run(["run", kind]) == exits.OK
    assert "cure@bad done" in capsys.readouterr().out


def test_a_choice_that_is_none_is_a_fault_with_its_line(tmp_path: Path) -> None:
    """Wrong types are told like those of any field; a choice without effect is doubted."""
    (wrong, doubted) = (HASTY.format(choice=choice) for choice in ("fail_fast: [maybe]", "accept_handled: true"))
    document = Workflow.survey_yaml(wrong, "h.yaml")
    assert [str(fault) for fault in document.faults] == ["h.yaml:2:1: fail_fast: Input should be a valid boolean"]
    assert [str(fault) for fault in Workflow.load_yaml(doubted, "h.yaml").lint()] == [
        "h.yaml:2:1: accept_handled says nothing: no task has an on_failure_task_id"
    ]


def test_unset_choices_are_not_written() -> None:
    """A workflow that says nothing about them is serialised as version 1.1.0 has it."""
    plain = WorkflowBuilder("w").task("a", "f").build()
    assert not {"fail_fast", "accept_handled"} & {*plain.model_dump(), *json.loads(plain.to_json())}
    chosen = WorkflowBuilder("w").set_fail_fast().set_accept_handled().task("a", "f").build()
    assert Workflow.from_yaml(chosen.to_yaml()) == Workflow.from_json(chosen.to_json()) == chosen
    assert (chosen.fail_fast, chosen.accept_handled, chosen == plain) == (True, True, False)
