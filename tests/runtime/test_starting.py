"""Starting runs: idempotent, later, in order, within caps, and inside the caller's transaction."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from durable import DurableContext, RunFailed, Start, SyncDurable, workflow
from durable.errors import NoSuchRun, StoreNotReady, StoreUnavailable, UnknownWorkflow, ValueRefused, WrongArguments
from durable.testing.databases import Databases

from .conftest import Runtime


async def echo(value: Any) -> Any:
    return value


@workflow
async def greet(ctx: DurableContext, who: str, greeting: str = "hello") -> str:
    return str(await ctx.step(echo, f"{greeting} {who}"))


async def test_the_same_key_is_the_same_run(runtime: Runtime) -> None:
    """A second start with a key returns the first run and makes none."""
    await runtime.work(greet)
    first = await runtime.client.start(greet, "you", options=Start(key="order-42"))
    assert await runtime.client.start(greet, "you", options=Start(key="order-42")) == first
    assert await runtime.client.start(greet, "you", options=Start(key="order-43")) != first
    assert await runtime.sql("select count(*) from durable.task") == [(2,)]


async def test_racing_starts_with_one_key_give_one_run(runtime: Runtime) -> None:
    """Ten starts at the same moment with the same key are one run."""
    await runtime.client.register(greet)
    starts = [runtime.client.start(greet, "you", options=Start(key="k")) for _ in range(10)]
    assert len(set(await asyncio.gather(*starts))) == 1
    assert await runtime.sql("select count(*) from durable.task") == [(1,)]


async def test_start_later_waits_for_its_time(runtime: Runtime) -> None:
    """A delayed run is in nobody's way and begins when its time has come."""
    await runtime.work(greet)
    at = datetime.now(UTC) + timedelta(days=1)
    run_id = await runtime.client.start(greet, "you", options=Start(start_at=at))
    assert await runtime.client.state(run_id) == "delayed"
    await runtime.skip(86401)
    assert await runtime.client.result(run_id, timeout=30) == "hello you"


async def test_better_priorities_go_first(runtime: Runtime) -> None:
    """Waiting runs are taken by priority, then by age."""
    order: list[str] = []

    async def note(who: str) -> None:
        order.append(who)

    @workflow
    async def noted(ctx: DurableContext, who: str) -> None:
        await ctx.step(note, who)

    for who, priority in [("late", 9), ("normal", 5), ("first", 0), ("normal too", 5)]:
        last = await runtime.client.start(noted, who, options=Start(priority=priority))
    await runtime.work(noted, slots=1)
    await runtime.client.result(last, timeout=30)
    await runtime.until(lambda: _all_done(runtime))
    assert order == ["first", "normal", "normal too", "late"]


async def test_a_worker_never_claims_what_it_cannot_run(runtime: Runtime) -> None:
    """Runs of other workflows and queues stay where they are."""

    @workflow
    async def other(ctx: DurableContext) -> str:
        return "other"

    await runtime.client.register(other)
    foreign = await runtime.client.start(other)
    elsewhere = await runtime.client.start(greet, "you", options=Start(queue="elsewhere"))
    await runtime.work(greet)
    assert await runtime.run(greet, "me") == "hello me"
    assert await runtime.client.state(foreign) == "ready"
    assert await runtime.client.state(elsewhere) == "ready"
    await runtime.work(other, greet, queues=("default", "elsewhere"))
    assert await runtime.client.result(foreign, timeout=30) == "other"
    assert await runtime.client.result(elsewhere, timeout=30) == "hello you"


async def test_a_workflow_is_served_on_its_own_queue(runtime: Runtime) -> None:
    """A worker that was given no queues finds each workflow where it is started, and its children beside it."""

    @workflow(queue="heavy")
    async def heavy(ctx: DurableContext) -> Any:
        return await ctx.wait_for(await ctx.spawn(greet, "child"))

    await runtime.work(heavy)
    await runtime.client.register(greet)
    run_id = await runtime.client.start(heavy)
    await runtime.until(lambda: _has_child(runtime))
    assert await runtime.sql("select distinct queue from durable.branch") == [("heavy",)]
    await runtime.work(greet, queues=("heavy",))
    assert await runtime.client.result(run_id, timeout=30) == "hello child"


