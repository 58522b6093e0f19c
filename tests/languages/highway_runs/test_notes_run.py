"""What a walk wrote down about its decisions is compared when it makes them again."""

from __future__ import annotations

from typing import Any

import pytest

from highway_dsl import Workflow, WorkflowBuilder
from interpreter.highway import highway_workflow

from .stage import Ended, Fakes, Stage


def decides(condition: str | None) -> Workflow:
    """Neither branch does anything: only the note tells what was decided."""
    builder = WorkflowBuilder("decides").task("a", "a")
    if condition is not None:
        builder.condition("c", condition=condition, if_true=lambda b: b, if_false=lambda b: b)
    return builder.wait_for_event("gate", event_name="go").task("last", "last").build()


async def parked_as(stage: Stage, fakes: Fakes, condition: str | None) -> str:
    flow = highway_workflow(decides(condition), fakes)
    await stage.work(flow, kept_continuations=0)
    run = await stage.start(flow)
    await stage.parked(run)
    await stage.stop()
    return run


async def goes_on_as(stage: Stage, fakes: Fakes, condition: str | None, run: str) -> Ended:
    await stage.work(highway_workflow(decides(condition), fakes), kept_continuations=0)
    return await stage.end(run, fakes)


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ("{{a}} > 5", ['"chose":["true"]', '"chose":["false"]']),
        ("{{a + 0}} > 1 and {{inputs | length}} == 0", ['"saw":{"a":3}', '"saw":{"a":3,"inputs"']),
        (None, ['"chose":["true"]', "but now it is nothing of that kind"]),
    ],
    ids=["decides otherwise", "decides by something else", "decides nothing"],
)
async def test_a_replay_that_decides_otherwise_stops(stage: Stage, now: str | None, said: list[str]) -> None:
    """The error shows what was written down and what it is now; nothing more runs. The old plan goes on."""
    fakes = Fakes({"a": 3})
    run = await parked_as(stage, fakes, "{{a}} > 1")
    await stage.client.emit("go")
    ended = await goes_on_as(stage, fakes, now, run)
    assert (ended.state, ended.error["type"], fakes.tasks) == ("failed", "Diverged", ["a"])
    for part in (f"run {run}", "'c'", *said):
        assert part in ended.error["message"], ended.error["message"]
    await stage.stop()
    await stage.client.retry(run)
    ended = await goes_on_as(stage, fakes, "{{a}} > 1", run)
    assert (ended.state, fakes.tasks) == ("succeeded", ["a", "last"])


async def test_notes_are_written_once_however_often_they_are_made(stage: Stage) -> None:
    """Replays at every wait, and a retry after a failure, leave one line for each decision."""
    outcomes: list[Any] = [RuntimeError("once"), "fine"]
    builder = WorkflowBuilder("often").task("a", "a")
    builder.foreach(
        "each",
        items="{{range(3)}}",
        loop_body=lambda b: b.condition(
            "c", condition="{{item}} == 1", if_true=lambda x: x.wait("w", wait_for="PT1H"), if_false=lambda x: x
        ),
    )
    workflow = builder.task("bad", "bad").wait("nap", wait_for="PT1H").build()
    fakes = Fakes({"bad": lambda: outcomes.pop(0)})
    flow = highway_workflow(workflow, fakes)
    await stage.work(flow, kept_continuations=0)
    run = await stage.start(flow)
    assert (await stage.end(run, fakes)).state == "failed"
    await stage.client.retry(run)
    assert (await stage.end(run, fakes)).state == "succeeded"
    lines = [(line.step, line.message) for line in await stage.client.logs(run) if line.level == "why"]
    routes = [step for step, message in lines if message == "route"]
    assert routes == ["each[0]/c", "each[1]/c", "each[2]/c"]
    assert len(lines) == len(set(lines))
