"""What a document may choose for itself: lenient templates, and how often a loop goes round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from durable import RunFailed
from highway_dsl import Workflow, WorkflowBuilder
from interpreter.deployment import Deployed, load
from interpreter.highway import check_workflow
from interpreter.secrets import Vault

LENIENT = """\
name: lenient
{choice}
tasks:
  a: {{task_id: a, operator_type: task, function: tools.echo, args: [{{x: 1}}]}}
  b:
    task_id: b
    operator_type: task
    function: tools.echo
    kwargs: {{whole: "{{{{inputs.who}}}}", deep: "{{{{a.y.z}}}}", part: "{{{{a.payload}}}}", text: "<{{{{nobody}}}}>"}}
    dependencies: [a]
"""
ENDLESS = """\
name: endless
tasks:
  loop:
    task_id: loop
    operator_type: while
    condition: "true"
    max_iterations: 3
    loop_body: [{task_id: t, operator_type: task, function: tools.memory.increment, args: [n]}]
"""


async def deployed(runtime: Any, folder: Path, text: str) -> str:
    """A file on a worker that serves what is deployed; the name of its workflow."""
    file = folder / "flow.yaml"
    file.write_text(text)
    (loaded,) = load(file)
    await runtime.work(catalogue=Deployed([], Vault(runtime.dsn)))
    await runtime.client.deploy(loaded.deployment())
    return loaded.name


async def test_a_lenient_workflow_takes_missing_names_for_null(runtime: Any, tmp_path: Path) -> None:
    """Of a run, of a result and of nothing at all; within a text they are nothing."""
    name = await deployed(runtime, tmp_path, LENIENT.format(choice="lenient_templates: true"))
    assert await runtime.run(name) == {"whole": None, "deep": None, "part": None, "text": "<>"}


def test_a_strict_workflow_is_refused_for_what_a_lenient_one_is_doubted_for() -> None:
    """The same words, as a fault or as a warning; other faults of templates stay faults."""
    strict = check_workflow(Workflow.survey_yaml(LENIENT.format(choice=""), "f.yaml"))
    lenient = check_workflow(Workflow.survey_yaml(LENIENT.format(choice="lenient_templates: true"), "f.yaml"))
    assert (strict.plan, lenient.plan is None) == (None, False)
    assert [str(fault) for fault in strict.faults] == [str(fault) for fault in lenient.warnings]
    assert "nothing defines 'nobody'" in str(strict.faults[0])
    broken = WorkflowBuilder("w").set_lenient_templates().task("a", "f", args=["{{x"]).build()
    assert [fault.kind for fault in check_workflow(broken).faults] == ["template"]


async def test_a_while_loop_of_a_document_has_a_limit_of_its_own(runtime: Any, tmp_path: Path) -> None:
    """It fails when it has gone round so often; each round has run."""
    name = await deployed(runtime, tmp_path, ENDLESS)
    run_id = await runtime.client.start(name)
    with pytest.raises(RunFailed, match="reached its limit of 3 iterations"):
        await runtime.client.result(run_id, timeout=30)
    assert [step.body for step in await runtime.client.steps(run_id) if step.kind == "step"] == [1, 2, 3]


def test_limits_and_leniency_are_written_only_where_they_are_chosen() -> None:
    """Without them a workflow has the form of 1.1.0; with them it loses nothing on its way."""
    built = WorkflowBuilder("w").set_lenient_templates()
    built.while_loop("l", condition="false", loop_body=lambda b: b.task("t", "f"), max_iterations=5)
    chosen = built.build()
    assert chosen == Workflow.from_yaml(chosen.to_yaml()) == Workflow.from_json(chosen.to_json())
    plain = WorkflowBuilder("w").while_loop("l", condition="false", loop_body=lambda b: b.task("t", "f")).build()
    assert not any(name in plain.to_json() for name in ("max_iterations", "lenient_templates"))
    assert chosen.content_hash() != plain.content_hash()
