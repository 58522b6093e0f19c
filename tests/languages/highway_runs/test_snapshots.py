"""A resume costs what a snapshot costs, not what the history does; and goes on exactly where the run stood."""

from __future__ import annotations

from datetime import timedelta

import pytest

from highway_dsl import RetryPolicy, Workflow, WorkflowBuilder
from interpreter.highway import highway_workflow

from .stage import Fakes, Stage


def counting(rounds: int) -> Workflow:
    return (
        WorkflowBuilder("counting")
        .task("first", "zero", result_key="n")
        .while_loop(
            "loop",
            condition=f"{{{{n}}}} < {rounds}",
            loop_body=lambda b: b.task("add", "add", args=["{{n}}"], result_key="n"),
        )
        .wait_for_event("gate", event_name="go")
        .task("last", "last", args=["{{n}}"])
        .build()
    )


async def test_a_resume_after_many_iterations_reads_few_records(stage: Stage) -> None:
    """After a thousand iterations a replay reads the newest snapshot and what little follows it."""
    fakes = Fakes({"zero": 0, "add": lambda n: n + 1, "last": lambda n: n})
    flow = highway_workflow(counting(1000), fakes)
    await stage.work(flow, kept_continuations=0)
    run = await stage.start(flow)
    await stage.parked(run)
    read = (await stage.sql("select durable.read_journal(%s, %s)", run, run))[0][0]
    positions, kinds, *_ = read
    assert len(positions) < 400
    assert kinds.count("snapshot") == 1
    await stage.client.emit("go")
    assert await stage.client.result(run, timeout=30) == 1000
    assert fakes.tasks.count("add") == 1000


async def test_a_snapshot_keeps_what_was_under_way(stage: Stage) -> None:
    """Sleeps, event waits and rests between attempts that began before a snapshot go on after it."""
    workflow = (
        WorkflowBuilder("under_way")
        .parallel(
            "par",
            branches={
                "slow": lambda b: b.wait("nap", timedelta(hours=1)).task("rested", "f"),
                "told": lambda b: b.wait_for_event("ear", event_name="go").task("heard", "f", args=["{{ear.payload}}"]),
                "flaky": lambda b: b.task(
                    "stumble", "stumble", retry_policy=RetryPolicy(max_retries=1, delay=timedelta(hours=2))
                ),
                "busy": lambda b: b.foreach(
                    "each", items="{{range(400)}}", loop_body=lambda c: c.task("tick", "tick", args=["{{item}}"])
                ),
            },
        )
        .task("after", "f")
        .build()
    )
    left = [RuntimeError("once"), "fine"]
    fakes = Fakes({"stumble": lambda: left.pop(0), "f": lambda *args: list(args)})
    flow = highway_workflow(workflow, fakes)
    await stage.work(flow, kept_continuations=0)
    run = await stage.start(flow)
    await stage.parked(run)
    assert (await stage.sql("select count(*) from durable.journal where kind = 'snapshot'"))[0][0] >= 1
    await stage.client.emit("go", 5)
    ended = await stage.end(run, fakes)
    assert (ended.state, ended.error) == ("succeeded", {})
    assert len(fakes.tasks) == 400 + 2 + 1 + 1 + 1
    assert {call.step: call.args for call in fakes.calls}["par#3/heard"] == (5,)


@pytest.mark.parametrize("cap", [None, 10])
async def test_a_fan_out_is_saved_while_its_tasks_run(stage: Stage, cap: int | None) -> None:
    """While spawned items are open a resume reads a snapshot and little more; what waits for the cap still comes."""
    builder = WorkflowBuilder("wide")
    builder.foreach(
        "each",
        items="{{range(300)}}",
        loop_body=lambda b: b.task("t", "t", args=["{{item}}"]).condition(
            "late",
            condition="{{item}} in [100, 299]",
            if_true=lambda c: c.wait_for_event("ear", event_name="go"),
            if_false=lambda c: c,
        ),
        parallel=True,
        max_parallel=cap,
        metadata={"spawn": True},
    )
    fakes = Fakes({"t": lambda n: n})
    flow = highway_workflow(builder.task("after", "count", args=["{{each | length}}"]).build(), fakes)
    await stage.work(flow, kept_continuations=0)
    run = await stage.start(flow)

    async def only_two_wait() -> bool:
        rows = await stage.sql("select state::text from durable.task where finished_at is null")
        return [row[0] for row in rows] == ["parked"] * 3

    await stage.until(only_two_wait)
    whole = (await stage.sql("select count(*) from durable.journal where task_id = %s", run))[0][0]
    read = (await stage.sql("select durable.read_journal(%s, %s)", run, run))[0][0]
    assert whole > 300
    assert len(read[0]) < whole / 2
    await stage.client.emit("go")
    ended = await stage.end(run, fakes)
    assert (ended.state, ended.error) == ("succeeded", {})
    assert fakes.calls[-1].args == (300,)
    assert len(fakes.tasks) == 301
