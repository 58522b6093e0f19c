"""`durable runs ...`: every verb, against a real store and a real worker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from durable import DurableContext, RetryPolicy, current_step, workflow

Command = Callable[..., Any]

healed = asyncio.Event()


async def ask_twice() -> int:
    if current_step().attempt == 1:
        raise ConnectionError("try again")
    return 7


async def pay() -> str:
    return "paid"


async def may_fail() -> str:
    if not healed.is_set():
        raise ValueError("the house is on fire")
    return "fine"


@workflow
async def child(ctx: DurableContext, n: int) -> int:
    return n


@workflow
async def busy(ctx: DurableContext, event: str) -> str:
    """Steps, a retry, children, a log line, progress, and then a wait."""
    await ctx.step("ask", ask_twice, retry=RetryPolicy(max_attempts=2, delay=0))
    await ctx.map(child, [{"n": 1}, {"n": 2}])
    ctx.log.info("children are done", count=2)
    ctx.progress(2, 3, "nearly")
    await ctx.wait_for_event(event, timeout=timedelta(hours=1))
    return str(await ctx.step(pay))


@workflow
async def fragile(ctx: DurableContext) -> str:
    await ctx.step(pay)
    return str(await ctx.step(may_fail))


@workflow(max_active_runs=1)
async def lonely(ctx: DurableContext) -> None:
    await ctx.sleep(timedelta(hours=1))


def start(durable: Command, *arguments: str) -> str:
    return str(durable("start", *arguments).out.strip())


def shown(durable: Command, run: str) -> Any:
    return json.loads(durable("runs", "show", run, "--json").out)


def parked(durable: Command, eventually: Command, run: str) -> Any:
    return eventually(lambda: shown(durable, run)["run"]["state"] == "parked", "the run waits")


def test_a_run_that_waits_says_for_what(durable: Command, working: Command, eventually: Command) -> None:
    """Its page has its steps with attempts, its children, log and progress, and the command that lets it go on."""
    working(busy, child)
    run = start(durable, "busy", "--input", "event=go")
    eventually(lambda: "'go'" in durable("runs", "show", run).out, "the run waits for its event")
    page = durable("runs", "show", run).out
    for words in ("waits for  event 'go', until", "children are done count=2", "2 of 3 nearly", "durable emit go"):
        assert words in page
    story = shown(durable, run)
    steps = {step["name"]: (step["state"], step["attempts"]) for step in story["steps"]}
    assert steps["ask"] == ("done", 2)
    assert [each["state"] for each in story["children"]] == ["succeeded", "succeeded"]


def test_a_queued_run_says_who_holds_its_slot(durable: Command, working: Command, eventually: Command) -> None:
    """The run that waits for a slot names the run to wait for, for people and for programs."""
    working(lonely)
    first, second = start(durable, "lonely"), start(durable, "lonely")
    parked(durable, eventually, first)
    assert f"a free slot; held by run {first}" in durable("runs", "show", second).out
    [holder] = shown(durable, second)["holders"]
    assert (holder["run_id"], holder["slots"]) == (first, 1)


def test_watching_ends_with_the_run(durable: Command, working: Command) -> None:
    """The exit code is the outcome; a piped watch prints a line for each thing that happened."""
    healed.clear()
    working(busy, child, fragile)
    run = start(durable, "busy", "--input", "event=go")
    durable("emit", "go")
    watched = durable("runs", "watch", run)
    assert watched.code == 0
    assert "busy: pay done" in watched.out
    assert "busy: succeeded" in watched.out
    failed = durable("runs", "watch", start(durable, "fragile"), "--json")
    assert (failed.code, json.loads(failed.out)["run"]["state"]) == (1, "failed")


def test_a_list_can_be_narrowed(durable: Command, working: Command, eventually: Command) -> None:
    """By state, workflow, tag and age; as a table of tabs when piped, as one document with --json."""
    working(busy, child, fragile)
    parked(durable, eventually, start(durable, "busy", "--input", "event=x", "--tag", "night"))
    start(durable, "busy", "--input", "event=y", "--at", "2999-01-01T00:00:00Z")

    def events(*arguments: str) -> list[str]:
        said = durable("runs", "list", "--json", *arguments)
        assert said.code == 0, said
        return [run["input"]["event"] for run in json.loads(said.out)]

    assert events() == ["y", "x"]
    assert events("--state", "delayed") == ["y"]
    assert events("--tag", "night") == ["x"]
    assert events("--workflow", "fragile") == []
    assert events("--since", "1h", "--limit", "1") == ["y"]
    assert events("--since", datetime(2998, 1, 1, tzinfo=UTC).isoformat()) == []
    header, first, *_ = durable("runs", "list").out.splitlines()
    assert header.split("\t") == ["run", "workflow", "state", "created", "took", "tags"]
    assert len(first.split("\t")) == 6
    assert durable("runs", "list", "--state", "tired").code == 4


def test_a_cancelled_run_ends(durable: Command, working: Command, eventually: Command) -> None:
    """It says why; cancelling what has ended already is refused."""
    working(busy, child)
    run = start(durable, "busy", "--input", "event=never")
    assert durable("runs", "cancel", run, "--reason", "no longer wanted").code == 0
    watched = durable("runs", "watch", run)
    assert (watched.code, "no longer wanted" in watched.out) == (1, True)
    again = durable("runs", "cancel", run)
    assert (again.code, "cancelled already" in again.err) == (4, True)


def test_a_failed_run_is_retried_from_its_failed_step(durable: Command, working: Command, eventually: Command) -> None:
    """Its page says so before; steps before the failed one do not run again; what succeeded is not retried."""
    healed.clear()
    working(fragile)
    run = start(durable, "fragile")
    assert durable("runs", "watch", run).code == 1
    page = durable("runs", "show", run).out
    assert "ValueError in step 'may_fail': the house is on fire" in page
    assert f"durable runs retry {run}" in page
    healed.set()
    assert durable("runs", "retry", run).code == 0
    assert durable("runs", "watch", run).code == 0
    refused = durable("runs", "retry", run)
    assert (refused.code, "only failed or cancelled runs" in refused.err) == (4, True)


def test_a_fork_keeps_what_came_before_its_step(durable: Command, working: Command, durable_dsn: str) -> None:
    """The new run has the old records before the step; an unknown step is refused with the known ones."""
    healed.set()
    working(fragile)
    run = start(durable, "fragile")
    durable("runs", "watch", run)
    forked = json.loads(durable("runs", "fork", run, "--from", "may_fail", "--json").out)["run_id"]
    assert durable("runs", "watch", forked).code == 0
    with psycopg.connect(durable_dsn) as store:
        query = "select count(distinct at) from durable.journal where run_id = any(%s::uuid[]) and name = 'pay'"
        assert store.execute(query, ([run, forked],)).fetchone() == (1,)
    wrong = durable("runs", "fork", run, "--from", "dance")
    assert (wrong.code, "it has pay, may_fail" in wrong.err) == (4, True)


PAYING = """
from durable import workflow

