"""Orders by status: exactly one way is taken, and the customer hears of it whichever it was.

durable run examples/highway/order_router.py --input order_id=1 --follow
"""

from __future__ import annotations

from durable import Durable
from examples.highway.play import play
from highway_dsl import Workflow, WorkflowBuilder

HERE = "examples.highway.order_router"
STATUSES = {"pending": "reserve", "approved": "ship", "rejected": "refund"}


def build() -> Workflow:
    builder = (
        WorkflowBuilder("order_router")
        .task("fetch", f"{HERE}.fetch", args=["{{inputs.order_id}}"], result_key="order")
        .switch("route", switch_on="{{order.status}}", cases=STATUSES, default="ask_a_person")
    )
    for way in (*STATUSES.values(), "ask_a_person"):
        builder.task(way, f"{HERE}.{way}", args=["{{order}}"], dependencies=["route"])
    return builder.task("notify", f"{HERE}.notify", args=["{{order.id}}"], dependencies=["route"]).build()


async def fetch(order_id: int) -> dict[str, object]:
    return {"id": order_id, "status": [*STATUSES, "lost"][order_id % 4]}


async def reserve(order: dict[str, object]) -> str:
    return f"reserved {order['id']}"


async def ship(order: dict[str, object]) -> str:
    return f"shipped {order['id']}"


async def refund(order: dict[str, object]) -> str:
    return f"refunded {order['id']}"


async def ask_a_person(order: dict[str, object]) -> str:
    return f"nobody knows about {order['id']}"


async def notify(order_id: int) -> str:
    return f"told the customer of {order_id}"


workflow = build()


async def story(durable: Durable) -> None:
    for order in range(4):
        run = await durable.start("order_router", order_id=order)
        await durable.result(run)
        print([step.body for step in await durable.steps(run) if step.kind == "step"])


if __name__ == "__main__":
    play([workflow], story)
