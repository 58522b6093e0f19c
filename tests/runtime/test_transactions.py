"""Transaction steps and at-most-once steps: what exactly-once means for each."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from durable import DurableContext, NotRun, Ran, RetryPolicy, RunFailed, StepFailed, current_step, workflow

from .conftest import Runtime


async def add(connection: psycopg.AsyncConnection[Any], amount: int) -> int:
    await connection.execute(
        "insert into ledger (amount, key) values (%s, %s)", (amount, current_step().idempotency_key)
    )
    row = await (await connection.execute("select sum(amount) from ledger")).fetchone()
    return int(row[0]) if row else 0


def add_plainly(connection: psycopg.Connection[Any], amount: int) -> int:
    connection.execute("insert into ledger (amount, key) values (%s, %s)", (amount, current_step().idempotency_key))
    return amount


@pytest.fixture
async def ledger(runtime: Runtime) -> Runtime:
    await runtime.sql("create table ledger (amount int check (amount > 0), key text)")
    return runtime


async def test_writes_and_record_commit_together(ledger: Runtime) -> None:
    """Async and plain transaction steps take effect once, and a replay returns what they returned."""

    @workflow
    async def books(ctx: DurableContext) -> list[int]:
        made = [await ctx.transaction(add, 5), await ctx.transaction(add_plainly, 7)]
        await ctx.sleep(60)
        return [*made, await ctx.transaction("third", add, 1)]

    await ledger.work(books, kept_continuations=0)
    assert await ledger.run_skipping(books) == [5, 7, 13]
    run_id = (await ledger.client.runs())[0].run_id
    assert await ledger.sql("select amount, key from ledger order by amount") == [
        (1, f"{run_id}:third"),
        (5, f"{run_id}:add"),
        (7, f"{run_id}:add_plainly"),
    ]


@pytest.mark.parametrize("fn", [add, add_plainly])
async def test_a_failed_transaction_leaves_nothing(ledger: Runtime, fn: Any) -> None:
    """A transaction step that raises, or breaks a constraint, is rolled back whole and may be retried."""
    tries: list[int] = []

    @workflow
    async def books(ctx: DurableContext) -> str:
        try:
            await ctx.transaction(fn, -1)
        except StepFailed as failed:
            return failed.type
        return "went through"

    await ledger.work(books)
    assert await ledger.run(books) == "CheckViolation"
    assert await ledger.sql("select count(*) from ledger") == [(0,)]
    assert tries == []


async def test_a_transaction_is_retried_by_its_policy(ledger: Runtime) -> None:
    """Each attempt is a transaction of its own; only the one that commits counts."""
    tries: list[int] = []

    async def flaky(connection: psycopg.AsyncConnection[Any]) -> str:
        tries.append(1)
        await connection.execute("insert into ledger values (%s, 'x')", (len(tries),))
        if len(tries) < 3:
            raise psycopg.errors.SerializationFailure("again")
        return "ok"

    @workflow
    async def books(ctx: DurableContext) -> Any:
        return await ctx.transaction(flaky, retry=RetryPolicy(max_attempts=3, delay=0))

    await ledger.work(books)
    assert await ledger.run(books) == "ok"
    assert await ledger.sql("select amount from ledger") == [(3,)]


async def test_transactions_side_by_side_keep_one_order(ledger: Runtime) -> None:
    """Steps and transaction steps of concurrent branches share one recorded order."""

    async def echo(value: int) -> int:
        return value

    @workflow
    async def books(ctx: DurableContext) -> list[Any]:
        made = await ctx.gather(*(ctx.transaction(f"t{n}", add_plainly, n) for n in range(1, 5)), ctx.step(echo, 9))
        await ctx.sleep(60)
        return made

    await ledger.work(books, kept_continuations=0)
    assert await ledger.run_skipping(books) == [1, 2, 3, 4, 9]
    assert await ledger.sql("select count(*) from ledger") == [(4,)]


async def test_a_lost_session_in_a_transaction_is_a_failure_of_the_step(ledger: Runtime) -> None:
    """A session that is ended by the server rolls the step back; its policy tries again."""
    tries: list[int] = []

    async def cut(connection: psycopg.AsyncConnection[Any]) -> str:
        tries.append(1)
        await connection.execute("insert into ledger values (1, 'x')")
        if len(tries) == 1:
            await connection.execute("select pg_terminate_backend(pg_backend_pid())")
        return "ok"

    @workflow
    async def books(ctx: DurableContext) -> Any:
        return await ctx.transaction(cut, retry=RetryPolicy(max_attempts=2, delay=0))

    await ledger.work(books)
    assert await ledger.run(books) == "ok"
    assert await ledger.sql("select count(*) from ledger") == [(1,)]


class Bank:
    """A payment that must not be made twice, on a worker that dies in the middle."""

    def __init__(self) -> None:
        self.paid = 0
        self.begun = asyncio.Event()

    async def pay(self, amount: int) -> str:
        self.paid += amount
        if not self.begun.is_set():
            self.begun.set()
            await asyncio.sleep(3600)
        return "receipt"


async def _crash_in_payment(runtime: Runtime, bank: Bank, workflow: Any) -> str:
    """The worker is declared dead while the payment is under way."""
    run_id = await runtime.client.start(workflow)
    await bank.begun.wait()
    await runtime.sql("select durable.bury(worker_id, beat) from durable.worker")
    await runtime.sql("select pg_notify('durable_work', 'a')")
    return run_id


async def test_at_most_once_runs_once_when_nothing_breaks(runtime: Runtime) -> None:
    """Without a crash it is an ordinary step with its intent in front."""
    bank = Bank()
    bank.begun.set()

    @workflow
    async def pays(ctx: DurableContext) -> Any:
        return await ctx.at_most_once(bank.pay, 10)

    await runtime.work(pays)
    run_id = await runtime.client.start(pays)
    assert await runtime.client.result(run_id, timeout=30) == "receipt"
    assert [record.kind for record in await runtime.client.steps(run_id)] == ["intent", "step"]


@pytest.mark.parametrize(("answer", "paid", "result"), [(Ran("found it"), 10, "found it"), (NotRun(), 20, "receipt")])
async def test_confirm_says_whether_it_took_effect(runtime: Runtime, answer: Any, paid: int, result: str) -> None:
    """After a crash in between, `confirm` is asked; only a certain no runs the step again."""
    bank = Bank()

    async def confirm(amount: int) -> Any:
        return answer

    @workflow
    async def pays(ctx: DurableContext) -> Any:
        return await ctx.at_most_once(bank.pay, 10, confirm=confirm)

    await runtime.work(pays, lease_seconds=60)
    run_id = await _crash_in_payment(runtime, bank, pays)
    assert await runtime.client.result(run_id, timeout=60) == result
    assert bank.paid == paid


@pytest.mark.parametrize(
    ("decision", "paid", "outcome"),
    [({"ran": "by hand"}, 10, "by hand"), ({"again": True}, 20, "receipt"), ({"fail": "gave up"}, 10, "gave up")],
)
async def test_an_uncertain_step_waits_for_a_person(
    runtime: Runtime, decision: dict[str, Any], paid: int, outcome: str
) -> None:
    """Nobody can tell: the run parks, and goes on as a person decides. It never runs twice by itself."""
    bank = Bank()

    @workflow
    async def pays(ctx: DurableContext) -> Any:
        return await ctx.at_most_once(bank.pay, 10)

    await runtime.work(pays, lease_seconds=60)
    run_id = await _crash_in_payment(runtime, bank, pays)
    await runtime.state_is(run_id, "parked")
    assert bank.paid == 10
    await runtime.client.decide(run_id, "pay", **decision)
    if "fail" in decision:
        with pytest.raises(RunFailed, match=outcome):
            await runtime.client.result(run_id, timeout=60)
    else:
        assert await runtime.client.result(run_id, timeout=60) == outcome
    assert bank.paid == paid