async def charge():
    return "charged"

@workflow
async def paying(ctx):
    return await ctx.at_most_once(charge)
"""


@workflow
async def paying(ctx: DurableContext) -> Any:
    return await ctx.at_most_once("charge", pay)


def test_a_person_decides_what_became_of_an_uncertain_step(
    durable: Command, working: Command, eventually: Command, place: Any, durable_dsn: str
) -> None:
    """A worker that dies inside an at-most-once step leaves a run that waits for a decision, and goes on with it."""
    place.write("flows.py", PAYING)
    options = {"DURABLE_DATABASE_URL": durable_dsn, "DURABLE_LEASE_SECONDS": "1"}
    dying = place.start("worker", "flows", **options, DURABLE_FAULT="step.before")
    eventually(lambda: durable("start", "paying", "--key", "only").code == 0, "the workflow is known")
    assert dying.end() == -9
    working(paying, lease_seconds=1.0)
    run = start(durable, "paying", "--key", "only")
    eventually(lambda: "a person's decision about charge" in durable("runs", "show", run).out, "the run asks a person")
    assert f"durable runs decide {run} charge" in durable("runs", "show", run).out
    assert durable("runs", "decide", run, "dance", "--again").code == 4
    assert durable("runs", "decide", run, "charge").code == 2
    assert durable("runs", "decide", run, "charge", "--ran", '"by hand"').code == 0
    assert durable("runs", "watch", run).code == 0
    assert shown(durable, run)["run"]["result"] == "by hand"
