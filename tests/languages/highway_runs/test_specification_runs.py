"""Every example of the specification runs on a real worker and ends as its text says."""

from __future__ import annotations

from typing import Any

import pytest

from highway_dsl import TaskOperator, Workflow, WorkflowBuilder
from highway_dsl.check import references
from interpreter.highway import compile_workflow, highway_workflow

from ..highway.spec_builders import BUILDERS
from ..highway.spec_documents import FRAGMENTS, JSON_11_2, YAML_11_1, YAML_15_1, document
from ..highway.spec_operators import OPERATORS
from .stage import Fakes, Stage

# What a fragment of the text leaves to its surroundings.
SURROUNDINGS: dict[str, Any] = {
    "api_url": "https://api.example.com",
    "api_key": "k",
    "url": "u",
    "score": 0.9,
    "data": {"quality": 0.9, "quality_score": 0.9, "status": "approved", "records": [1, 2], "items": [1]},
    "status": "done",
    "record_count": 3,
    "result": {"count": 3},
    "upstream_id": "up",
    "upstream_run_id": "up",
    "qa_results": {"status": "passed", "issues": []},
}
# What the functions of the examples return where it matters.
VALUES: dict[str, Any] = {
    "validators.check_quality": 0.9,
    "db.fetch_pending": [{"id": 1}, {"id": 2}],
    "qa.inspect_product": {"status": "passed", "issues": []},
    "etl.process": {"count": 7},
    "orders.fetch": {"status": "approved"},
}


def with_surroundings(workflow: Workflow) -> Workflow:
    return workflow.set_variables(SURROUNDINGS)


def of_operator(section: str) -> Workflow:
    operator = OPERATORS[section]
    workflow = Workflow(name="section").add_task(operator.model_copy(deep=True))
    inside = {task.task_id for task in getattr(operator, "loop_body", [])}
    for name in sorted({name for _, name in references(operator)} - inside):
        workflow.add_task(TaskOperator(task_id=name, function="f"))
    return workflow


EXAMPLES: dict[str, Any] = {
    **{f"builder {section}": make for section, make in BUILDERS.items()},
    **{f"operator {section}": (lambda section=section: of_operator(section)) for section in OPERATORS},
    **{f"document {section}": (lambda section=section: Workflow.from_yaml(document(section))) for section in FRAGMENTS},
    "yaml 11.1": lambda: Workflow.from_yaml(YAML_11_1),
    "json 11.2": lambda: Workflow.from_json(JSON_11_2),
    "yaml 15.1": lambda: Workflow.from_yaml(YAML_15_1),
}
EVENTS = ("pipeline_up_completed", "pipeline_up_done", "upstream_done")


@pytest.mark.parametrize("example", EXAMPLES)
async def test_an_example_of_the_specification_runs_to_success(stage: Stage, example: str) -> None:
    """Each example deploys, runs on a worker and succeeds; its plan survives YAML and JSON."""
    workflow = with_surroundings(EXAMPLES[example]())
    plan = compile_workflow(workflow)
    assert plan == compile_workflow(Workflow.from_yaml(workflow.to_yaml()))
    assert plan == compile_workflow(Workflow.from_json(workflow.to_json()))
    day = "2025-01-01T00:00:00Z"
    for name in (*EVENTS, f"pipeline_a_{day}_done", f"pipeline_{day}_completed"):
        await stage.client.emit(name, {"status": "success"})
    ended = await stage.run(workflow, VALUES, {"data_interval_start": day})
    assert (ended.state, ended.error) == ("succeeded", {})
    assert len(set(ended.fakes.steps)) == len(ended.fakes.steps)


async def test_15_1_hands_results_on_and_honours_policies(stage: Stage) -> None:
    """extract, transform and load run in turn; transform is tried again after its failures."""
    left = [RuntimeError("once"), RuntimeError("twice"), "clean"]
    outcomes = {"etl.extract_data": "raw", "etl.transform_data": lambda raw: left.pop(0), "etl.load_data": "loaded"}
    ended = await stage.run(BUILDERS["15.1"](), outcomes)
    assert ended.fakes.tasks == ["extract", "transform", "transform", "transform", "load"]
    assert [call.attempt for call in ended.fakes.calls] == [1, 1, 2, 3, 1]
    assert [call.args for call in ended.fakes.calls][-1] == ("clean",)
    assert ended.result == "loaded"


@pytest.mark.parametrize(("score", "chosen"), [(0.9, "premium_processing"), (0.8, "standard_processing")])
async def test_15_2_takes_one_branch_then_finalizes(stage: Stage, score: float, chosen: str) -> None:
    """Only the chosen branch runs, and what depends on the condition runs after it."""
    ended = await stage.run(BUILDERS["15.2"](), {"validators.check_quality": score})
    assert ended.fakes.tasks == ["fetch", "validate", chosen, "finalize"]
    assert ended.noted("skipped") == {"premium_processing", "standard_processing"} - {chosen}


async def test_15_3_aggregates_what_all_branches_made(stage: Stage) -> None:
    """All three branches get the data; the task after them sees the result of each."""
    outcomes = {f"transform.method_{x}": lambda data, x=x: f"{data}{x}" for x in "abc"}
    ended = await stage.run(BUILDERS["15.3"](), {"api.fetch_data": "d", **outcomes})
    assert ended.fakes.calls[-1].args == ("da", "db", "dc")
    assert sorted(ended.fakes.tasks) == ["aggregate", "fetch", "t_a", "t_b", "t_c"]


