"""Schedules that follow what is deployed and served, and the processes that make their runs."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from durable import DurableContext, workflow

Command = Callable[..., Any]

DOCUMENT = """\
name: report
schedule: "{cron}"
timezone: Europe/Berlin
is_paused: {paused}
tasks:
  a: {{task_id: a, operator_type: task, function: tools.log}}
"""

JOBS = """\
from durable import workflow

@workflow(schedule="@once", tags=["first"])
async def greet(ctx, who="world"):
    return f"Hello, {who}!"
"""


@workflow
async def bystander(ctx: DurableContext) -> None:
    """Its worker applies what was cancelled, whoever's run it was."""


def write(path: Path, cron: str = "0 2 * * *", paused: bool = False) -> str:
    path.write_text(DOCUMENT.format(cron=cron, paused=str(paused).lower()))
    return str(path)


def shown(durable: Command, name: str = "report") -> Any:
    said = durable("schedules", "show", name, "--json")
    return json.loads(said.out) if said.code == 0 else None


def test_a_deployment_brings_its_schedule(durable: Command, tmp_path: Path) -> None:
    """The row follows the document: set, changed, and the same again is no change."""
    file = tmp_path / "report.yaml"
    said = durable("deploy", write(file))
    assert (said.code, said.out.count("scheduled 0 2 * * * (Europe/Berlin)")) == (0, 1), said
    first = shown(durable)
    assert (first["cron"], first["origin"], first["slots"]) == ("0 2 * * *", "definition", 1)
    assert json.loads(durable("deploy", str(file), "--json").out)[0]["schedule"] == "unchanged"
    durable("deploy", write(file, cron="30 3 * * *"))
    second = shown(durable)
    assert second["cron"] == "30 3 * * *"
    assert second["since"] > first["since"]


def test_a_schedule_leaves_with_its_definition_and_begins_anew_when_restored(durable: Command, tmp_path: Path) -> None:
    """Case 38: without the field there is no schedule; the restored one counts from its restoring."""
    file = tmp_path / "report.yaml"
    durable("deploy", write(file))
    first = shown(durable)["since"]
    file.write_text(file.read_text().replace('schedule: "0 2 * * *"\n', ""))
    assert "its schedule was removed" in durable("deploy", str(file)).out
    assert shown(durable) is None
    durable("deploy", write(file))
    assert shown(durable)["since"] > first


def test_a_pause_in_a_definition_counts_at_first_deployment_only(durable: Command, tmp_path: Path) -> None:
    """Rule 6: afterwards the operator's switch wins."""
    file = tmp_path / "report.yaml"
    durable("deploy", write(file, paused=True))
    assert shown(durable)["paused"]
    durable("schedules", "unpause", "report")
    durable("deploy", write(file, cron="30 3 * * *", paused=True))
    assert not shown(durable)["paused"]


def test_a_schedule_that_a_person_has_set_is_not_removed_by_a_deployment(durable: Command, tmp_path: Path) -> None:
    """A document without a schedule takes away only what a document brought."""
    file = tmp_path / "report.yaml"
    file.write_text(DOCUMENT.format(cron="@daily", paused="false").replace('schedule: "@daily"\n', ""))
    durable("deploy", str(file))
    durable("schedules", "set", "report", "@hourly")
    file.write_text(file.read_text() + "description: more\n")
    durable("deploy", str(file))
    assert (shown(durable)["cron"], shown(durable)["origin"]) == ("@hourly", "person")


