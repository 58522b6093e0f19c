"""A payment that waits for a person: for days if it must, through restarts, holding nothing but a row.

    durable run examples/highway/approval.py --input amount=250 --follow

It prints the event that it waits for; answer it from another terminal with

    durable emit approval_RUN --payload '{"approved": true, "by": "Ada"}'
"""

from __future__ import annotations

from durable import Durable
from examples.highway.play import play
from highway_dsl import Workflow, WorkflowBuilder

HERE = "examples.highway.approval"
DAYS = 3


def build() -> Workflow:
    builder = WorkflowBuilder("approval").task("ask", f"{HERE}.ask", args=["{{inputs.amount}}", "{{run.id}}"])
    builder.wait_for_event("answer", event_name="approval_{{run.id}}", timeout_seconds=DAYS * 86400)
    builder.on_failure("escalate")
    builder.condition(
        "approved",
        condition="{{answer.payload.approved}}",
        if_true=lambda b: b.task("pay", f"{HERE}.pay", args=["{{inputs.amount}}", "{{answer.payload.by}}"]),
        if_false=lambda b: b.task("decline", f"{HERE}.decline", args=["{{answer.payload.by}}"]),
    )
    return builder.task("escalate", f"{HERE}.escalate", args=["{{error_message}}"]).build()


async def ask(amount: float, run: str) -> str:
    return f"please decide about {amount}: emit approval_{run}"


async def pay(amount: float, by: str) -> str:
    return f"paid {amount}, approved by {by}"


async def decline(by: str) -> str:
    return f"declined by {by}"


async def escalate(why: str) -> str:
    return f"nobody answered in {DAYS} days: {why}"


workflow = build()


async def story(durable: Durable) -> None:
    run = await durable.start("approval", amount=250)
    await durable.emit(f"approval_{run}", {"approved": True, "by": "Ada"})
    print(await durable.result(run))


if __name__ == "__main__":
    play([workflow], story)
