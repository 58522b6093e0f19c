"""Records that nobody waits for: how a wait came out, that a time is over. They cost no commit of their own, and are
committed before or with whatever follows them."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg

from durable import DurableContext, workflow

from .conftest import Runtime


async def echo(value: Any) -> Any:
    return value


@workflow
async def listens(ctx: DurableContext) -> list[Any]:
    heard = await ctx.wait_for_event("go")
    return [heard, await ctx.step(echo, "after")]


async def test_an_outcome_is_committed_with_the_step_that_follows_it(runtime: Runtime) -> None:
    """An event received and the step after it are one commit."""
    await runtime.work(listens)
    run_id = await runtime.client.start(listens)
    await runtime.state_is(run_id, "parked")
    await runtime.client.emit("go", 7)
    assert await runtime.client.result(run_id, timeout=30) == [7, "after"]
    assert await runtime.sql("select pos, kind from durable.journal order by pos") == [(0, "event"), (1, "step")]
    assert await runtime.sql("select count(distinct xmin::text) from durable.journal") == [(1,)]


async def test_a_sleep_is_committed_with_its_park(runtime: Runtime) -> None:
    """Where a sleep ends, and that the task is parked for it, are one commit, unless a claim went out in between."""

    @workflow
    async def sleeps(ctx: DurableContext) -> None:
        await ctx.sleep(3600)

    await runtime.work(sleeps)
    for _ in range(5):
        await runtime.state_is(await runtime.client.start(sleeps), "parked")
    found = "select bool_or(j.xmin = m.xmin) from durable.journal j join durable.timer m using (task_id)"
    assert await runtime.sql(found) == [(True,)]


async def test_a_refused_outcome_makes_the_task_begin_again(runtime: Runtime) -> None:
    """The store refuses the record of an outcome, in its batch and alone, after the task went on: what the task said
    since is not recorded either. It is given back, and comes to the same by a replay."""
    await runtime.sql("create sequence tried")
    await runtime.sql(
        "create function refuse() returns trigger language plpgsql as $$ begin"
        " if new.kind = 'event' and nextval('tried') <= 2 then raise 'not now'; end if; return new; end $$"
    )
    await runtime.sql("create trigger refuse before insert on durable.journal for each row execute function refuse()")
    await runtime.work(listens)
    run_id = await runtime.client.start(listens)
    await runtime.state_is(run_id, "parked")
    await runtime.client.emit("go", 7)
    assert await runtime.client.result(run_id, timeout=30) == [7, "after"]
    assert await runtime.sql("select last_value from tried") == [(3,)]
    rows = await runtime.sql("select pos, epoch, kind from durable.journal order by pos")
    assert rows == [(0, 3, "event"), (1, 3, "step")]


async def test_a_transaction_step_does_not_overtake_what_came_before_it(runtime: Runtime) -> None:
    """A record that is on its way is committed, and its branch goes on, before a transaction step that ended after it:
    a replay would see them in that order."""
    blocker = await psycopg.AsyncConnection.connect(runtime.dsn)
    on_its_way = asyncio.Event()
    order: list[str] = []

    async def hold_up_the_writer() -> None:
        await blocker.execute("select from durable.held for update")
        on_its_way.set()

    async def when_it_is(_: Any) -> None:
        await on_its_way.wait()

    @workflow
    async def both(ctx: DurableContext) -> None:
        async def first() -> None:
            await ctx.step(hold_up_the_writer)
            order.append("step")

        async def second() -> None:
            await ctx.transaction(when_it_is)
            order.append("transaction")

        await ctx.gather(first(), second())

    async with blocker:
        await runtime.work(both)
        run_id = await runtime.client.start(both)
        await asyncio.wait_for(on_its_way.wait(), 30)
        for _ in range(20):
            assert await runtime.sql("select name from durable.journal") == []
            await asyncio.sleep(0.01)
        await blocker.commit()
    await runtime.client.result(run_id, timeout=30)
    assert order == ["step", "transaction"]
    names = await runtime.sql("select name from durable.journal order by pos")
    assert names == [("hold_up_the_writer",), ("when_it_is",)]