@pytest.mark.parametrize(
    ("line", "place", "said"),
    [
        ('schedule: "61 2 * * *"', 2, "no minute"),
        ("timezone: Mars/Olympus", 3, "there is no time zone"),
        ("max_active_runs: 0", 5, "max_active_runs"),
        ('schedule: "@daily"\nstart_date: 2026-01-01T00:00:00Z\nend_date: 2026-01-01T09:00:00Z', 4, "no tick"),
    ],
)
def test_a_document_with_a_bad_schedule_is_not_deployed(
    durable: Command, tmp_path: Path, line: str, place: int, said: str
) -> None:
    """Exit code 4, with the file, the line, the field and what is wrong; no version is made."""
    file = tmp_path / "report.yaml"
    text = DOCUMENT.format(cron="@daily", paused="false")
    field = line.split(":")[0]
    old = next((each for each in text.splitlines() if each.startswith(f"{field}:")), None)
    file.write_text(text.replace(old, line) if old else text.replace("tasks:\n", f"{line}\ntasks:\n"))
    for verb in ("check", "deploy"):
        refused = durable(verb, str(file))
        assert refused.code == 4, refused
        assert f"report.yaml:{place}:" in refused.err
        assert said in refused.err
    assert shown(durable) is None


def test_a_date_without_a_zone_is_deployed_with_a_warning(durable: Command, tmp_path: Path) -> None:
    """Case 21, in a document: its place, and the zone that it is taken in."""
    file = tmp_path / "report.yaml"
    file.write_text(DOCUMENT.format(cron="@daily", paused="false") + "start_date: 2026-06-01T00:00:00\n")
    said = durable("deploy", str(file))
    assert said.code == 0
    assert "report.yaml:7:1: start_date" in said.err
    assert shown(durable)["start_date"] == "2026-05-31T22:00:00Z"


def test_a_workflow_with_runs_in_flight_is_not_undeployed(durable: Command, working: Command, tmp_path: Path) -> None:
    """Case 53: refused with their number; without any it goes, with its schedule, until it is deployed again."""
    file = tmp_path / "report.yaml"
    durable("deploy", write(file))
    run = durable("start", "report").out.strip()
    refused = durable("undeploy", "report")
    assert (refused.code, "1 unfinished runs" in refused.err, "--cancel-running" in refused.err) == (4, True, True)
    assert shown(durable) is not None
    working(bystander)
    said = durable("undeploy", "report", "--cancel-running")
    assert (said.code, "1 runs were cancelled" in said.out) == (0, True), said
    assert shown(durable) is None
    assert durable("start", "report").code == 4
    assert durable("undeploy", "report").code == 4
    assert json.loads(durable("runs", "show", run, "--json").out)["run"]["state"] == "cancelled"
    durable("deploy", str(file))
    assert durable("start", "report").code == 0


def test_one_command_runs_what_is_scheduled(place: Any, eventually: Command) -> None:
    """`durable up`: workers and a scheduler on an embedded database; Ctrl-C leaves no process."""
    place.write("jobs.py", JOBS)
    running = place.start("up", "jobs")
    running.await_word("the scheduler is ready")
    runs = eventually(lambda: _succeeded(place), "the run of the only tick")
    assert [runs[0]["workflow"], runs[0]["tags"]] == ["greet", ["first"]]
    assert any(" scheduler " in line for line in place.left())
    running.signal(signal.SIGINT)
    assert running.end() == 0
    eventually(lambda: place.left() == [], "nothing is left")


def test_dev_runs_what_is_scheduled(place: Any, eventually: Command) -> None:
    """The scheduler is in the same process, and ends with it."""
    place.write("jobs.py", JOBS)
    running = place.start("dev", "jobs")
    assert "scheduler 1 schedule" in running.await_word("Ctrl-C ends everything")
    assert len(eventually(lambda: _succeeded(place), "the run of the only tick")) == 1
    running.signal(signal.SIGINT)
    assert running.end() == 0
    eventually(lambda: place.left() == [], "nothing is left")


def test_a_worker_refuses_a_module_with_a_bad_schedule(place: Any) -> None:
    """Before it serves anything: the workflow, the field and what is wrong."""
    place.write("jobs.py", JOBS.replace("@once", "61 * * * *"))
    said = place.run("worker", "jobs")
    assert said.code == 4, said
    assert "the schedule of 'greet' is refused" in said.err
    assert "'61' is no minute" in said.err


def _succeeded(place: Any) -> Any:
    found = json.loads(place.run("runs", "list", "--json").out or "[]")
    return [run for run in found if run["state"] == "succeeded"]
