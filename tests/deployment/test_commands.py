"""The verbs for workflow files, as a person types them."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import durablectl
from durable.secretstore import SecretStore
from durablectl import exits
from interpreter.secrets import TableSecrets
from tests.command import Command, Said, calling

REPOSITORY = Path(durablectl.__file__).parents[1]
ORDER = """
name: order
tasks:
  price:
    task_id: price
    operator_type: task
    function: tools.echo
    args: ["{{inputs.amount}}"]
    result_key: amount
  big:
    task_id: big
    operator_type: condition
    condition: "{{amount}} > 100"
    if_true: review
    if_false: ship
    dependencies: [price]
  review: {task_id: review, operator_type: task, function: tools.log, args: [review]}
  ship: {task_id: ship, operator_type: task, function: tools.echo, args: [shipped]}
"""


@pytest.fixture
def durable(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, durable_dsn: str) -> Command:
    """The command with a store of its own."""
    return calling(capsys, monkeypatch, durable_dsn)


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "order.yaml"
    path.write_text(ORDER)
    return str(path)


def broken(folder: Path) -> str:
    path = folder / "broken.yaml"
    path.write_text(ORDER.replace("[price]", "[prize]").replace("inputs.amount}}", "inputs.amount}"))
    return str(path)


def test_check_finds_everything_at_once(durable: Command, file: str, tmp_path: Path) -> None:
    """Every fault has a line of its own with its place; sound files are listed, and nothing is written."""
    said = durable("check", file, broken(tmp_path))
    assert said.code == exits.REFUSED
    assert "prize" in said.err
    assert "broken.yaml:" in said.err
    assert "ok order" in durable("check", file).out
    assert json.loads(durable("check", file, "--json").out)["faults"] == []


def test_deploying_twice_changes_nothing(durable: Command, file: str) -> None:
    """The second deployment says so, under the same version."""
    first, second = durable("deploy", file), durable("deploy", file)
    assert (first.code, second.code) == (exits.OK, exits.OK)
    assert first.out.split()[0] == "deployed"
    assert second.out.split() == ["unchanged", *first.out.split()[1:]]


def test_a_broken_file_is_not_deployed(durable: Command, tmp_path: Path) -> None:
    """It is refused with its faults, and its workflow stays unknown."""
    said = durable("deploy", broken(tmp_path))
    assert said.code == exits.REFUSED
    assert "prize" in said.err
    assert durable("run", "order").code == exits.REFUSED


def test_run_runs_a_file_to_its_end(durable: Command, file: str) -> None:
    """With a worker of its own; the result is printed, and the run ends as the command does."""
    said = durable("run", file, "--input", "amount=7", "--json")
    assert said.code == exits.OK, said.err
    document = json.loads(said.out)
    assert (document["state"], document["workflow"]) == ("succeeded", "order")
    assert document["version"]


def test_run_shows_the_steps_of_a_file(durable: Command, file: str) -> None:
    """Without options it follows the run."""
    said = durable("run", file, "--input", "amount=700")
    assert said.code == exits.OK, said.err
    assert "price done" in said.out
    assert "review done" in said.out
    assert "ship done" not in said.out


@pytest.mark.parametrize("verb", [["deploy"], ["run", "--wait"]])
def test_a_python_file_is_run_once_on_its_way_to_the_store(
    durable: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: list[str]
) -> None:
    """What it does besides building its workflow is done once."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / f"once_{verb[0]}.py").write_text(
        "from highway_dsl import WorkflowBuilder\nwith open('ran', 'a') as ran: ran.write('x')\n"
        "flow = WorkflowBuilder('once').task('one', 'tools.echo').build()\n"
    )
    said = durable(verb[0], f"once_{verb[0]}.py", *verb[1:])
    assert (said.code, (tmp_path / "ran").read_text()) == (exits.OK, "x"), said.err


