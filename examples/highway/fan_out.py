"""Fan-out and fan-in over events between workflows (section 7.3): `ingest` says that the day's data is there,
`prices` and `risk` hear it side by side, and `report` begins when both are done. None knows the others.

    durable run examples/highway/fan_out.py:report --input data_interval_start=2025-01-02T00:00:00Z --follow

serves all four; start `prices`, `risk` and `ingest` from another terminal, in any order, each for the same day:

    durable run prices --input data_interval_start=2025-01-02T00:00:00Z
"""

from __future__ import annotations

from durable import Durable
from examples.highway.play import play
from highway_dsl import Workflow, WorkflowBuilder

HERE = "examples.highway.fan_out"
DAY = {"data_interval_start": "2025-01-02T00:00:00Z"}


def ingest() -> Workflow:
    return (
        WorkflowBuilder("ingest")
        .task("fetch", f"{HERE}.fetch", args=["{{ds_date}}"], result_key="data")
        .emit_event("announce", event_name="data_{{ds}}_ready", payload={"rows": "{{data.rows}}"})
        .build()
    )


def consumer(name: str, factor: int) -> Workflow:
    return (
        WorkflowBuilder(name)
        .wait_for_event("data", event_name="data_{{ds}}_ready", timeout_seconds=3600)
        .task("compute", f"{HERE}.compute", args=["{{data.payload.rows}}", factor], result_key="total")
        .emit_event("done", event_name=f"{name}_{{{{ds}}}}_done", payload={"total": "{{total}}"})
        .build()
    )


def report() -> Workflow:
    waits = {
        name: lambda b, name=name: b.wait_for_event(name, event_name=f"{name}_{{{{ds}}}}_done", timeout_seconds=3600)
        for name in ("prices", "risk")
    }
    return (
        WorkflowBuilder("report")
        .parallel("all_in", branches=waits)
        .task("write", f"{HERE}.write", args=["{{prices.payload.total}}", "{{risk.payload.total}}"])
        .build()
    )


def build() -> list[Workflow]:
    return [ingest(), consumer("prices", 2), consumer("risk", 3), report()]


async def fetch(day: str) -> dict[str, object]:
    return {"day": day, "rows": [1, 2, 3]}


async def compute(rows: list[int], factor: int) -> int:
    return sum(rows) * factor


async def write(prices: int, risk: int) -> str:
    return f"prices {prices}, risk {risk}"


ingesting, pricing, rating, reporting = build()


async def story(durable: Durable) -> None:
    runs = [await durable.start(name, **DAY) for name in ("report", "prices", "risk", "ingest")]
    print(await durable.result(runs[0]))


if __name__ == "__main__":
    play([ingesting, pricing, rating, reporting], story)
