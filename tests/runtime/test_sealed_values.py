"""A codec between values and the database: everything a user's value goes through is sealed, and comes back."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest

from durable import Durable, DurableContext, Settings, Worker, workflow

SECRET = "the secret of the house"


class Sealing:
    """Not a cipher, but nothing of the text is left to read."""

    def seal(self, data: bytes) -> bytes:
        return base64.b85encode(data)

    def unseal(self, data: bytes) -> bytes:
        return base64.b85decode(data)


async def echo(value: Any) -> Any:
    return value


async def in_database(_: Any, value: Any) -> Any:
    return value


@workflow
async def child(ctx: DurableContext, value: Any) -> Any:
    return {"child": value}


@workflow
async def everything(ctx: DurableContext, value: Any) -> list[Any]:
    await ctx.emit_event("own", {"emitted": value})
    found = [
        await ctx.step(echo, {"step": value}),
        await ctx.transaction(in_database, {"transaction": value}),
        await ctx.at_most_once(echo, {"once": value}),
        await ctx.wait_for_event("own"),
        await ctx.wait_for_event("from outside"),
        *await ctx.map(child, [{"value": value}]),
        await ctx.wait_for(await ctx.start(child, value)),
    ]
    await ctx.sleep(0.01)
    return found


@pytest.fixture
async def sealed(durable_dsn: str) -> AsyncIterator[Durable]:
    # Every wait is followed by a replay.
    worker = Worker(durable_dsn, [everything, child], codec=Sealing(), settings=Settings(kept_continuations=0))
    running = asyncio.create_task(worker.run())
    await worker.ready()
    async with Durable(durable_dsn, codec=Sealing(), workflows=[everything, child]) as client:
        yield client
    worker.stop()
    await running


@pytest.mark.parametrize("times", [1, 5000], ids=["in the journal", "out of it"])
async def test_values_are_sealed_on_every_way_and_come_back(sealed: Durable, durable_dsn: str, times: int) -> None:
    """Inputs, results, records, events and what children came to, small and large; no table holds a word of them."""
    value = {"text": SECRET * times}
    run_id = await sealed.start(everything, value)
    await sealed.emit("from outside", value)
    assert await sealed.result(run_id, timeout=30) == [
        {"step": value}, {"transaction": value}, {"once": value}, {"emitted": value}, value, {"child": value},
        {"child": value},
    ]  # fmt: skip
    async with await psycopg.AsyncConnection.connect(durable_dsn) as connection:
        tables = await (
            await connection.execute(
                "select format('durable.%I', tablename) from pg_tables where schemaname = 'durable'"
            )
        ).fetchall()
        for (table,) in tables:
            rows = await (await connection.execute(f"select t::text from {table} t")).fetchall()  # type: ignore[arg-type]
            assert [row for (row,) in rows if "secret" in row] == [], table
