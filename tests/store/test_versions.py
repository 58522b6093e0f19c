"""The store on every major version of PostgreSQL that is installed here: those in the package, and the system's.

PostgreSQL 14 and 17 are supported too, but in no package that the tests can count on; point
DURABLE_TEST_DATABASE_URL at such a server to run everything there.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from durable import ChildFailed, Durable, DurableContext, Settings, Worker, workflow
from durable.embedded import EmbeddedPostgres, binaries
from durable.maintenance import Pruner
from durable.testing.databases import FAST, Databases
from durable.testing.protocol import Store

MAJORS = sorted({installation.major for installation in binaries.installations()})


@pytest.fixture(params=MAJORS, ids=lambda major: f"postgresql-{major}")
def versioned(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A migrated database on a server of one major version."""
    only = binaries.choose(request.param)
    monkeypatch.setattr(binaries, "installations", lambda: iter([only]))
    home = Path(tempfile.mkdtemp(prefix="durable-test-"))
    home.chmod(0o755)
    embedded = EmbeddedPostgres(home / "pg", settings=FAST)
    try:
        databases = Databases(embedded.start())
        databases.prepare()
        yield databases.create()
    finally:
        embedded.destroy()
        shutil.rmtree(home, ignore_errors=True)


@workflow
async def half(ctx: DurableContext, number: int) -> float:
    if number < 0:
        raise ValueError("negative")
    return number / 2


@workflow(max_running=1)
async def everything(ctx: DurableContext) -> dict[str, object]:
    """One of each kind of record: step, transaction, sleep, event, children."""
    charged = await ctx.step("charge", charge)
    await ctx.transaction("sell", sell)
    await ctx.sleep(3600)
    approved = await ctx.wait_for_event("approved")
    halves = await ctx.map(half, [{"number": number} for number in range(3)])
    with pytest.raises(ChildFailed):
        await ctx.map(half, [{"number": -1}])
    return {"charged": charged, "approved": approved, "halves": halves}


async def charge() -> int:
    return 42


async def sell(connection: object) -> None:
    await connection.execute("insert into sold values (1)")  # type: ignore[attr-defined]


async def test_one_workflow_end_to_end_on_each_version(versioned: str) -> None:
    """Install, start, run, park, wake, wait, spawn, join, end, look and prune."""
    with Store(versioned) as store:
        store.run("create table sold (item int)")
        async with Durable(versioned) as client:
            worker = Worker(versioned, [everything, half], settings=Settings(poll_seconds=0.2))
            working = asyncio.create_task(worker.run())
            await worker.ready()
            run = await client.start(everything)
            async with asyncio.timeout(30):
                while store.state(run) != "parked":  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            store.skip("1 hour")
            await client.emit("approved", "yes")
            expected = {"charged": 42, "approved": "yes", "halves": [0, 0.5, 1]}
            assert await client.result(run, timeout=30) == expected
            assert [step.name for step in await client.steps(run)][:2] == ["charge", "sell"]
            worker.stop()
            await working
        assert store.value("select count(*) from sold") == 1
        store.skip("31 days")
        assert (await Pruner(versioned, Settings()).run_once()).runs == 1
