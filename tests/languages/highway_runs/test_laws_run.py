"""Laws over random workflows: any order of completion and any loss of memory or of a worker come to what the
simulator says."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from highway_dsl import Workflow
from interpreter.driver import saving
from interpreter.driver.saving import Saving
from interpreter.highway import HighwayTemplates, compile_workflow, highway_workflow
from interpreter.simulate import FAIL, simulate

from .random_flows import Flow
from .stage import Fakes, Stage

SEEDS = range(24)
GLOBALS = {"inputs": {}, "variables": {}, "run": {"id": "r", "status": "running", "started_at": "2025-01-01T00:00:00"}}


def said_by_simulator(flow: Flow) -> tuple[str, set[str], set[str]]:
    plan = compile_workflow(flow.workflow)
    outcomes: dict[str, Any] = dict.fromkeys(flow.fails, FAIL)
    report = simulate(plan, _Values(outcomes), globals=GLOBALS, evaluator=HighwayTemplates(plan))
    ran = {step.path for step in report.steps if step.state in ("succeeded", "failed") and _is_call(plan, step.path)}
    not_run = {step.path for step in report.steps if step.state in ("skipped", "upstream_failed")}
    return report.settled.outcome, ran, not_run


class _Values(dict[str, Any]):
    """What tasks return in the simulator: as the functions of the worker do."""

    def get(self, name: str, default: Any = None) -> Any:
        task = name.rpartition("/")[2].partition("@")[0]
        return self[task] if task in self else 2 if task.endswith("_next") else 1


def _is_call(plan: Any, path: str) -> bool:
    node = path.rpartition("/")[2]
    return any(n.id == node and n.kind == "call" for graph in plan.graphs.values() for n in graph.nodes)


def functions(flow: Flow, seed: int) -> Fakes:
    chance = random.Random(seed)

    async def work(task: str) -> Any:
        for _ in range(chance.randint(0, 3)):
            await asyncio.sleep(0)
        if task in flow.fails:
            raise RuntimeError(f"{task} fails")
        return 2 if task.endswith("_next") else 1

    class Random(Fakes):
        async def _outcome(self, name: str, step: str, args: Any, kwargs: Any) -> Any:
            return await work(step.rpartition("/")[2].partition("@")[0])

    return Random()


@pytest.mark.parametrize("seed", SEEDS)
async def test_any_order_and_any_replay_come_to_what_the_simulator_says(stage: Stage, seed: int) -> None:
    """The same tasks run and the same are not, in memory and with a replay at every wait; nothing runs twice."""
    flow = Flow(seed)
    expected = said_by_simulator(flow)
    for kept in (256, 0):
        fakes = functions(flow, seed + kept)
        made = highway_workflow(flow.workflow, fakes, name=f"flow_{kept}")
        await stage.work(made, kept_continuations=kept, kept_seconds=60)
        ended = await stage.end(await stage.start(made), fakes)
        await stage.stop()
        not_run = ended.noted("skipped", "upstream_failed")
        assert (ended.state, set(fakes.steps), not_run) == expected
        assert len(fakes.steps) == len(set(fakes.steps))


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_snapshot_after_any_record_changes_nothing(
    stage: Stage, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a snapshot after every record and a resume at every wait, a run comes to the same; nothing runs twice."""
    monkeypatch.setattr(saving, "_LEAST", 0)
    monkeypatch.setattr(Saving, "is_worth", lambda self, size: True)
    monkeypatch.setattr(Saving, "due", property(lambda self: 0, lambda self, value: None), raising=False)
    flow = Flow(seed)
    fakes = functions(flow, seed)
    made = highway_workflow(flow.workflow, fakes, name="saved")
    await stage.work(made, kept_continuations=0)
    ended = await stage.end(await stage.start(made), fakes)
    assert (ended.state, set(fakes.steps), ended.noted("skipped", "upstream_failed")) == said_by_simulator(flow)
    assert len(fakes.steps) == len(set(fakes.steps))
    saved = await stage.sql("select 1 from durable.journal where kind = 'snapshot' limit 1")
    assert bool(saved) == bool(await stage.sql("select 1 from durable.journal limit 1"))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_workflow_means_the_same_after_yaml_and_json(seed: int) -> None:
    """The plan of a reloaded workflow is the plan of the workflow."""
    workflow = Flow(seed).workflow
    plan = compile_workflow(workflow)
    assert compile_workflow(Workflow.from_yaml(workflow.to_yaml())) == plan
    assert compile_workflow(Workflow.from_json(workflow.to_json())) == plan
