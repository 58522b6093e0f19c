"""The end of a bank's day in 36 tasks: four product lines side by side, then the ledger, then regulators.

A break between the books is investigated before anything is posted; the month's last day closes the month; a
failed submission is tried again and then pages the operator.

    durable run examples/highway/bank_batch.py --input breaks=2 --input day_kind=month_end --follow
"""

from __future__ import annotations

from datetime import timedelta

from durable import Durable
from examples.highway.play import play
from highway_dsl import RetryPolicy, Workflow, WorkflowBuilder

HERE = "examples.highway.bank_batch"
LINES = ("deposits", "loans", "cards", "securities")
STAGES = ("accrue", "charge_fees", "post", "reconcile")


def build() -> Workflow:
    builder = (
        WorkflowBuilder("bank_batch")
        .set_schedule("0 22 * * 1-5")
        .add_tags("bank", "end-of-day")
        .set_default_retry_policy(RetryPolicy(max_retries=2, delay=timedelta(seconds=10)))
        .task("freeze_intake", f"{HERE}.work", args=["freeze", "{{ds_date}}"])
        .task("load_rates", f"{HERE}.work", args=["rates"])
        .task("snapshot_positions", f"{HERE}.work", args=["positions"])
        .parallel("product_lines", branches={line: _line(line) for line in LINES}, timeout=7200)
        .task("count_breaks", f"{HERE}.count_breaks", args=["{{inputs.breaks}}"])
        .condition("any_breaks", condition="{{count_breaks}} > 0", if_true=_investigate, if_false=_certify)
    )
    return _close(_ledger(builder)).build()


def _line(line: str) -> object:
    def branch(builder: WorkflowBuilder) -> WorkflowBuilder:
        for stage in STAGES:
            builder.task(f"{line}_{stage}", f"{HERE}.work", args=[stage, line])
        return builder

    return branch


def _investigate(builder: WorkflowBuilder) -> WorkflowBuilder:
    return builder.task("investigate", f"{HERE}.work", args=["investigate"]).task(
        "adjust", f"{HERE}.work", args=["adjust", "{{count_breaks}}"]
    )


def _certify(builder: WorkflowBuilder) -> WorkflowBuilder:
    return builder.task("certify", f"{HERE}.work", args=["certify"])


def _ledger(builder: WorkflowBuilder) -> WorkflowBuilder:
    return (
        builder.task("post_ledger", f"{HERE}.work", args=["ledger"])
        .task("trial_balance", f"{HERE}.work", args=["balance"])
        .switch("day_kind", switch_on="{{inputs.day_kind}}", cases={"month_end": "close_month"}, default="roll_day")
        .task("close_month", f"{HERE}.work", args=["month"], dependencies=["day_kind"])
        .task("roll_day", f"{HERE}.work", args=["day"], dependencies=["day_kind"])
    )


def _close(builder: WorkflowBuilder) -> WorkflowBuilder:
    regions = "{{['emea', 'apac', 'amer']}}"
    return (
        builder.foreach(
            "regions",
            items=regions,
            loop_body=lambda b: b.task("risk_report", f"{HERE}.work", args=["risk", "{{item}}"]),
            parallel=True,
            dependencies=["day_kind"],
        )
        .task("submit", f"{HERE}.work", args=["submit", "{{regions}}"])
        .on_failure("page_operator")
        .task("page_operator", f"{HERE}.work", args=["page", "{{error_message}}"])
        .emit_event(
            "announce", event_name="eod_{{ds_date}}_done", payload={"reports": "{{regions}}"}, dependencies=["submit"]
        )
        .task("thaw_intake", f"{HERE}.work", args=["thaw"], dependencies=["submit"])
    )


async def work(*what: object) -> str:
    return " ".join(str(part) for part in what)


async def count_breaks(breaks: int) -> int:
    return breaks


workflow = build()


async def story(durable: Durable) -> None:
    for breaks, kind in ((0, "weekday"), (2, "month_end")):
        run = await durable.start("bank_batch", breaks=breaks, day_kind=kind)
        print(await durable.result(run), len(await durable.steps(run)))


if __name__ == "__main__":
    play([workflow], story)
