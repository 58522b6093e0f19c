"""A report that runs by itself, and calls somebody when it is late.

Try: durable dev examples.nightly
and in another terminal: durable schedules next nightly_report
                         durable schedules trigger nightly_report
                         durable schedules backfill create nightly_report --from 2026-01-01 --to 2026-01-31 --dry-run
"""

from durable import DurableContext, workflow


async def count_orders(first: str, last: str) -> int:
    return len(f"{first}{last}")


async def send(text: str) -> str:
    return text


@workflow(
    schedule="0 2 * * 1-5",
    timezone="Europe/Berlin",
    catchup="latest",
    max_active_runs=1,
    schedule_deadline="1h",
    on_deadline="call_somebody",
    tags=["reports"],
)
async def nightly_report(ctx: DurableContext, data_interval_start: str, data_interval_end: str) -> str:
    orders = await ctx.step(count_orders, data_interval_start, data_interval_end)
    return str(await ctx.step(send, f"{orders} orders from {data_interval_start} to {data_interval_end}"))


@workflow
async def call_somebody(ctx: DurableContext, workflow: str, tick: str, kind: str) -> str:
    return str(await ctx.step(send, f"{workflow} of {tick} is {kind}"))
