"""`durable dev` and the embedded server, in a directory of a person's own."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

Command = Callable[..., Any]

HELLO = (Path(__file__).parents[2] / "examples" / "hello.py").read_text()
SLOW = """
from durable import DurableContext, workflow

@workflow
async def waits(ctx: DurableContext) -> None:
    await ctx.wait_for_event("never")
"""


def test_one_command_runs_a_workflow_and_leaves_nothing(place: Any) -> None:
    """From nothing to a result: database, store, worker, run; then no process is left, and the run is still known."""
    place.write("hello.py", HELLO)
    said = place.run("dev", "hello", "--run", "hello", "--input", "who=you")
    assert said.code == 0, said
    assert '"Hello, you!"' in said.out
    assert place.left() == []
    listed = place.run("runs", "list", "--json")
    assert [run["state"] for run in json.loads(listed.out)] == ["succeeded"]
    refused = place.run("dev", "hello", "--run", "hello", "--input", "whom=you")
    assert refused.code == 4, refused
    assert place.left() == []


def test_other_commands_join_a_running_dev_and_ctrl_c_ends_it_all(place: Any, eventually: Command) -> None:
    """What dev tells people to try works from another terminal; Ctrl-C leaves no process."""
    place.write("hello.py", HELLO)
    running = place.start("dev", "hello.py")
    invitation = running.await_word("Ctrl-C ends everything")
    assert "durable start hello --wait" in invitation
    said = place.run("start", "hello", "--wait")
    assert (said.code, said.out) == (0, '"Hello, world!"\n')
    found = json.loads(place.run("db", "url", "--json").out)
    assert (found["source"], found["running"]) == ("embedded", True)
    running.signal(signal.SIGINT)
    assert running.end() == 0
    eventually(lambda: place.left() == [], "nothing is left")


def test_a_run_that_ctrl_c_cut_short_is_no_success(place: Any, eventually: Command) -> None:
    """The exit code says so, and the run is still there to go on."""
    place.write("slow.py", SLOW)
    running = place.start("dev", "slow.py", "--run", "waits")
    running.await_word("waits for event 'never'")
    running.signal(signal.SIGINT)
    assert running.end() == 130
    eventually(lambda: place.left() == [], "nothing is left")
    assert [run["state"] for run in json.loads(place.run("runs", "list", "--json").out)] == ["parked"]


def test_a_dev_that_allows_functions_serves_what_is_deployed(place: Any) -> None:
    """It says so, and a file that is deployed from another terminal runs there."""
    place.write("twice.py", "def twice(n):\n    return 2 * n\n")
    task = "{task_id: t, operator_type: task, function: twice.twice, args: [21]}"
    place.write("flow.yaml", f"name: flow\ntasks:\n  t: {task}\n")
    running = place.start("dev", "--allow", "twice.")
    invitation = running.await_word("Ctrl-C ends everything")
    assert "whatever is deployed" in invitation
    assert "durable deploy FILE..." in invitation
    assert place.run("deploy", "flow.yaml").code == 0
    said = place.run("run", "flow", "--wait")
    assert (said.code, said.out) == (0, "42\n")
    running.signal(signal.SIGINT)
    assert running.end() == 0
