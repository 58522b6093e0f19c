"""An ETL with retries and callbacks: the source is flaky, and whoever is on call hears how it ended.

durable run examples/highway/etl.py --input table=orders --follow
"""

from __future__ import annotations

from datetime import timedelta

from durable import Durable, current_step
from examples.highway.play import play
from highway_dsl import RetryPolicy, Workflow, WorkflowBuilder

HERE = "examples.highway.etl"


def build() -> Workflow:
    return (
        WorkflowBuilder("etl")
        .set_default_retry_policy(RetryPolicy(max_retries=2, delay=timedelta(milliseconds=200)))
        .task("extract", f"{HERE}.extract", args=["{{inputs.table}}"], result_key="rows")
        .task("transform", f"{HERE}.transform", args=["{{rows}}"], result_key="clean")
        .task("load", f"{HERE}.load", args=["{{clean}}"])
        .timeout(timedelta(minutes=5))
        .on_success("report")
        .on_failure("page")
        .task("report", f"{HERE}.say", args=["loaded {{load.count}} rows on {{ds_date}}"])
        .task("page", f"{HERE}.say", args=["{{failed_task_id}} failed: {{error_message}}"])
        .build()
    )


async def extract(table: str) -> list[dict[str, int]]:
    """Fails the first time, as sources do."""
    if current_step().attempt == 1:
        raise ConnectionError(f"{table} did not answer")
    return [{"id": number, "amount": number * 10} for number in range(5)]


async def transform(rows: list[dict[str, int]]) -> list[dict[str, int]]:
    return [row for row in rows if row["amount"] > 0]


async def load(rows: list[dict[str, int]]) -> dict[str, int]:
    if len(rows) > 1000:
        raise ValueError("that is too much for one load")
    return {"count": len(rows)}


async def say(text: str) -> str:
    print(text)
    return text


workflow = build()


async def story(durable: Durable) -> None:
    run = await durable.start("etl", table="orders")
    print("the result:", await durable.result(run))


if __name__ == "__main__":
    play([workflow], story)
