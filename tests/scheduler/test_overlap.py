"""Slots: what happens to a tick when all are taken, and who is told when one frees. Case numbers of scheduling."""

from __future__ import annotations

import json
from datetime import timedelta

from durable import DurableContext, workflow
from durable.testing.protocol import wait_row
from scheduler.deciding import NEWER, NO_SLOT, PAST_FAILED, PAST_OPEN
from scheduler.ticks import run_of
from tests.scheduler.stage import Stage, june

DAILY = "0 0 * * *"


async def test_without_catchup_the_newest_tick_follows(stage: Stage) -> None:
    """44: six ticks pass while the slot is taken; when it frees the newest runs and five are noted as skipped."""
    stage.workflow(max_active_runs=1)
    stage.now_is(june(1, 12))
    await stage.set(DAILY)
    await stage.look_at(june(2))
    for day in range(3, 9):
        assert await stage.look_at(june(day)) == []
    assert await stage.skips() == [(NEWER, 5)]
    stage.now_is(june(8, 12))
    stage.end_one()
    await stage.look()
    assert stage.ticks() == [june(2), june(8)]
    [late] = await stage.notes("late")
    assert (late.first_tick, late.ticks) == (june(8), 1)


async def test_with_catchup_all_follow_in_order(stage: Stage) -> None:
    """45: all six."""
    stage.workflow(max_active_runs=1)
    stage.now_is(june(1, 12))
    await stage.set(DAILY, catchup=True)
    for day in range(2, 9):
        await stage.look_at(june(day))
    for _ in range(6):
        stage.end_one()
        await stage.look()
    assert stage.ticks() == [june(day) for day in range(2, 9)]
    assert await stage.skips() == []


async def test_a_lowered_cap_kills_nobody(stage: Stage) -> None:
    """46: five run, the cap becomes one: none is stopped, and none starts until fewer than one run."""
    stage.workflow(max_active_runs=5)
    stage.now_is(june(1, 12))
    await stage.set("* * * * *", catchup=True, start_date=june(1, 11))
    await stage.look()
    assert stage.unfinished() == 5
    stage.workflow(max_active_runs=1)
    for left in (4, 3, 2, 1):
        stage.end_one()
        await stage.look()
        assert stage.unfinished() == left
    stage.end_one()
    await stage.look()
    assert stage.unfinished() == 1
    assert len(stage.ticks()) == 6


async def test_a_schedules_own_cap_holds_for_a_workflow_without_one(stage: Stage) -> None:
    """max_active_runs of a schedule counts although the program that registers the workflow says nothing of it."""
    stage.workflow()
    stage.now_is(june(1, 12))
    await stage.set(DAILY, catchup=True, max_active_runs=2, start_date=june(1) - timedelta(days=9))
    stage.workflow()
    await stage.look()
    assert stage.unfinished() == 2
    await stage.set(DAILY, catchup=True, max_active_runs=3, start_date=june(1) - timedelta(days=9))
    stage.settle()
    await stage.look()
    assert stage.unfinished() == 3


async def test_a_run_that_waits_is_active(stage: Stage) -> None:
    """48: parked for a week for an event, it holds its slot."""
    stage.workflow(max_active_runs=1)
    stage.now_is(june(1, 12))
    await stage.set(DAILY, catchup=True)
    await stage.look_at(june(2))
    stage.settle()
    task = stage.worker.claim_one()
    stage.worker.park(task, waits=[wait_row(task, "a", "approval")])
    stage.settle()
    assert await stage.look_at(june(9)) == []
    assert stage.store.state(task.run_id) == "parked"
    assert (await stage.schedules.show("w")).waiting == NO_SLOT


