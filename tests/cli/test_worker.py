"""`durable worker` as real processes, which are asked to end, killed and left alone."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from typing import Any

import pytest

Command = Callable[..., Any]

FLOWS = """
import asyncio, os, threading, time
from durable import workflow

async def who():
    await asyncio.sleep(0.3)
    return os.getpid()

def stuck():
    print("stuck for good", flush=True)
    threading.Event().wait()

async def blocking():
    print("blocking the loop", flush=True)
    time.sleep(3600)

@workflow
async def asking(ctx):
    return await ctx.step(who)

@workflow
async def sticking(ctx):
    return await ctx.step(stuck)

@workflow(queue="other")
async def jamming(ctx):
    return await ctx.step(blocking)
"""


@pytest.fixture
def flows(place: Any, durable_dsn: str) -> Any:
    place.write("flows.py", FLOWS)
    place.environment |= {"DURABLE_DATABASE_URL": durable_dsn, "DURABLE_LEASE_SECONDS": "2"}
    return place


def results(durable: Command) -> list[Any]:
    runs = json.loads(durable("runs", "list", "--workflow", "asking", "--json").out)
    return [run["result"] for run in runs if run["state"] == "succeeded"]


def children(running: Any) -> set[int]:
    return {int(pid) for pid in re.findall(r"child=(\d+)", running.said)}


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def test_two_processes_share_the_work_and_drain_when_asked(flows: Any, durable: Command, eventually: Command) -> None:
    """Runs end in both; SIGTERM to the parent ends all three with 0 and loses no run."""
    running = flows.start("worker", "flows:asking", "--processes", "2", "--slots", "2")
    running.await_word("the worker is ready", times=2)
    for _ in range(12):
        assert durable("start", "asking").code == 0
    eventually(lambda: set(results(durable)) == children(running), "both have finished runs")
    for _ in range(4):
        durable("start", "asking")
    running.signal(signal.SIGTERM)
    assert running.end() == 0
    assert not any(map(alive, children(running)))
    listed = json.loads(durable("runs", "list", "--json").out)
    assert {run["state"] for run in listed} <= {"succeeded", "ready"}


def test_children_end_with_a_parent_that_is_killed(flows: Any, eventually: Command) -> None:
    """kill -9 of the supervising parent leaves no worker behind."""
    running = flows.start("worker", "flows:asking", "--processes", "2")
    running.await_word("the worker is ready", times=2)
    running.signal(signal.SIGKILL)
    running.end()
    eventually(lambda: not any(map(alive, children(running))), "the children have ended")


def test_a_killed_child_is_replaced(flows: Any, durable: Command, eventually: Command) -> None:
    """The parent starts another, and the work goes on."""
    running = flows.start("worker", "flows:asking", "--processes", "2")
    running.await_word("the worker is ready", times=2)
    for pid in children(running):
        os.kill(pid, signal.SIGKILL)
    running.await_word("the worker is ready", times=4)
    assert durable("start", "asking", "--wait").code == 0
    running.signal(signal.SIGINT)
    assert running.end() == 0


def test_a_step_that_never_ends_does_not_keep_its_worker(flows: Any, durable: Command) -> None:
    """A drain has an end: a thread that cannot be stopped is left, and the run goes back to the others."""
    running = flows.start("worker", "flows.py:sticking", DURABLE_DRAIN_SECONDS="0.2")
    running.await_word("the worker is ready")
    run = durable("start", "sticking").out.strip()
    running.await_word("stuck for good")
    running.signal(signal.SIGTERM)
    assert running.end() == 0
    assert json.loads(durable("runs", "show", run, "--json").out)["run"]["state"] == "ready"


def test_a_second_request_hurries(flows: Any, durable: Command) -> None:
    """A drain that would take an hour is cut short."""
    running = flows.start("worker", "flows:sticking", DURABLE_DRAIN_SECONDS="3600")
    running.await_word("the worker is ready")
    durable("start", "sticking")
    running.await_word("stuck for good")
    running.signal(signal.SIGTERM)
    running.signal(signal.SIGINT)
    assert running.end() == 0


def test_a_worker_whose_loop_is_blocked_still_ends(flows: Any, durable: Command) -> None:
    """Code that blocks the event loop cannot drain; the process ends all the same, and says so."""
    running = flows.start("worker", "flows:jamming", DURABLE_DRAIN_SECONDS="0")
    running.await_word("the worker is ready")
    durable("start", "jamming", "--queue", "other")
    running.await_word("blocking the loop")
    running.signal(signal.SIGTERM)
    running.signal(signal.SIGINT)
    assert running.end() == 1
    assert "a step did not end in time" in running.said
