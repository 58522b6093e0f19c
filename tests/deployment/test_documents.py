"""Files: loaded, checked, deployed and run on a real worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from durable import RunFailed
from interpreter.deployment import Deployed, Unloadable, load
from interpreter.secrets import Vault

HELLO = """
name: hello
tasks:
  greet:
    task_id: greet
    operator_type: task
    function: tools.echo
    args: ["hello {{inputs.who}}"]
    result_key: said
  shout:
    task_id: shout
    operator_type: task
    function: tools.echo
    kwargs: {text: "{{said}}", times: 2}
    dependencies: [greet]
"""

PYTHON = """
from highway_dsl import WorkflowBuilder

builder = WorkflowBuilder("built")
workflow = builder.task("one", "tools.echo", args=[1]).build()
"""


def written(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_text(text)
    return file


def test_the_same_workflow_is_the_same_version_in_every_format(tmp_path: Path) -> None:
    """YAML, JSON and other spacing give one hash; another text in a task gives another."""
    (yaml,) = load(written(tmp_path, "a.yaml", HELLO))
    (json,) = load(written(tmp_path, "a.json", yaml.workflow.to_json()))
    (spaced,) = load(written(tmp_path, "b.yml", HELLO.replace("\n", "\n\n") + "# the end\n"))
    (other,) = load(written(tmp_path, "c.yaml", HELLO.replace("hello {{", "bye {{")))
    assert yaml.deployment().version == json.deployment().version == spaced.deployment().version
    assert yaml.deployment().version != other.deployment().version


def test_a_python_file_gives_the_workflows_that_it_builds(tmp_path: Path) -> None:
    """A builder and what it built are one workflow."""
    (built,) = load(written(tmp_path, "flow.py", PYTHON))
    assert built.deployment().workflow == "built"


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("a.txt", "", "ends in none of"),
        ("a.yaml", "name: x\ntasks:\n  a: {task_id: a, operator_type: task}\n", "a.yaml:3"),
        ("a.yaml", "name: [", "a.yaml:2"),
        ("a.py", "x = 1", "builds no workflow"),
        ("a.py", "1/0", "ZeroDivisionError"),
        ("a.py", "def", "SyntaxError"),
    ],
)
def test_a_file_that_cannot_be_deployed_says_where_and_why(
    tmp_path: Path, name: str, text: str, complaint: str
) -> None:
    """Nothing of it gets as far as the store."""
    with pytest.raises(Unloadable, match=complaint):
        load(written(tmp_path, name, text))


def test_a_file_that_is_not_there_says_so(tmp_path: Path) -> None:
    """Whatever its kind."""
    for name in ("none.yaml", "none.py"):
        with pytest.raises(Unloadable, match=r"No such file|no such file"):
            load(tmp_path / name)


async def test_a_deployed_file_runs(runtime: Any, tmp_path: Path) -> None:
    """A YAML file, deployed and started by name, gives its result."""
    (loaded,) = load(written(tmp_path, "hello.yaml", HELLO))
    await runtime.work(catalogue=Deployed([], Vault(runtime.dsn)))
    await runtime.client.deploy(loaded.deployment())
    run_id = await runtime.client.start("hello", who="world")
    await runtime.client.result(run_id, timeout=30)
    steps = {step.name: step.body for step in await runtime.client.steps(run_id)}
    assert steps == {"greet": "hello world", "shout": {"text": "hello world", "times": 2}}


async def test_a_function_that_is_not_allowed_fails_the_run_and_says_so(runtime: Any, tmp_path: Path) -> None:
    """The error names the function and the option."""
    text = HELLO.replace("function: tools.echo\n    args", "function: os.getenv\n    args")
    (loaded,) = load(written(tmp_path, "hello.yaml", text))
    await runtime.work(catalogue=Deployed(["mine."], Vault(runtime.dsn)))
    await runtime.client.deploy(loaded.deployment())
    with pytest.raises(RunFailed, match=r"'os\.getenv' is not allowed here.*--allow os\."):
        await runtime.run("hello", who="x")


async def test_spawned_branches_run_the_version_of_their_run(runtime: Any, tmp_path: Path) -> None:
    """Items that run as tasks of their own keep the version, also when another was deployed meanwhile."""
    text = """
name: many
max_active_runs: 5
tasks:
  each:
    task_id: each
    operator_type: foreach
    items: "{{range(40)}}"
    parallel: true
    loop_body:
      - {task_id: one, operator_type: task, function: tools.echo, args: ["{{item}}"]}
"""
    (loaded,) = load(written(tmp_path, "many.yaml", text))
    await runtime.work(catalogue=Deployed([], Vault(runtime.dsn)))
    await runtime.client.deploy(loaded.deployment())
    run_id = await runtime.client.start("many")
    await runtime.client.result(run_id, timeout=60)
    rows = await runtime.sql("select distinct version from durable.task")
    assert rows == [(loaded.deployment().version,)]


async def test_a_function_with_a_timeout_logs_from_its_process(runtime: Any, tmp_path: Path) -> None:
    """A plain function that can be killed runs in a process; what it logs by its step is stored all the same."""
    text = """
name: spoken
tasks:
  say:
    task_id: say
    operator_type: task
    function: tests.languages.tools.offered.told_in_thread
    timeout_policy: {timeout: PT60S}
"""
    (loaded,) = load(written(tmp_path, "spoken.yaml", text))
    await runtime.work(catalogue=Deployed(["tests."], Vault(runtime.dsn)))
    await runtime.client.deploy(loaded.deployment())
    run_id = await runtime.client.start("spoken")
    assert await runtime.client.result(run_id, timeout=60) == "say"
    assert [(line.step, line.message) for line in await runtime.client.logs(run_id)] == [("say", "from a thread")]