async def test_15_4_runs_the_body_for_each_record(stage: Stage) -> None:
    """Each record is validated, enriched and saved, in order; its names are its own."""
    outcomes = {"db.fetch_pending": [1, 2], "enrichment.add_metadata": lambda item: {"n": item}}
    ended = await stage.run(BUILDERS["15.4"](), outcomes)
    body = [f"process_records[{k}]/{task}" for k in (0, 1) for task in ("validate", "enrich", "save")]
    assert ended.fakes.steps == ["fetch_records", *body, "summarize"]
    assert [call.args for call in ended.fakes.calls if call.function == "db.save_record"] == [({"n": 1},), ({"n": 2},)]


async def test_15_5_reworks_until_the_inspection_passes(stage: Stage) -> None:
    """The loop goes on while the newest inspection failed: the body's result reaches the condition."""
    seen = iter(["failed", "failed", "passed"])
    outcomes = {"qa.inspect_product": lambda: {"status": next(seen), "issues": ["x"]}}
    ended = await stage.run(BUILDERS["15.5"](), outcomes)
    assert ended.fakes.tasks == ["initial_qa", *["perform_rework", "rerun_qa"] * 2, "finalize"]


async def test_15_6_knows_its_data_interval(stage: Stage) -> None:
    """`ds` is the start of the data interval, in one spelling whatever zone it was given in."""
    ended = await stage.run(BUILDERS["15.6"](), {}, {"data_interval_start": "2025-01-02T03:00:00+01:00"})
    assert ended.fakes.calls[0].args == ("2025-01-02T02:00:00Z",)


async def test_15_7_downstream_consumes_what_upstream_says(stage: Stage) -> None:
    """The waiting workflow goes on with the payload of the event, whoever was first."""
    upstream, downstream = BUILDERS["15.7 upstream"](), BUILDERS["15.7 downstream"]()
    day = {"data_interval_start": "2025-01-01T00:00:00+00:00"}
    fakes = Fakes({"etl.process": {"count": 7}})
    up, down = highway_workflow(upstream, fakes), highway_workflow(downstream, fakes)
    await stage.work(up, down)
    waiting = await stage.start(down, day)
    await stage.parked(waiting)
    await stage.start(up, day)
    await stage.client.result(waiting, timeout=30)
    assert fakes.calls[-1].args == ({"status": "success", "count": 7},)


@pytest.mark.parametrize(("fails", "handler"), [(False, "success_handler"), (True, "failure_handler")])
async def test_15_8_runs_one_callback(stage: Stage, fails: bool, handler: str) -> None:
    """Success runs one handler, failure the other; a handled failure still fails the run."""
    outcome = RuntimeError("down") if fails else 5
    ended = await stage.run(BUILDERS["15.8"](), {"api.call_external_service": outcome})
    assert ended.fakes.tasks == ["risky_operation", handler]
    assert ended.state == ("failed" if fails else "succeeded")


async def test_8_3_tells_the_handler_what_failed(stage: Stage) -> None:
    """A failure callback sees the message of the error."""
    ended = await stage.run(BUILDERS["8.3"](), {"api.call_external_service": RuntimeError("no route")})
    assert ended.fakes.calls[-1].args == ("Operation failed: no route",)
    assert (ended.error["type"], ended.error["step"], ended.error["handled"]) == (
        "RuntimeError",
        "risky_operation",
        ["risky_operation"],
    )


@pytest.mark.parametrize(("status", "chosen"), [("approved", "process_approved"), ("?", "handle_unknown_status")])
async def test_15_9_routes_by_status(stage: Stage, status: str, chosen: str) -> None:
    """Exactly the task of the matching case runs, or the default."""
    ended = await stage.run(BUILDERS["15.9"](), {"orders.fetch": {"status": status}})
    assert ended.fakes.tasks == ["fetch_order", chosen]
    assert len(ended.noted("skipped")) == 4


async def test_8_1_waits_longer_after_each_failure(stage: Stage) -> None:
    """The default policy gives two retries, the task's own five, with the waits of the text."""
    workflow = BUILDERS["8.1"]()
    ended = await stage.run(workflow, {"api.fetch_data": "ok", "db.write": RuntimeError("no")})
    attempts = [call.attempt for call in ended.fakes.calls if call.step == "critical_operation"]
    assert attempts == [1, 2, 3, 4, 5, 6]
    rows = await stage.sql(
        "select extract(epoch from ((body->>'until')::float * interval '1 s' + timestamptz 'epoch') - at)"
        " from durable.journal where kind = 'attempt' order by pos"
    )
    assert [int(row[0]) for row in rows] == pytest.approx([60, 90, 135, 202, 303], abs=1.1)


async def test_9_3_waits_a_day_without_a_slot(stage: Stage) -> None:
    """A wait of a day is over when the clock says so, and not before."""
    fakes = Fakes()
    flow = highway_workflow(of_operator("5.3"), fakes)
    await stage.work(flow)
    run = await stage.start(flow)
    await stage.parked(run)
    await stage.skip(86_000)
    # Another run that wakes by the same move of the clock is done: whoever looked at timers has left this one alone.
    short = highway_workflow(WorkflowBuilder("short").wait("w", wait_for="PT1S").build(), fakes)
    await stage.work(short)
    other = await stage.start(short)
    await stage.parked(other)
    await stage.skip(2)
    await stage.client.result(other, timeout=30)
    assert await stage.client.state(run) == "parked"
    await stage.skip(500)
    assert await stage.client.result(run, timeout=30) is None
