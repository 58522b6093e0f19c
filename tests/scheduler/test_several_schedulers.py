"""Many schedules and many schedulers, some of them killed: every tick gives exactly one run."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from scheduler.service import all_parts
from scheduler.store import TickLooks
from tests.faults.fleet import eventually
from tests.scheduler.scheduler_process import Schedulers, locked
from tests.scheduler.stage import Stage, june

MANY = """
    insert into durable.workflow (name, registered_at, max_active_runs)
    select 'w' || n, durable.now(), %s from generate_series(1, %s) n;
"""
SCHEDULES = """
    insert into durable.schedule (workflow, cron, timezone, catchup, overlap, definition, since, next_at, changed_at)
    select w.name, %s, 'UTC', 'true', 'queue', 'd', durable.now(), %s, durable.now()
    from durable.workflow w
"""


def make_many(stage: Stage, count: int, cron: str, first: object, slots: int | None = None) -> None:
    """Schedules in bulk, due at the same instant."""
    stage.store.run(MANY, slots, count)
    stage.store.run(SCHEDULES, cron, first)


@pytest.fixture
def schedulers(stage: Stage, tmp_path: Path) -> Iterator[Schedulers]:
    started = Schedulers(stage.dsn, tmp_path)
    try:
        yield started
    finally:
        started.close()


@pytest.mark.parametrize(
    ("point", "made"), [("look.before", 0), ("look.decided", 0), ("look.applied", 0), ("look.after", 3)]
)
async def test_a_scheduler_killed_at_any_point_leaves_all_or_nothing(
    stage: Stage, schedulers: Schedulers, point: str, made: int
) -> None:
    """33: ticks, runs and cursors are one transaction; whoever looks next makes what is missing, once."""
    stage.now_is(june(1, 12))
    make_many(stage, 3, "0 0 * * *", june(2))
    stage.now_is(june(2))
    assert schedulers.start(f"{point}:1").await_end(30) == -9
    # The server notices a dead client when it next reads from it, not at once.
    eventually(lambda: locked(stage) == 0, "the dead scheduler's transaction is over")
    counts = "select (select count(*) from durable.tick), (select count(*) from durable.run), count(cursor_at)"
    assert stage.store.rows(f"{counts} from durable.schedule") == [(made, made, made)]
    await stage.look()
    assert stage.store.rows(f"{counts} from durable.schedule") == [(3, 3, 3)]


async def test_four_schedulers_and_random_kills_make_each_tick_once(stage: Stage, schedulers: Schedulers) -> None:
    """32: three hundred schedules, twenty ticks each; amid each minute's work one is killed, others fall into
    traps before and after their commits: no duplicate, none missing."""
    choice = random.Random(4)
    count, ticks = 300, 20
    stage.now_is(june(1))
    make_many(stage, count, "* * * * *", june(1, 0, 1))
    for minute in range(1, ticks + 1):
        stage.now_is(june(1, 0, minute))
        await_ticks(stage, schedulers, choice, count * (minute - 1) + choice.randint(1, count))
        schedulers.kill_one(choice)
    await_ticks(stage, schedulers, choice, count * ticks)
    assert schedulers.fell > ticks
    expected = [june(1, 0, minute) for minute in range(1, ticks + 1)]
    per_workflow = stage.store.rows("select workflow, array_agg(tick order by tick) from durable.tick group by 1")
    assert len(per_workflow) == count
    assert all(found == expected for _, found in per_workflow)
    runs = "select count(*), count(distinct r.run_id) from durable.run r join durable.tick i using (run_id)"
    assert stage.store.rows(runs) == [(count * ticks, count * ticks)]
    assert stage.store.value("select count(*) from durable.task") == count * ticks


def await_ticks(stage: Stage, schedulers: Schedulers, choice: random.Random, count: int) -> None:
    def there() -> bool:
        schedulers.keep(4, choice)
        return total(stage) >= count

    eventually(there, f"{count} ticks have their runs", within=60)


def total(stage: Stage) -> int:
    return int(stage.store.value("select count(*) from durable.tick"))


async def test_two_looks_at_once_share_the_work(stage: Stage) -> None:
    """32: what one has locked the other leaves alone, and nothing is made twice."""
    other = await Stage.open(stage.dsn)
    stage.now_is(june(1, 12))
    make_many(stage, 40, "0 0 * * *", june(2))
    stage.now_is(june(2))
    looks = TickLooks(batch=20)
    try:
        async with stage.connection.transaction():
            first = await looks.run_once(stage.connection)
            second = await looks.run_once(other.connection)
            third = await looks.run_once(other.connection)
    finally:
        await other.close()
    assert (first, second, third) == (20, 20, 0)
    assert stage.store.value("select count(*) from durable.run") == 40


async def test_five_hundred_at_midnight_are_one_transaction(stage: Stage) -> None:
    """59: all of them are made in one look."""
    stage.now_is(june(1, 12))
    make_many(stage, 500, "0 0 * * *", june(2), slots=1)
    stage.now_is(june(2))
    assert await stage.looks.run_once(stage.connection) == 500
    assert stage.store.value("select count(*) from durable.run where state = 'queued'") == 500
    assert stage.store.value("select count(distinct xmin::text) from durable.tick") == 1
    assert stage.store.value("select count(distinct next_at) from durable.schedule where cursor_at = %s", june(2)) == 1


async def test_ten_thousand_idle_schedules_cost_a_look_nothing(stage: Stage) -> None:
    """A look that finds nothing due reads no row of them, and asks as many statements as with none."""
    stage.now_is(june(1, 12))
    make_many(stage, 10_000, "0 0 * * *", june(2))
    stage.store.run("analyze durable.schedule")
    reads = (
        "select seq_tup_read, idx_tup_fetch from pg_stat_xact_user_tables where relid = 'durable.schedule'::regclass"
    )
    async with stage.connection.transaction():
        assert await stage.looks.run_once(stage.connection) == 0
        assert await (await stage.connection.execute(reads)).fetchall() in ([], [(0, 0)])
    assert await statements_of(stage) == {"select * from durable.look_at_schedules(%s)": 1}
    async with stage.connection.transaction():
        for part in all_parts():
            assert await part.run_once(stage.connection) == 0
            await part.next_at(stage.connection)
        [(scanned, fetched)] = await (await stage.connection.execute(reads)).fetchall()
    # All parts together: a row or so each, to know when the next one is due.
    assert scanned + fetched <= len(all_parts())


async def statements_of(stage: Stage) -> dict[str, int]:
    """What one look asks of the server, by its text."""
    seen: dict[str, int] = {}

    class Counting(type(stage.connection.cursor())):  # type: ignore[misc]
        async def execute(self, query: bytes, *args: object, **kwargs: object) -> object:
            text = query.decode() if isinstance(query, bytes) else str(query)
            seen[text] = seen.get(text, 0) + 1
            return await super().execute(query, *args, **kwargs)

    stage.connection.cursor_factory = Counting
    await stage.looks.run_once(stage.connection)
    return seen


async def test_one_schedule_that_cannot_be_read_stops_no_other(stage: Stage) -> None:
    """A zone that this machine does not have: it waits and says why, the others go on."""
    stage.now_is(june(1, 12))
    make_many(stage, 3, "0 0 * * *", june(2))
    stage.store.run("update durable.schedule set timezone = 'Mars/Olympus' where workflow = 'w2'")
    stage.now_is(june(2))
    await stage.looks.run_once(stage.connection)
    assert stage.store.column("select workflow from durable.tick order by 1") == ["w1", "w3"]
    [(waiting, later)] = stage.store.rows(
        "select waiting, next_at - durable.now() from durable.schedule where workflow = 'w2'"
    )
    assert "Mars/Olympus" in waiting
    assert timedelta(0) < later <= timedelta(minutes=1)
