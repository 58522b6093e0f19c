"""Deployed workflows whose activities have a queue: served by `durable worker --queue`, explained, drawn, refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from durablectl.explaining import Reason, explained, told_of
from durablectl.picture import svg_of
from highway_dsl import Workflow
from interpreter.deployment import Deployed, Unloadable, load
from interpreter.highway import compile_workflow
from interpreter.plan import Plan
from interpreter.secrets import Vault

MINE = "tests.deployment.leaky"
FLOW = f"""
name: far
tasks:
  first: {{task_id: first, operator_type: task, function: tools.echo, args: [seven]}}
  measure:
    task_id: measure
    operator_type: activity
    function: {MINE}.measured
    args: ["{{{{secrets.TOKEN}}}}", "{{{{first}}}}"]
    result_key: length
    queue: gpu
    dependencies: [first]
  last: {{task_id: last, operator_type: task, function: tools.echo, args: ["{{{{length}}}}"], dependencies: [measure]}}
"""


@pytest.fixture
async def deployed(runtime: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The store with the workflow in it, and a worker that serves no queue but the default one."""
    monkeypatch.setenv("DURABLE_SECRET_TOKEN", "sesame")
    file = tmp_path / "far.yaml"
    file.write_text(FLOW)
    (loaded,) = load(file)
    await runtime.client.deploy(loaded.deployment())
    await runtime.work(catalogue=Deployed([], Vault(runtime.dsn)))
    return runtime


async def why(runtime: Any, run_id: str, task: str | None = None) -> dict[str, Reason]:
    return {reason.node: reason for reason in await explained(await told_of(runtime.client, run_id), task)}


async def test_a_deployed_activity_is_served_by_a_worker_of_its_queue(deployed: Any) -> None:
    """Only that worker needs the function and the secret; the run goes on where it was."""
    run = await deployed.client.start("far")
    await deployed.state_is(run, "parked")
    (branch,) = await deployed.client.branches(run)
    assert (branch.queue, branch.state) == ("gpu", "ready")
    await deployed.work(catalogue=Deployed([MINE], Vault(deployed.dsn)), queues=("gpu",))
    assert await deployed.client.result(run, timeout=30) == [6, 5]
    (branch,) = await deployed.client.branches(run)
    assert (branch.queue, branch.state) == ("gpu", "succeeded")
    assert (await deployed.client.run(run)).queue == "default"


async def test_an_activity_without_a_worker_is_explained_by_its_queue(deployed: Any) -> None:
    """It waits for a worker of that queue, and so does what follows; once it ran, the call is there too."""
    run = await deployed.client.start("far")
    await deployed.state_is(run, "parked")
    found = await why(deployed, run)
    assert list(found) == ["first", "measure", "last"]
    assert found["measure"].state == "waiting"
    assert found["measure"].waits_for[0].endswith("of far (ready for a worker that serves queue 'gpu')")
    assert found["last"].waits_for == found["measure"].waits_for
    await deployed.work(catalogue=Deployed([MINE], Vault(deployed.dsn)), queues=("gpu",))
    await deployed.client.result(run, timeout=30)
    found = await why(deployed, run, "measure")
    assert {name: reason.state for name, reason in found.items()} == {"measure": "done", "measure#0/measure": "done"}


async def test_a_failed_activity_is_called_again_by_a_retry(deployed: Any) -> None:
    """A worker of the queue that has no such function fails the run; retried, another one makes the call."""
    await deployed.work(catalogue=Deployed([], Vault(deployed.dsn)), queues=("gpu",))
    run = await deployed.client.start("far")
    await deployed.state_is(run, "failed")
    await deployed.stop()
    await deployed.client.retry(run)
    await deployed.work(catalogue=Deployed([MINE], Vault(deployed.dsn)), queues=("default", "gpu"))
    assert await deployed.client.result(run, timeout=30) == [6, 5]


def test_an_activity_on_a_queue_survives_every_form() -> None:
    """YAML, JSON and its plan's JSON read back equal; a queue that is not named is not written."""
    workflow = Workflow.from_yaml(FLOW)
    assert workflow == Workflow.from_yaml(workflow.to_yaml()) == Workflow.from_json(workflow.to_json())
    plan = compile_workflow(workflow)
    assert (Plan.from_json(plan.to_json()), Plan.from_json(plan.to_json()).hash) == (plan, plan.hash)
    other = compile_workflow(Workflow.from_yaml(FLOW.replace("queue: gpu", "queue: cpu")))
    assert plan.hash != other.hash
    assert str(plan.to_json()).count("'queue'") == 1


def test_a_picture_names_the_queue() -> None:
    """Both the drawing and the flowchart."""
    workflow = Workflow.from_yaml(FLOW)
    assert "on queue gpu" in svg_of(compile_workflow(workflow))
    assert 't_measure["measure (activity on queue gpu)"]' in workflow.to_mermaid()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("''", "a queue has a name"),
        ("'  '", "a queue has a name"),
        ('"a\\0b"', "a queue has a name"),
        ("'{{first}}'", "a queue is named as it stands: a template is not rendered here"),
        ("7", "Input should be a valid string"),
    ],
)
def test_a_queue_that_is_no_name_is_refused_with_its_line(tmp_path: Path, name: str, said: str) -> None:
    """Empty, not printable, a template, or no text."""
    file = tmp_path / "far.yaml"
    file.write_text(FLOW.replace("queue: gpu", f"queue: {name}"))
    line = FLOW.splitlines().index("    queue: gpu") + 1
    with pytest.raises(Unloadable) as refused:
        load(file)
    assert str(refused.value) == f"{file}:{line}:5: task 'measure': queue: {said}"
