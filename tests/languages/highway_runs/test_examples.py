"""The examples do what they say."""

from __future__ import annotations

from typing import Any

import pytest

from examples.highway import approval, bank_batch, etl, fan_out, order_router
from examples.highway.play import Imported
from highway_dsl import Workflow
from highway_dsl.check import operators
from interpreter.highway import check_workflow, highway_workflow

from .stage import Fakes, Stage

ALL = [etl.build(), *fan_out.build(), order_router.build(), approval.build(), bank_batch.build()]


@pytest.mark.parametrize("workflow", ALL, ids=lambda workflow: workflow.name)
def test_an_example_is_free_of_faults_and_survives_yaml(workflow: Workflow) -> None:
    """Each example checks clean, in Python and as YAML."""
    assert check_workflow(workflow, others=ALL).faults == ()
    assert Workflow.from_yaml(workflow.to_yaml()) == workflow


async def run(stage: Stage, workflow: Workflow, **inputs: Any) -> Any:
    flow = highway_workflow(workflow, Imported())
    await stage.work(flow)
    return await stage.end(await stage.start(flow, inputs), Fakes())


async def names(stage: Stage, kind: str = "step") -> list[str]:
    rows = await stage.sql("select name from durable.journal where kind = %s order by at, pos", kind)
    return [row[0] for row in rows]


async def test_the_etl_tries_again_and_reports(stage: Stage) -> None:
    """The flaky source is asked twice; the report says how many rows were loaded."""
    ended = await run(stage, etl.build(), table="orders")
    assert (ended.state, ended.result) == ("succeeded", {"count": 4})
    assert await names(stage) == ["extract", "transform", "load", "report@load"]
    assert await names(stage, "attempt") == ["extract"]


async def test_the_fan_out_meets_in_the_report(stage: Stage) -> None:
    """The report begins when both consumers have said that they are done, in whatever order all were started."""
    flows = {workflow.name: highway_workflow(workflow, Imported()) for workflow in fan_out.build()}
    await stage.work(*flows.values(), kept_continuations=0)
    runs = [await stage.start(flows[name], fan_out.DAY) for name in ("report", "prices", "risk", "ingest")]
    assert await stage.client.result(runs[0], timeout=30) == "prices 12, risk 18"


@pytest.mark.parametrize(("order", "way"), list(enumerate([*order_router.STATUSES.values(), "ask_a_person"])))
async def test_the_router_takes_one_way_and_notifies(stage: Stage, order: int, way: str) -> None:
    """Exactly one way is taken, then the customer is told."""
    ended = await run(stage, order_router.build(), order_id=order)
    assert (ended.state, await names(stage)) == ("succeeded", ["fetch", way, "notify"])


@pytest.mark.parametrize(("approved", "said"), [(True, "paid 250, approved by Ada"), (False, "declined by Ada")])
async def test_the_approval_waits_for_its_answer(stage: Stage, approved: bool, said: str) -> None:
    """Two days later the answer comes, to another worker than the one that asked, and decides."""
    flow = highway_workflow(approval.build(), Imported())
    await stage.work(flow)
    waiting = await stage.start(flow, {"amount": 250})
    await stage.parked(waiting)
    await stage.stop()
    await stage.skip(2 * 86400)
    await stage.work(flow)
    await stage.client.emit(f"approval_{waiting}", {"approved": approved, "by": "Ada"})
    assert await stage.client.result(waiting, timeout=30) == said


async def test_the_approval_escalates_after_three_days(stage: Stage) -> None:
    """Nobody answers: the wait fails, and its callback runs."""
    ended = await run(stage, approval.build(), amount=250)
    assert (ended.state, await names(stage)) == ("failed", ["ask", "escalate@answer"])


@pytest.mark.parametrize(("breaks", "kind"), [(0, "weekday"), (2, "month_end")])
async def test_the_bank_batch_closes_the_day(stage: Stage, breaks: int, kind: str) -> None:
    """All 36 tasks are there; those of the ways not taken are skipped, the others run once."""
    workflow = bank_batch.build()
    assert len({task.task_id for _, task in operators(workflow)}) == 36
    ended = await run(stage, workflow, breaks=breaks, day_kind=kind)
    ran = {name.rpartition("/")[2].partition("@")[0] for name in await names(stage)}
    assert ended.state == "succeeded"
    assert ("close_month" in ran, "adjust" in ran, "certify" in ran) == (kind == "month_end", breaks > 0, not breaks)
    assert "page_operator" not in ran
