"""How many runs of a workflow are active at once (section 6.3): runs that a person starts stand in line like others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from highway_dsl import Workflow, WorkflowBuilder
from interpreter.deployment import Deployed, load
from interpreter.highway import highway_workflow
from interpreter.secrets import Vault

from .stage import Fakes, Stage


def gated(cap: int | None = None) -> Workflow:
    """Waits for the event that its input names."""
    workflow = WorkflowBuilder("gated").wait_for_event("gate", event_name="go_{{inputs.n}}").build()
    return workflow if cap is None else workflow.set_max_active_runs(cap)


class Deploying:
    """Deploys and serves a workflow as the command does."""

    def __init__(self, stage: Stage, folder: Path) -> None:
        self._stage = stage
        self._file = folder / "gated.yaml"

    async def deploy(self, workflow: Workflow) -> None:
        self._file.write_text(workflow.to_yaml())
        await self._stage.client.deploy(load(self._file)[0].deployment())

    async def serve(self) -> None:
        await self._stage.work(catalogue=Deployed([], Vault(self._stage.dsn)))

    async def start(self, count: int) -> list[str]:
        return [await self._stage.client.start("gated", n=n) for n in range(count)]


@pytest.fixture
def deploying(stage: Stage, tmp_path: Path) -> Deploying:
    return Deploying(stage, tmp_path)


async def states_are(stage: Stage, runs: list[str], *states: str) -> None:
    async def holds() -> bool:
        return [await stage.client.state(run) for run in runs] == list(states)

    await stage.until(holds)


async def test_runs_beyond_the_cap_are_queued_and_admitted_in_order(stage: Stage, deploying: Deploying) -> None:
    """One at a time unless the workflow says otherwise; a run that waits is active; the next starts as one ends."""
    await deploying.deploy(gated())
    await deploying.serve()
    runs = await deploying.start(3)
    await states_are(stage, runs, "parked", "queued", "queued")
    await stage.client.emit("go_1")
    await stage.client.emit("go_0")
    await states_are(stage, runs, "succeeded", "succeeded", "parked")
    await stage.client.emit("go_2")
    await states_are(stage, runs, "succeeded", "succeeded", "succeeded")
    ends = await stage.sql("select run_id::text from durable.run order by finished_at")
    assert [row[0] for row in ends] == runs


@pytest.mark.parametrize("end", ["fails", "is cancelled"])
async def test_a_run_that_does_not_succeed_makes_room_too(stage: Stage, deploying: Deploying, end: str) -> None:
    """However a run ends, its slot is free; a queued run that is cancelled leaves the line."""
    workflow = gated(1)
    workflow.tasks["gate"].timeout_seconds = 60  # type: ignore[attr-defined]
    await deploying.deploy(workflow)
    await deploying.serve()
    runs = await deploying.start(3)
    await states_are(stage, runs, "parked", "queued", "queued")
    await stage.client.cancel(runs[1])
    await states_are(stage, runs, "parked", "cancelled", "queued")
    if end == "fails":
        await stage.skip(61)
    else:
        await stage.client.cancel(runs[0])
    await states_are(stage, runs, "failed" if end == "fails" else "cancelled", "cancelled", "parked")


async def test_a_cap_that_is_raised_admits_runs_that_wait(stage: Stage, deploying: Deploying) -> None:
    """A deployment with a larger cap lets queued runs start, on the version that they were started with."""
    await deploying.deploy(gated(1))
    await deploying.serve()
    runs = await deploying.start(3)
    await states_are(stage, runs, "parked", "queued", "queued")
    await deploying.deploy(gated(2))
    await states_are(stage, runs, "parked", "parked", "queued")
    assert len({(await stage.client.run(run)).version for run in runs}) == 1


async def test_a_paused_workflow_runs_when_a_person_starts_it(stage: Stage, deploying: Deploying) -> None:
    """Pausing concerns the schedule."""
    await deploying.deploy(gated().set_paused(True))
    await deploying.serve()
    runs = await deploying.start(1)
    await stage.client.emit("go_0")
    await states_are(stage, runs, "succeeded")


@pytest.mark.parametrize(("options", "active"), [({}, 2), ({"max_active_runs": None}, 3)])
async def test_a_workflow_in_a_program_has_the_same_cap(stage: Stage, options: dict[str, Any], active: int) -> None:
    """The definition's own, unless the program says otherwise."""
    flow = highway_workflow(gated(2), Fakes(), **options)
    await stage.work(flow)
    runs = [await stage.start(flow, {"n": n}) for n in range(3)]
    await states_are(stage, runs, *["parked"] * active, *["queued"] * (3 - active))


async def test_branches_of_a_run_need_no_slot_of_their_own(stage: Stage) -> None:
    """Tasks that a run spawns run under its slot: with room for one run they would wait for themselves."""
    workflow = (
        WorkflowBuilder("spread")
        .parallel("par", branches={n: lambda b, n=n: b.task(f"t{n}", "f") for n in "xyz"}, metadata={"spawn": True})
        .build()
    )
    assert workflow.max_active_runs == 1
    assert (await stage.run(workflow)).state == "succeeded"
