"""Backfills on the real store: what a dry run lists is made, as slots free, behind fresh ticks, whoever dies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from durable import Durable, DurableContext, Refused, Settings, Worker, workflow
from durable.errors import NoSuchRun, WrongArguments, WrongState
from scheduler.backfills import BackfillInfo, BackfillLooks, Backfills
from scheduler.definition import Schedule
from scheduler.schedules import Schedules
from scheduler.service import Scheduler
from tests.scheduler.looking import look_at_all
from tests.scheduler.stage import Stage, june


class Backfilling(Stage):
    """A stage on which it is June 10, in the afternoon, and `w` runs daily since that day."""

    backfills: Backfills

    async def begin(self, **terms: Any) -> None:
        self.backfills = Backfills(self.dsn)
        self.now_is(june(10, 15, 30))
        self.workflow("w", max_active_runs=1)
        await self.set(**terms)

    async def backfill(self, first: int = 2, last: int = 5, **options: Any) -> UUID:
        """Begin a backfill of some days of June and look at it."""
        backfill = await self.backfills.create("w", june(first), june(last), **options)
        await self.look_on()
        return backfill

    async def look_on(self) -> None:
        """Passes, then looks at all backfills, until nothing is to do."""
        self.settle()
        await look_at_all(BackfillLooks(), self.connection)
        self.settle()

    async def end_next(self, state: str = "succeeded") -> str:
        run = self.end_one(state)
        await self.look_on()
        return run

    def made(self) -> list[tuple[datetime, int]]:
        """Ticks and attempts in the order of their making."""
        return self.store.rows("select tick, attempt from durable.tick order by made_at, tick")

    async def progress(self, backfill: UUID) -> tuple[str, int, int, int, dict[str, int]]:
        found: BackfillInfo = await self.backfills.show(backfill)
        return found.state, found.made, found.skipped, found.left, found.runs


@pytest.fixture
async def stage(durable_dsn: str) -> AsyncIterator[Backfilling]:
    stage = await Backfilling.open(durable_dsn)
    try:
        yield stage
    finally:
        await stage.close()


async def test_a_backfill_makes_a_run_for_each_tick_of_its_range(stage: Backfilling) -> None:
    """Both ends are included; each run has its data interval; it is over when the last run has ended."""
    await stage.begin()
    backfill = await stage.backfill(limit=10)
    assert [tick for tick, _ in stage.made()] == [june(2), june(3), june(4), june(5)]
    inputs = stage.store.column("select input from durable.run order by run_id")
    assert inputs[0] == {
        "data_interval_start": "2026-06-01T00:00:00Z", "data_interval_end": "2026-06-02T00:00:00Z",
        "logical_date": "2026-06-02T00:00:00Z", "ds": "2026-06-01T00:00:00Z",
    }  # fmt: skip
    assert await stage.progress(backfill) == ("running", 4, 0, 0, {"open": 4})
    for _ in range(4):
        await stage.end_next()
    assert await stage.progress(backfill) == ("done", 4, 0, 0, {"succeeded": 4})


async def test_runs_are_made_as_slots_free(stage: Backfilling) -> None:
    """Never more unfinished runs than the limit, oldest first, and the end of one makes the next."""
    await stage.begin()
    backfill = await stage.backfill(limit=2)
    seen = []
    for _ in range(4):
        seen.append((stage.unfinished(), len(stage.made())))
        await stage.end_next()
    assert seen == [(2, 2), (2, 3), (2, 4), (1, 4)]
    assert (await stage.progress(backfill))[0] == "done"


@pytest.mark.parametrize("reprocess", ["none", "failed", "completed"])
async def test_a_dry_run_lists_exactly_what_will_be_made(stage: Backfilling, reprocess: Any) -> None:
    """Case 50: the range holds ticks that succeeded, failed, still run, and never ran. The plan changes nothing, and
    what the backfill makes is what it listed, in its order, though more of them end meanwhile."""
    await stage.begin(max_active_runs=5)
    for day, state in ((2, "succeeded"), (3, "failed"), (4, None)):
        await stage.schedules.trigger("w", at=june(day))
        if state:
            stage.end_one(state)
    before = stage.made()
    planned = await stage.backfills.plan("w", june(1), june(6), reprocess=reprocess, newest_first=True)
    assert stage.made() == before
    listed = [(one.tick, one.attempt) for one in planned.made]
    expected = {"none": [6, 5, 1], "failed": [6, 5, 3, 1], "completed": [6, 5, 3, 2, 1]}
    assert [tick for tick, _ in listed] == [june(day) for day in expected[reprocess]]
    backfill = await stage.backfill(1, 6, reprocess=reprocess, newest_first=True)
    while (await stage.backfills.show(backfill)).left:
        stage.store.skip("1 second")
        await stage.end_next()
    assert stage.made()[len(before) :] == listed
    assert {one.left_out for one in planned.ticks if one.tick == june(4)} == {"its run has not ended"}


async def test_newest_first_is_refused_where_ticks_depend_on_the_past(stage: Backfilling) -> None:
    """Case 50: by the client, and by the store for whoever comes around it."""
    await stage.begin(depends_on_past=True)
    with pytest.raises(WrongArguments, match="newest_first"):
        await stage.backfills.create("w", june(2), june(5), newest_first=True)
    with pytest.raises(psycopg.Error, match="newest_first"):
        stage.store.run("""select durable.create_backfill('{"workflow": "w", "newest_first": true}')""")
    assert await stage.backfills.list() == []


async def test_a_tick_that_depends_on_the_past_waits_for_it(stage: Backfilling) -> None:
    """One at a time whatever the limit; behind one that failed it says so and waits until that has succeeded."""
    await stage.begin(depends_on_past=True)
    backfill = await stage.backfill(limit=5)
    assert len(stage.made()) == 1
    await stage.end_next()
    failed = await stage.end_next("failed")
    assert len(stage.made()) == 2
    assert (await stage.backfills.show(backfill)).waiting == "the run of the tick before did not succeed"
    stage.store.run("select durable.retry(%s)", failed)
    assert await stage.end_next() == failed
    assert len(stage.made()) == 3


async def test_a_fresh_tick_goes_first(stage: Backfilling) -> None:
    """Case 51: a backfill has its own slots, so a tick is made while it runs, and is claimed before its older runs."""
    await stage.begin()
    backfill = await stage.backfill(limit=3)
    await stage.look_at(june(11))
    stage.settle()
    assert str(stage.worker.claim_one().run_id) == stage.run_at(june(11))
    assert str(stage.worker.claim_one().run_id) == stage.run_at(june(2))
    assert (await stage.backfills.show(backfill)).runs == {"open": 3}


async def test_a_fresh_tick_passes_the_backfill_in_the_line_for_running_slots(stage: Backfilling) -> None:
    """Case 51, under max_running: what waits for the one running slot is served by priority, whichever of the slots
    that an end frees is looked at first."""
    await stage.begin()
    stage.workflow("w", max_active_runs=1, max_running=1)
    backfill = await stage.backfill(limit=3)
    first = stage.worker.claim_one()
    await stage.look_at(june(11))
    stage.settle()
    stage.worker.end(first)
    stage.store.run("select durable.admit(%s, durable.now())", f"b:{backfill}")
    stage.settle()
    assert str(stage.worker.claim_one().run_id) == stage.run_at(june(11))


async def test_a_backfill_takes_no_slot_of_the_schedule(stage: Backfilling) -> None:
    """max_active_runs counts scheduled and manual runs, a backfill only its own."""
    await stage.begin(max_active_runs=1)
    await stage.backfill(limit=4)
    assert (await stage.schedules.show("w")).active == 0
    assert await stage.look_at(june(11)) == [june(11)]


async def test_a_paused_backfill_makes_nothing_and_its_runs_go_on(stage: Backfilling) -> None:
    """Resumed, it goes on behind its cursor."""
    await stage.begin()
    backfill = await stage.backfill()
    await stage.backfills.pause(backfill, by="ann", note="too much load")
    await stage.end_next()
    assert await stage.progress(backfill) == ("paused", 1, 0, 3, {"succeeded": 1})
    await stage.backfills.resume(backfill, by="ann")
    await stage.look_on()
    assert len(stage.made()) == 2
    notes = [note.note for note in await stage.notes("backfill")]
    assert notes == [
        f"backfill {backfill}: begun, 1 at a time, reprocess none",
        f"backfill {backfill}: paused: too much load",
        f"backfill {backfill}: running",
    ]


async def test_a_cancelled_backfill_takes_its_runs_along(stage: Backfilling) -> None:
    """What has ended stays; what runs is cancelled; nothing more is made, and it cannot be resumed."""
    await stage.begin()
    backfill = await stage.backfill(limit=2)
    await stage.end_next()
    await stage.backfills.cancel(backfill, by="ann")
    await stage.look_on()
    state, made, _, left, runs = await stage.progress(backfill)
    assert (state, made, left, runs) == ("cancelled", 3, 1, {"succeeded": 1, "cancelled": 2})
    with pytest.raises(WrongState, match="is over"):
        await stage.backfills.resume(backfill)


async def test_ticks_that_the_schedule_owes_are_left_to_it(stage: Backfilling) -> None:
    """With catchup the schedule makes them itself; the plan counts them, and one that is all theirs is refused."""
    await stage.begin(start_date=june(5), catchup="true", max_active_runs=1)
    await stage.look()
    assert stage.made() == [(june(6), 0)]
    planned = await stage.backfills.plan("w", june(1), june(10))
    assert ([one.tick for one in planned.ticks], planned.owed) == ([june(6)], 4)
    assert planned.made == []
    with pytest.raises(WrongArguments, match="besides 4 that"):
        await stage.backfills.create("w", june(7), june(10))


async def test_no_tick_lies_before_the_start_date_or_after_now_or_the_end(stage: Backfilling) -> None:
    """The timetable says which ticks there are, for a backfill too."""
    await stage.begin(start_date=june(3), end_date=june(8))
    planned = await stage.backfills.plan("w", june(1), june(30))
    assert [one.tick for one in planned.ticks] == [june(day) for day in range(4, 9)]


async def test_a_time_without_a_zone_is_the_schedules_own(stage: Backfilling) -> None:
    """A person who says June 2 means the day where the schedule is."""
    await stage.begin(timezone="America/New_York")
    planned = await stage.backfills.plan("w", datetime(2026, 6, 2), datetime(2026, 6, 2))
    assert [one.tick for one in planned.ticks] == [june(2, 4)]


async def test_a_backfill_keeps_the_timetable_of_its_beginning(stage: Backfilling) -> None:
    """Ticks that were listed are made, though the cron was changed meanwhile."""
    await stage.begin()
    backfill = await stage.backfill()
    await stage.set("30 6 * * *")
    for _ in range(4):
        await stage.end_next()
    assert [tick for tick, _ in stage.made()] == [june(day) for day in (2, 3, 4, 5)]
    assert (await stage.progress(backfill))[0] == "done"


async def test_overlapping_backfills_make_each_tick_once(stage: Backfilling) -> None:
    """Whichever comes second leaves out what the first has made."""
    await stage.begin()
    first = await stage.backfill(2, 5, limit=10)
    second = await stage.backfill(4, 7, limit=10)
    assert sorted(stage.ticks()) == [june(day) for day in range(2, 8)]
    assert [(await stage.progress(one))[1:3] for one in (first, second)] == [(4, 0), (2, 2)]


async def test_ten_thousand_ticks_that_have_a_run_are_passed_over(stage: Backfilling) -> None:
    """What is left out costs no run and no row; one look after the other moves the cursor over it."""
    await stage.begin()
    await stage.set("*/5 * * * *")
    stage.store.run(
        "insert into durable.tick (workflow, tick, run_id, made_at, kind, outcome)"
        " select 'w', t, gen_random_uuid(), durable.now(), 'schedule', 'succeeded'"
        " from generate_series(%s::timestamptz, %s::timestamptz, '5 minutes') t",
        june(-30), june(4, 20),
    )  # fmt: skip
    backfill = await stage.backfill(-30, 5)
    info = await stage.backfills.show(backfill)
    assert (info.made, info.skipped > 9000, info.left) == (1, True, info.total - info.skipped - 1)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"limit": 0}, "limit"),
        ({"first": june(6)}, "after its end"),
        ({"first": june(2, 1), "last": june(2, 2)}, "no tick of 'w'"),
        ({"workflow": "nobody"}, "no schedule"),
    ],
)
async def test_a_wrong_backfill_is_refused(stage: Backfilling, options: dict[str, Any], says: str) -> None:
    """The message says what is wrong, and nothing is stored."""
    await stage.begin()
    given = {"workflow": "w", "first": june(2), "last": june(5), **options}
    with pytest.raises(Refused, match=says):
        await stage.backfills.create(**given)
    assert await stage.backfills.list() == []


@pytest.mark.parametrize("cron", ["@once", "@continuous"])
async def test_a_schedule_without_ticks_of_the_past_has_no_backfill(stage: Backfilling, cron: str) -> None:
    """Nothing could be listed."""
    await stage.begin(cron=cron, max_active_runs=1)
    with pytest.raises(WrongArguments, match="no ticks of the past"):
        await stage.backfills.plan("w", june(1), june(5))


async def test_an_unknown_backfill_is_refused(stage: Backfilling) -> None:
    """By whoever asks for it."""
    await stage.begin()
    unknown = "00000000-0000-7000-8000-000000000009"
    with pytest.raises(NoSuchRun):
        await stage.backfills.show(unknown)
    with pytest.raises(Refused, match="no backfill"):
        await stage.backfills.pause(unknown)


async def test_a_backfill_that_cannot_be_read_waits_and_stops_no_other(stage: Backfilling) -> None:
    """A zone that this machine does not have: it says so, and goes on when it can."""
    await stage.begin()
    broken = await stage.backfills.create("w", june(2), june(3))
    stage.store.run("update durable.backfill set timezone = 'Mars/Olympus'")
    works = await stage.backfill(4, 5)
    assert "Mars/Olympus" in str((await stage.backfills.show(broken)).waiting)
    assert (await stage.progress(works))[1] == 1
    stage.store.run("update durable.backfill set timezone = 'UTC'")
    await stage.look_on()
    assert (await stage.backfills.show(broken)).waiting is None
    assert (await stage.progress(broken))[1] == 1


async def test_schedulers_beside_each_other_never_exceed_the_limit(stage: Backfilling) -> None:
    """Three of them look while runs end; each tick is made once, and never more than the limit are unfinished."""
    await stage.begin()
    await stage.set("*/5 * * * *")
    backfill = await stage.backfills.create("w", june(2), june(2, 8), limit=4)
    most = 0

    async def schedule() -> None:
        async with await psycopg.AsyncConnection.connect(stage.dsn, autocommit=True) as connection:
            while (await stage.backfills.show(backfill)).state == "running":
                await BackfillLooks().run_once(connection)

    async def work() -> None:
        nonlocal most
        while (await stage.backfills.show(backfill)).state == "running":
            stage.settle()
            most = max(most, stage.unfinished())
            for task in stage.worker.claim(2):
                stage.worker.end(task)

    async with asyncio.timeout(120):
        await asyncio.gather(work(), schedule(), schedule(), schedule())
    assert stage.ticks() == [june(2) + timedelta(minutes=5 * n) for n in range(97)]
    assert most <= 4


async def test_the_end_of_a_run_makes_the_next_at_once(durable_dsn: str) -> None:
    """A real scheduler whose clock rings once an hour, and a real worker: only the end of each run brings the next."""

    @workflow(name="w")
    async def w(ctx: DurableContext, ds: str) -> str:
        return ds

    async with Durable(durable_dsn, workflows=[w]) as client:
        await Schedules(durable_dsn).set("w", Schedule.of("w", schedule="@daily"))
        worker, scheduler = Worker(durable_dsn, [w], settings=Settings()), Scheduler(durable_dsn, fallback=3600)
        serving = [asyncio.create_task(worker.run()), asyncio.create_task(scheduler.run())]
        await worker.ready()
        await scheduler.ready()
        backfills = Backfills(durable_dsn)
        backfill = await backfills.create("w", june(1) - timedelta(days=100), june(1), limit=1)
        async with asyncio.timeout(60):
            # What is waited for happens in the database.
            while (await backfills.show(backfill)).state != "done":  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert (await backfills.show(backfill)).runs == {"succeeded": 101}
        assert len(await client.runs(workflow="w", state="succeeded", limit=200)) == 101
        worker.stop()
        scheduler.stop()
        await asyncio.gather(*serving)