async def test_a_start_by_name_goes_to_the_workflows_own_queue(runtime: Runtime) -> None:
    """Whoever starts it: a client that has only its name, or a statement. A queue that is named wins."""

    @workflow(queue="gpu")
    async def train(ctx: DurableContext) -> str:
        return "trained"

    await runtime.work(train)
    run_id = await runtime.client.start("train")
    assert (await runtime.client.run(run_id)).queue == "gpu"
    assert await runtime.client.result(run_id, timeout=30) == "trained"
    [[spawned]] = await runtime.sql("select durable.spawn('train')::text")
    assert await runtime.client.result(spawned, timeout=30) == "trained"
    elsewhere = await runtime.client.start("train", options=Start(queue="cpu"))
    assert (await runtime.client.run(elsewhere)).queue == "cpu"


async def test_runs_are_listed_in_the_order_of_their_starts(runtime: Runtime) -> None:
    """Several of them fall into one millisecond."""
    await runtime.client.register(greet)
    started = []
    for number in range(50):
        started.append(await runtime.client.start(greet, str(number)))
        started += await runtime.client.start_many(greet, [{"who": "a"}, {"who": "b"}])
    assert [str(run.run_id) for run in await runtime.client.runs(limit=150)] == started[::-1]


async def test_many_starts_are_one_transaction(runtime: Runtime) -> None:
    """Bulk starts all exist or none does."""
    await runtime.work(greet)
    ids = await runtime.client.start_many(greet, [{"who": str(n)} for n in range(300)])
    assert len(set(ids)) == 300
    with pytest.raises(ValueRefused):
        await runtime.client.start_many(greet, [{"who": "fine"}, {"who": float("nan")}])
    assert await runtime.sql("select count(*) from durable.task") == [(300,)]


async def test_a_start_belongs_to_the_callers_transaction(runtime: Runtime) -> None:
    """Next to a business insert: rolled back together, committed together, with psycopg and SQLAlchemy."""
    await runtime.client.register(greet)
    await runtime.sql("create table orders (id int)")
    async with await psycopg.AsyncConnection.connect(runtime.dsn) as connection:
        await connection.execute("insert into orders values (1)")
        gone = await runtime.client.start(greet, "gone", connection=connection)
        await connection.rollback()
        kept = await runtime.client.start(greet, "psycopg", connection=connection)
        await connection.commit()
    with pytest.raises(NoSuchRun):
        await runtime.client.run(gone)
    assert await runtime.client.state(kept) == "ready"
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(runtime.dsn))
    with engine.begin() as alchemy:
        alchemy.execute(text("insert into orders values (2)"))
        assert await runtime.client.start(greet, "core", connection=alchemy)
    with Session(engine) as session, session.begin():
        assert await runtime.client.start(greet, "orm", connection=session)
    with psycopg.connect(runtime.dsn) as plain:
        assert await runtime.client.start(greet, "sync", connection=plain)
    engine.dispose()
    assert await runtime.sql("select count(*) from durable.task") == [(4,)]


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({}, "missing a required argument: 'who'"),
        ({"who": "x", "whom": "y"}, "unexpected keyword argument 'whom'"),
    ],
)
async def test_wrong_arguments_are_refused_before_anything_is_written(
    runtime: Runtime, inputs: dict[str, Any], said: str
) -> None:
    """A start with missing or unknown arguments says which, and no run exists."""
    with pytest.raises(WrongArguments, match=said):
        await runtime.client.start(greet, **inputs)
    await runtime.client.register(greet)
    async with SyncClient(runtime) as other:
        with pytest.raises(WrongArguments, match="wrong arguments for 'greet'"):
            await other("greet", inputs)
    assert await runtime.sql("select count(*) from durable.task") == [(0,)]


class SyncClient:
    """A client that knows the workflow by name only."""

    def __init__(self, runtime: Runtime):
        self._client = SyncDurable(runtime.dsn)

    async def __aenter__(self) -> Any:
        await asyncio.to_thread(self._client.__enter__)
        return lambda name, inputs: asyncio.to_thread(self._client.start, name, **inputs)

    async def __aexit__(self, *exc: object) -> None:
        await asyncio.to_thread(self._client.__exit__, *exc)