async def test_a_run_that_waits_is_not_active_where_the_workflow_says_so(stage: Stage) -> None:
    """48: with max_active_excludes_waiting a parked run makes room, the schedule is told of it at once, and no more
    than so many run or stand in line."""

    @workflow(name="w", max_active_runs=1, max_active_excludes_waiting=True)
    async def waits(ctx: DurableContext) -> None: ...

    stage.store.register("w", **{key: value for key, value in waits.registration().items() if key != "name"})
    stage.now_is(june(1, 12))
    await stage.set(DAILY, catchup=True, start_date=june(1) - timedelta(days=5))
    await stage.look()
    for count in (1, 2, 3):
        assert (stage.unfinished(), (await stage.schedules.show("w")).waiting) == (count, NO_SLOT)
        stage.settle()
        task = stage.worker.claim_one()
        stage.worker.park(task, waits=[wait_row(task, "a", f"approval {count}")])
        stage.settle()
        assert stage.store.value("select next_at <= durable.now() from durable.schedule")
        await stage.look()


async def test_a_free_slot_is_told_to_the_schedule_that_waits(stage: Stage) -> None:
    """A run's end makes its schedule due at once, in the pass that frees the slot; others are left alone."""
    stage.workflow("w", "idle", max_active_runs=1)
    stage.now_is(june(1, 12))
    await stage.set(DAILY, catchup=True, start_date=june(1) - timedelta(days=5))
    await stage.set(DAILY, "idle")
    await stage.look()
    before = stage.row("idle")["next_at"]
    assert stage.store.value("select next_at > durable.now() from durable.schedule where workflow = 'w'")
    stage.store.start("idle")
    stage.end_one()
    stage.end_one()
    assert stage.store.value("select next_at <= durable.now() from durable.schedule where workflow = 'w'")
    assert stage.row("idle")["next_at"] == before


async def test_a_slot_freed_during_a_look_is_not_forgotten(stage: Stage) -> None:
    """A look that counted before the slot was free holds the schedule locked: the pass asks until it is let in."""
    stage.workflow(max_active_runs=1)
    stage.now_is(june(1, 12))
    await stage.set(DAILY, catchup=True, start_date=june(1) - timedelta(days=5))
    await stage.look()
    async with stage.connection.transaction():
        await stage.connection.execute("select * from durable.schedule for update")
        stage.worker.apply()
        task = stage.worker.claim_one()
        stage.worker.end(task)
        for _ in range(5):
            assert stage.worker.apply().signalled
    stage.settle()
    assert stage.store.value("select next_at <= durable.now() from durable.schedule")


async def test_cancel_old_ends_the_oldest_and_starts_the_newest(stage: Stage) -> None:
    """The run that holds the slot is asked to end, and the newest tick has it next."""
    stage.workflow(max_active_runs=1)
    stage.now_is(june(1, 12))
    await stage.set(DAILY, overlap="cancel_old")
    await stage.look_at(june(2))
    stage.settle()
    await stage.look_at(june(3))
    stage.settle()
    old, new = stage.run_at(june(2)), stage.run_at(june(3))
    assert stage.store.states([old, new]) == ["cancelled", "ready"]


async def test_cancel_old_leaves_manual_runs_alone(stage: Stage) -> None:
    """Only scheduled runs make way; a tick behind a manual run waits."""
    stage.workflow(max_active_runs=1)
    stage.now_is(june(1, 12))
    await stage.set(DAILY, overlap="cancel_old")
    run = await stage.schedules.trigger("w")
    stage.settle()
    assert await stage.look_at(june(2)) == []
    stage.settle()
    assert stage.store.state(run) == "ready"


async def test_allow_runs_beside_each_other(stage: Stage) -> None:
    """Outside the cap: nothing waits, and what runs so takes no slot from manual runs."""
    stage.workflow(max_active_runs=1)
    stage.now_is(june(1, 12))
    await stage.set(DAILY, overlap="allow")
    for day in (2, 3, 4):
        await stage.look_at(june(day))
    manual = await stage.schedules.trigger("w")
    stage.settle()
    assert stage.store.states([*(stage.run_at(june(day)) for day in (2, 3, 4)), manual]) == ["ready"] * 4