def test_a_python_file_whose_workflow_is_wrong_says_what(
    durable: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same faults, a line each, whichever verb runs it."""
    monkeypatch.chdir(tmp_path)
    text = "from highway_dsl import WorkflowBuilder\nWorkflowBuilder('x').task('a', 'f', dependencies=['no']).build()\n"
    (tmp_path / "wrongly_built.py").write_text(text)
    for verb in ("check", "deploy", "run"):
        said = durable(verb, "wrongly_built.py")
        assert said.code == exits.REFUSED
        assert "task 'a': dependencies: there is no task 'no'" in said.err
        assert "Traceback" not in said.err
        assert "validation error" not in said.err


def test_run_ends_as_its_run_does(durable: Command, tmp_path: Path) -> None:
    """A failed run is exit code 1, with the reason."""
    path = tmp_path / "fails.yaml"
    path.write_text("name: fails\ntasks:\n  no: {task_id: 'no', operator_type: task, function: os.getcwd}\n")
    said = durable("run", str(path), "--wait")
    assert said.code == exits.FAILED
    assert "--allow os." in said.err


def test_a_run_that_is_interrupted_says_how_it_goes_on(durable: Command, durable_dsn: str, tmp_path: Path) -> None:
    """Its worker gives it back; the next one ends it. Nothing is said that looks like a result or a bug."""
    path = tmp_path / "long.yaml"
    wait = "{task_id: wait, operator_type: wait_for_event, event_name: go}"
    path.write_text(f"name: long\ntasks:\n  wait: {wait}\n")
    running = subprocess.Popen(
        [sys.executable, "-m", "durablectl", "run", str(path)],
        cwd=REPOSITORY,
        env={**os.environ, "DURABLE_DATABASE_URL": durable_dsn},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    _until(lambda: '"parked"' in durable("runs", "list", "--json").out)
    [run] = json.loads(durable("runs", "list", "--json").out)
    running.terminate()
    _, err = running.communicate(timeout=60)
    assert running.returncode == exits.INTERRUPTED
    assert f"ended before run {run['run_id']} of 'long', which goes on as soon as a worker serves it" in err
    assert "bug" not in err
    durable("emit", "go")
    with worker_process(durable_dsn, tmp_path / "log"):
        assert durable("runs", "watch", run["run_id"]).code == exits.OK


def test_signals_are_left_as_they_were(durable: Command, file: str) -> None:
    """After a run in this very process: its worker no longer hears them."""
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    threads = threading.active_count()
    assert durable("run", file, "--input", "amount=7").code == exits.OK
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    _until(lambda: threading.active_count() <= threads)


def test_a_document_that_runs_here_finds_the_modules_that_are_here(
    durable: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for a worker, modules are looked for where one stands."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each])
    (tmp_path / "standing_here.py").write_text("def twice(n):\n    return 2 * n\n")
    task = "{task_id: t, operator_type: task, function: standing_here.twice, args: [21]}"
    (tmp_path / "here.yaml").write_text(f"name: here\ntasks:\n  t: {task}\n")
    said = durable("run", "here.yaml", "--allow", "standing_here.", "--wait")
    assert (said.code, said.out) == (exits.OK, "42\n"), said.err


def test_a_worker_is_not_given_what_is_to_be_deployed(
    durable: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Python file that builds workflows is told from one that has none."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each])
    text = "from highway_dsl import WorkflowBuilder\nflow = WorkflowBuilder('f').task('a', 'tools.echo').build()\n"
    (tmp_path / "to_deploy.py").write_text(text)
    said = durable("worker", "to_deploy.py")
    assert said.code == exits.USAGE
    assert "`durable deploy to_deploy.py`; its worker needs --allow to_deploy." in said.err


def test_run_by_name_starts_a_deployed_workflow(durable: Command, file: str) -> None:
    """It prints the id of a run that waits for a worker."""
    durable("deploy", file)
    run_id = durable("run", "order", "--input", "amount=1").out.strip()
    shown = json.loads(durable("runs", "show", run_id, "--json").out)
    assert shown["run"]["finished_at"] is None
    assert durable("run", "absent").code == exits.REFUSED


def test_why_says_what_decided(durable: Command, file: str) -> None:
    """A skipped task names the decision and the values that it saw; an unknown one is refused."""
    run_id = json.loads(durable("run", file, "--input", "amount=7", "--json").out)["run_id"]
    found = {reason["node"]: reason for reason in json.loads(durable("runs", "why", run_id, "--json").out)}
    assert found["review"]["state"] == "skipped"
    assert "amount = 7" in found["review"]["because"]
    assert durable("runs", "why", run_id, "ship").out.startswith("ship: done")
    assert durable("runs", "why", run_id, "absent").code == exits.REFUSED


def test_show_tells_what_was_logged_and_where_decisions_are_explained(durable: Command, file: str) -> None:
    """Lines have their step; what the walk noted for `runs why` is left to it, and it is named."""
    run_id = json.loads(durable("run", file, "--input", "amount=700", "--json").out)["run_id"]
    page = durable("runs", "show", run_id).out
    assert "info  review  review" in page
    assert "route" not in page
    assert f"durable runs why {run_id}" in page


def test_a_task_that_did_not_run_for_a_failure_says_so_once(durable: Command, tmp_path: Path) -> None:
    """The reason is one sentence."""
    path = tmp_path / "fails.yaml"
    tasks = "  a: {task_id: a, operator_type: task, function: tools.fail, args: [no luck]}\n"
    path.write_text(
        f"name: fails\ntasks:\n{tasks}  b: {{task_id: b, operator_type: task, function: f, dependencies: [a]}}\n"
    )
    run_id = json.loads(durable("run", str(path), "--json").out)["run_id"]
    said = durable("runs", "why", run_id, "b").out
    assert said.startswith("b: upstream_failed, because of a (failed): ")
    assert said.endswith("no luck\n")


def test_a_failed_run_is_resumed_from_its_failure(durable: Command, tmp_path: Path) -> None:
    """What was done before the failure is not done again."""
    path = tmp_path / "twice.yaml"
    text = (
        "name: twice\ntasks:\n  one: {task_id: one, operator_type: task, function: tools.memory.increment, args: [n]}\n"
    )
    text += "  two: {task_id: two, operator_type: task, function: tools.fail, dependencies: [one]}\n"
    path.write_text(text)
    document = json.loads(durable("run", str(path), "--json").out)
    assert document["state"] == "failed"
    assert durable("runs", "resume", document["run_id"]).code == exits.OK
    shown = json.loads(durable("runs", "show", document["run_id"], "--json").out)
    assert shown["run"]["finished_at"] is None
    assert "one: done" in durable("runs", "why", document["run_id"]).out


def test_simulate_walks_without_a_database(durable: Command, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what would run, what not, and exits as the run would end."""
    monkeypatch.setenv("DURABLE_DATABASE_URL", "postgresql://127.0.0.1:1/none")
    said = durable("simulate", file, "--value", "price=500", "--input", "amount=1")
    assert said.code == exits.OK, said.err
    assert states(said) | {"review": "succeeded", "ship": "skipped"} == states(said)
    failed = durable("simulate", file, "--outcome", "price=fail", "--input", "amount=1")
    assert failed.code == exits.FAILED
    assert states(failed)["ship"] in ("skipped", "upstream_failed")
    assert durable("simulate", file, "--outcome", "absent=fail").code == exits.USAGE


def states(said: Said) -> dict[str, Any]:
    words = (line.split() for line in said.out.splitlines())
    return {line[1]: line[0] for line in words if len(line) > 1}


def test_graph_draws_the_workflow(durable: Command, file: str) -> None:
    """As a flowchart, or as an SVG picture that is well-formed and names every task."""
    assert durable("graph", file).out.startswith("flowchart")
    picture = durable("graph", file, "--svg").out
    titles = {element.text for element in ElementTree.fromstring(picture).iter() if element.tag.endswith("title")}
    assert {"price", "big", "review", "ship"} <= titles
    assert durable("graph", file, "--svg", "--mermaid").code == exits.USAGE


def test_secrets_are_set_listed_rotated_and_removed(
    durable: Command, durable_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A value goes in by standard input and never comes out; what was set under an old key outlives it."""
    said = piped(durable, monkeypatch, "hunter2hunter2")
    assert said.code == exits.REFUSED
    assert "DURABLE_SECRETS_KEY is not set" in said.err
    old, new = durable("secrets", "key").out.strip(), durable("secrets", "key").out.strip()
    monkeypatch.setenv("DURABLE_SECRETS_KEY", old)
    assert piped(durable, monkeypatch, "hunter2hunter2").out == "set token\n"
    listed = durable("secrets", "list")
    assert listed.out.split("\t")[0] == "token"
    monkeypatch.setenv("DURABLE_SECRETS_KEY", f"{new},{old}")
    assert "encrypted 1 secrets anew" in durable("secrets", "rotate").out
    monkeypatch.setenv("DURABLE_SECRETS_KEY", new)
    with SecretStore(durable_dsn) as store:
        assert TableSecrets().get("token", store) == "hunter2hunter2"
    assert "hunter2" not in listed.out + listed.err
    assert durable("secrets", "remove", "token").code == exits.OK
    assert durable("secrets", "remove", "token").code == exits.REFUSED


def piped(durable: Command, monkeypatch: pytest.MonkeyPatch, text: str) -> Said:
    monkeypatch.setattr("sys.stdin", io.StringIO(text + "\n"))
    return durable("secrets", "set", "token")


def test_a_worker_process_serves_what_is_deployed_later(
    durable: Command, durable_dsn: str, file: str, tmp_path: Path
) -> None:
    """`durable worker --allow` needs no module, and learns of a workflow while it runs."""
    with worker_process(durable_dsn, tmp_path / "log") as worker:
        _until(lambda: "ready" in (tmp_path / "log").read_text())
        durable("deploy", file)
        said = durable("run", "order", "--input", "amount=7", "--wait")
        assert (said.code, said.out) == (exits.OK, '"shipped"\n'), said.err
        assert worker.poll() is None


@pytest.mark.parametrize("fault", ["transaction.before", "transaction.after", "end.before"])
def test_a_killed_worker_counts_nothing_twice(durable: Command, durable_dsn: str, tmp_path: Path, fault: str) -> None:
    """Whether SIGKILL comes before or after the commit of an increment, another worker ends the run with 1."""
    path = tmp_path / "count.yaml"
    task = "{task_id: one, operator_type: task, function: tools.memory.increment, args: [n]}"
    path.write_text(f"name: count\ntasks:\n  one: {task}\n")
    durable("deploy", str(path))
    run_id = durable("run", "count").out.strip()
    with worker_process(durable_dsn, tmp_path / "first", DURABLE_FAULT=fault) as doomed:
        assert doomed.wait(60) == -signal.SIGKILL
    with worker_process(durable_dsn, tmp_path / "second"):
        assert durable("runs", "watch", run_id).code == exits.OK
    shown = json.loads(durable("runs", "show", run_id, "--json").out)
    assert [step["result"] for step in shown["steps"] if step["name"] == "one"] == [1]


def test_a_retry_goes_on_as_its_own_version_or_as_the_current_one(
    durable: Command, durable_dsn: str, tmp_path: Path
) -> None:
    """A run that failed by its definition says which version it keeps, and goes on as the mended one when told to, from
    its records; a fork too. A version that was never deployed is refused."""
    path = tmp_path / "bill.yaml"
    tasks = "\n  price: {task_id: price, operator_type: task, function: tools.echo, args: [7], result_key: amount}"
    send = "\n  send: {task_id: send, operator_type: task, function: tools.%s, args: [%s], dependencies: [price]}"
    path.write_text("name: bill\ntasks:" + tasks + send % ("fail", "no"))
    with worker_process(durable_dsn, tmp_path / "log"):
        durable("deploy", str(path))
        run_id = durable("run", "bill").out.strip()
        assert durable("runs", "watch", run_id).code == exits.FAILED
        path.write_text("name: bill\ntasks:" + tasks + send % ("echo", "'{{amount}}'"))
        durable("deploy", str(path))
        kept = durable("runs", "retry", run_id)
        assert "--version current" in kept.out
        assert durable("runs", "watch", run_id).code == exits.FAILED
        forked = durable("runs", "fork", run_id, "--from", "send", "--version", "current").out.strip()
        durable("runs", "retry", run_id, "--version", "current")
        for each in (run_id, forked):
            assert durable("runs", "watch", each).code == exits.OK
            shown = json.loads(durable("runs", "show", each, "--json").out)
            assert [step["name"] for step in shown["steps"]].count("price") == 1
        refused = durable("runs", "fork", run_id, "--version", "nonsense")
    assert (refused.code, "no version nonsense of 'bill'" in refused.err) == (exits.REFUSED, True), refused.err


@contextmanager
def worker_process(dsn: str, log: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A worker for deployed workflows, with a short lease, ended with the test."""
    command = [sys.executable, "-m", "durablectl", "worker", "--allow", "tools.echo"]
    own = {"DURABLE_DATABASE_URL": dsn, "DURABLE_LEASE_SECONDS": "2", "PYTHONPATH": str(REPOSITORY), **environment}
    with log.open("wb") as out:
        worker = subprocess.Popen(command, env={**os.environ, **own}, stderr=out, cwd=log.parent)
        try:
            yield worker
        finally:
            worker.terminate()
            worker.wait(60)


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)
