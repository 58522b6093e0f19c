"""An order, from the shelf to the door: every kind of step there is.

durable dev examples.orders
durable start order --input order_id=42 --input 'items=["tea", "milk"]'
durable emit payment/42 --payload '{"paid": true}'
"""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg

from durable import DurableContext, EventTimeout, RetryPolicy, Start, current_step, step, workflow
from examples import ledger

HOUR = 3600.0


@workflow
async def order(ctx: DurableContext, order_id: str | int, items: list[str]) -> dict[str, Any]:
    """Reserve, quote, wait for the payment, charge, pack every item side by side, and ship."""
    number = str(order_id)
    await ctx.step(ledger.open_shop, items)
    await ctx.transaction(reserve, number, items)
    price = await ctx.step(quote, number, items)
    ctx.log.info("waiting for the payment", price=price)
    try:
        await ctx.wait_for_event(f"payment/{number}", timeout=HOUR, name="payment")
    except EventTimeout:
        await ctx.transaction(release, number)
        return {"order": number, "shipped": False}
    receipt = await ctx.at_most_once(charge, number, price)
    await ctx.sleep(1.0, name="cooling-off")
    parcels = await ctx.map(
        parcel, [{"order_id": number, "item": item} for item in items], options=Start(name="parcels")
    )
    ctx.progress(len(parcels), len(items), "packed")
    await ctx.step(ship, number, parcels)
    return {"order": number, "shipped": True, "receipt": receipt, "parcels": parcels}


@workflow
async def parcel(ctx: DurableContext, order_id: str, item: str) -> str:
    """One item of an order: a task of its own, on any worker."""
    await ctx.step(f"pack {item}", pack, order_id, item)
    return str(await ctx.step(f"label {item}", label, order_id, item))


async def reserve(connection: psycopg.AsyncConnection, order_id: str, items: list[str]) -> None:
    """A transaction step: these writes and the record that they were made are one commit."""
    for item in sorted(items):
        await connection.execute("update shop.stock set left_over = left_over - 1 where item = %s", (item,))
        await connection.execute("insert into shop.reservation values (%s, %s)", (order_id, item))


async def release(connection: psycopg.AsyncConnection, order_id: str) -> None:
    await connection.execute(
        "with gone as (delete from shop.reservation where order_id = %s returning item)"
        " update shop.stock s set left_over = left_over + 1 from gone where s.item = gone.item",
        (order_id,),
    )


@step(retry=RetryPolicy(max_attempts=5, delay=0.3, on=ConnectionError))
async def quote(order_id: str, items: list[str]) -> int:
    """A service that is down when it is first asked: the retry policy asks again."""
    await ledger.note(order_id, "quote")
    if current_step().attempt < 3:
        raise ConnectionError("the price service does not answer")
    return 5 * len(items)


async def charge(order_id: str, price: int) -> str:
    """Money moves: at most once. After a crash right here a person decides (`durable runs decide`)."""
    await ledger.note(order_id, "charge")
    return f"receipt-{order_id}-{price}"


async def pack(order_id: str, item: str) -> None:
    """Some things take longer to wrap than others."""
    await ledger.note(order_id, f"pack {item}")
    await asyncio.sleep(0.3 * len(item))


async def label(order_id: str, item: str) -> str:
    await ledger.note(order_id, f"label {item}")
    return f"{order_id}/{item}"


async def ship(order_id: str, parcels: list[str]) -> None:
    """Called at least once; the carrier tells repeated calls apart by the step's idempotency key."""
    assert current_step().idempotency_key
    await ledger.note(order_id, "ship")
