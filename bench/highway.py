"""highway: the ten steps of W1 as a Highway workflow beside the same ten in code, and the walker alone."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

from bench.highway_flow import DEFINITION, ten_steps_highway
from bench.probe import Probe
from bench.process import WorkerProcess, worker
from bench.result import Budget, Result
from bench.stage import Stage
from bench.steps import STEPS, WARM_UP, drain
from bench.workloads import ten_steps
from durable import Durable
from interpreter.highway import HighwayTemplates, compile_workflow
from interpreter.plan import Plan
from interpreter.walker import Program, Walk, apply
from interpreter.walker.commands import RunCall
from interpreter.walker.records import Record, Settled, Started

ROUNDS = 3
SHARE = "of the code-first rate"
ALONE = "the walker alone"


async def run(stage: Stage) -> AsyncIterator[Result]:
    for workflows, in_flight in stage.sizes.in_flight:
        async with stage.database() as dsn, worker(dsn, slots=in_flight) as process:
            yield await _side_by_side(dsn, process, max(1, workflows // ROUNDS), in_flight)
    yield _walker_alone(stage.sizes.walks)


async def _side_by_side(dsn: str, process: WorkerProcess, workflows: int, in_flight: int) -> Result:
    """Both in turn, several times, on one worker: what else the machine does falls on both."""
    seconds, cpu = {True: 0.0, False: 0.0}, {True: 0.0, False: 0.0}
    async with Durable(dsn) as durable, await Probe.open(dsn) as probe:
        for flow in (ten_steps, ten_steps_highway):
            await drain(durable, probe, flow, min(WARM_UP, workflows))
        for _ in range(ROUNDS):
            for highway, flow in ((False, ten_steps), (True, ten_steps_highway)):
                before = (await process.used())["cpu_s"]
                seconds[highway] += await drain(durable, probe, flow, workflows)
                cpu[highway] += (await process.used())["cpu_s"] - before
    steps = workflows * ROUNDS * STEPS
    values = {
        "steps/s": steps / seconds[True],
        "steps/s in code": steps / seconds[False],
        SHARE: seconds[False] / seconds[True],
        "worker cpu us/step": cpu[True] / steps * 1e6,
        "worker cpu us/step in code": cpu[False] / steps * 1e6,
    }
    against = "commits_per_s" if in_flight == 1 else "rows_per_s"
    return Result("highway", f"{workflows * ROUNDS:,} workflows, {in_flight} in flight", values, against)


def _walker_alone(walks: int) -> Result:
    """The plan walked by made-up records: no database, no driver, no function."""
    plan = compile_workflow(DEFINITION)
    program, evaluator = Program(plan), HighwayTemplates(plan)
    _walk(program, evaluator)
    began = time.perf_counter()
    for _ in range(walks):
        _walk(program, evaluator)
    passed = time.perf_counter() - began
    nodes = walks * len(_root(plan).nodes)
    return Result("highway", ALONE, {"us/node": passed / nodes * 1e6, "nodes/s": nodes / passed})


def _walk(program: Program, evaluator: HighwayTemplates) -> None:
    walk = Walk(program, evaluator)
    records: list[Record] = [Started(globals={"inputs": {"number": 0}, "variables": {}})]
    for record in records:
        for command in apply(walk, record):
            if isinstance(command, RunCall):
                records.append(Settled(command.path, value=command.args["args"][0] + 1))
    assert walk.settled is not None
    assert walk.settled.value == STEPS


def _root(plan: Plan) -> Any:
    return plan.graphs[plan.root]


def judge(results: list[Result]) -> None:
    for result in results:
        if SHARE in result.values:
            result.budgets = [Budget(SHARE, 0.4, result.values[SHARE])]