async def test_depends_on_past_waits_for_the_success_of_the_tick_before(stage: Stage) -> None:
    """52: the first is exempt; after a failure the next waits and says so; a new attempt that succeeds lets it go."""
    stage.workflow()
    stage.now_is(june(1, 12))
    await stage.set(DAILY, catchup=True, depends_on_past=True)
    assert await stage.look_at(june(2)) == [june(2)]
    assert await stage.look_at(june(3)) == []
    assert (await stage.schedules.show("w")).waiting == PAST_OPEN
    stage.end_one("failed")
    await stage.look()
    assert ((await stage.schedules.show("w")).waiting, stage.ticks()) == (PAST_FAILED, [june(2)])
    assert await stage.schedules.owed("w") == 1
    again = await stage.schedules.trigger("w", at=june(2), rerun=True)
    assert stage.end_one() == again
    stage.now_is(june(4))
    await stage.look()
    assert stage.ticks() == [june(2), june(2), june(3)]


async def test_depends_on_past_goes_on_when_the_failed_run_is_retried(stage: Stage) -> None:
    """52: `durable runs retry` of the failed run is enough, and the schedule learns of it at once."""
    stage.workflow()
    stage.now_is(june(1, 12))
    await stage.set(DAILY, catchup=True, depends_on_past=True)
    await stage.look_at(june(2))
    stage.end_one("failed")
    assert await stage.look_at(june(3)) == []
    stage.store.run("select durable.retry(%s)", stage.run_at(june(2)))
    stage.end_one()
    await stage.look()
    assert stage.ticks() == [june(2), june(3)]


async def test_continuous_starts_when_the_last_ends(stage: Stage) -> None:
    """55: exactly one at a time; the intervals join."""
    stage.workflow()
    stage.now_is(june(1, 12))
    await stage.set("@continuous", max_active_runs=1)
    for _ in range(3):
        await stage.look()
        assert stage.unfinished() == 1
        stage.end_one("failed")
    rows = stage.store.rows("select interval_start, tick from durable.tick order by tick")
    assert len(rows) == 3
    assert [start for start, _ in rows[1:]] == [tick for _, tick in rows[:-1]]


async def test_jitter_moves_the_start_and_not_the_tick(stage: Stage) -> None:
    """57: the run comes later by its own share, for the same logical time."""
    stage.workflow()
    stage.now_is(june(1, 12))
    await stage.set(DAILY, jitter="5m")
    await stage.look()
    [coming] = await stage.schedules.next("w", 1)
    assert (coming.tick, coming.starts_at < june(2, 0, 5)) == (june(2), True)
    assert await stage.look_at(coming.starts_at - timedelta(seconds=1)) == []
    assert await stage.look_at(coming.starts_at) == [june(2)]
    assert stage.store.value("select input ->> 'logical_date' from durable.run") == "2026-06-02T00:00:00Z"


async def test_a_fresh_tick_goes_before_a_backfill(stage: Stage) -> None:
    """51: of two runs that wait for a worker, the tick is claimed first, though it came later."""
    stage.workflow(max_active_runs=1)
    stage.now_is(june(9, 12))
    await stage.set(DAILY)
    stage.store.run("insert into durable.cap (cap_key, slots) values ('b:x', 10)")
    old = {"workflow": "w", "tick": june(3).isoformat(), "run": run_of("w", june(3)), "kind": "backfill", "prio": 8}
    stage.store.run("select durable.make_ticks(json_build_array(%s::json))", as_row(old))
    await stage.look_at(june(10))
    stage.settle()
    claimed = [str(task.run_id) for task in stage.worker.claim(2)]
    assert claimed == [stage.run_at(june(10)), stage.run_at(june(3))]


def as_row(tick: dict[str, object]) -> str:
    return json.dumps({**tick, "queue": "default", "active_cap": "b:x", "input": {}})


async def test_a_queued_run_names_the_runs_that_hold_its_slot(stage: Stage) -> None:
    """Rule 5: `durable.holders` answers for a run, the schedule for a tick that has none yet."""
    stage.workflow(max_active_runs=1)
    stage.now_is(june(1, 12))
    await stage.set(DAILY)
    await stage.look_at(june(2))
    stage.settle()
    queued = await stage.schedules.trigger("w")
    await stage.look_at(june(3))
    holder = stage.run_at(june(2))
    sql = "select cap_key, slots, run_id::text, workflow from durable.holders(%s)"
    assert stage.store.rows(sql, queued) == [("a:w", 1, holder, "w")]
    assert [str(run) for run in (await stage.schedules.show("w")).holders] == [holder]