async def test_an_unknown_workflow_is_refused_with_the_known_ones(runtime: Runtime) -> None:
    """The error names what is registered."""
    await runtime.client.register(greet)
    with pytest.raises(UnknownWorkflow, match=r"unknown workflow 'greeet'.*Registered are: greet"):
        await runtime.client.start("greeet", who="x")


async def test_the_sync_client_is_the_same_client(runtime: Runtime) -> None:
    """Scripts start, wait and look without async."""
    await runtime.work(greet)

    def script() -> Any:
        with SyncDurable(runtime.dsn) as durable:
            run_id = durable.start(greet, "script")
            return durable.result(run_id, timeout=30), durable.state(run_id)

    assert await asyncio.to_thread(script) == ("hello script", "succeeded")


async def test_an_unreachable_database_says_where(runtime: Runtime) -> None:
    """No traceback of a driver, but the place and what to check; the password is not in it."""
    from durable import Durable

    with pytest.raises(StoreUnavailable, match=r"nowhere\.invalid:5432/x.*DURABLE_DATABASE_URL") as refused:
        async with Durable("postgresql://me:secret@nowhere.invalid/x"):
            pass
    assert "secret" not in str(refused.value)


async def test_a_database_without_a_store_says_how_to_make_one(runtime: Runtime, durable_databases: Databases) -> None:
    """Neither client nor worker begins on a database that is not migrated."""
    from durable import Durable, Worker

    await runtime.sql("create database bare_one")
    bare = durable_databases.url("bare_one")
    try:
        with pytest.raises(StoreNotReady, match="durable db migrate"):
            async with Durable(bare):
                pass
        with pytest.raises(StoreNotReady, match="durable db migrate"):
            await Worker(bare, [greet]).run()
    finally:
        await runtime.sql("drop database bare_one with (force)")


async def test_a_run_whose_input_does_not_fit_fails_with_its_arguments(runtime: Runtime) -> None:
    """Input that came around every check (from SQL, or from an older program) fails the run, not the worker."""
    await runtime.work(greet)
    line = (await runtime.sql("select line from durable.line"))[0][0]
    rows = f'[{{"id": "01900000-0000-7000-8000-000000000001", "line": {line}, "input": {{"nobody": 1}}}}]'
    await runtime.sql("select durable.start_runs(%s::json)", rows)
    with pytest.raises(RunFailed, match="missing a required argument: 'who'"):
        await runtime.client.result("01900000-0000-7000-8000-000000000001", timeout=30)
    assert await runtime.run(greet, "still here") == "hello still here"


async def test_runs_are_listed_by_what_one_looks_for(runtime: Runtime) -> None:
    """State, workflow, tag and time narrow the list; pages go on where the last ended."""

    @workflow
    async def breaks(ctx: DurableContext) -> None:
        raise ValueError("broken")

    await runtime.work(greet, breaks)
    good = [await runtime.client.start(greet, str(n), options=Start(tags=("blue",))) for n in range(3)]
    bad = await runtime.client.start(breaks)
    for run_id in [*good, bad]:
        await runtime.state_is(run_id, "succeeded", "failed")
    listed = await runtime.client.runs(tag="blue", limit=2)
    assert [str(run.run_id) for run in listed] == [good[2], good[1]]
    rest = await runtime.client.runs(tag="blue", before=good[1])
    assert [str(run.run_id) for run in rest] == [good[0]]
    assert [str(run.run_id) for run in await runtime.client.runs(state="failed")] == [bad]
    assert [str(run.run_id) for run in await runtime.client.runs(workflow="breaks")] == [bad]
    assert await runtime.client.runs(since=datetime.now(UTC) + timedelta(hours=1)) == []
    with pytest.raises(WrongArguments, match="there is no state 'done'"):
        await runtime.client.runs(state="done")


async def _has_child(runtime: Runtime) -> bool:
    return bool(await runtime.sql("select 1 from durable.branch where workflow = 'greet'"))


async def _all_done(runtime: Runtime) -> bool:
    return not await runtime.sql("select 1 from durable.task where finished_at is null")
