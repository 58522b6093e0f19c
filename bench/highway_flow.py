"""The ten steps of W1 as a Highway workflow."""

from __future__ import annotations

from bench.workloads import add_one
from highway_dsl import Workflow, WorkflowBuilder
from interpreter.driver import FunctionTable
from interpreter.highway import highway_workflow


def _definition() -> Workflow:
    builder = WorkflowBuilder("ten_steps_highway")
    before = "inputs.number"
    for number in range(1, 11):
        builder.task(f"step_{number}", "add_one", args=[f"{{{{{before}}}}}"])
        before = f"step_{number}"
    return builder.build()


DEFINITION = _definition()
# Without its cap on active runs: the workflow in code has none either.
ten_steps_highway = highway_workflow(DEFINITION, FunctionTable({"add_one": add_one}), max_active_runs=None)
