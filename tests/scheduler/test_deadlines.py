"""Deadlines on the real store: one alert and one callback for what is late or never began, however many look."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import psycopg
import pytest

from scheduler.deadlines import AlertInfo, Alerts, DeadlineLooks
from tests.scheduler.looking import look_at_all
from tests.scheduler.stage import Stage, june


class Watching(Stage):
    """A stage on which `w` runs daily with a deadline of two hours, deployed on June 1 in the afternoon."""

    async def begin(self, **terms: Any) -> None:
        self.now_is(june(1, 15))
        self.workflow("w", "alarm", max_active_runs=1)
        await self.set(**{"deadline": "2h", "on_deadline": "alarm", **terms})
        await self.look()
        await look_at_all(DeadlineLooks(), self.connection)

    async def tick(self, day: int) -> None:
        """The moment after a tick: its run is made, if it can be."""
        await self.watch_at(june(day, 0, 0, 1))

    async def watch_at(self, moment: datetime) -> list[AlertInfo]:
        """Move the clock, look at ticks and deadlines, and say what was raised by it, oldest first."""
        before = {alert.id for alert in await self.alerts()}
        await self.look_at(moment)
        await look_at_all(DeadlineLooks(), self.connection)
        return [alert for alert in await self.alerts() if alert.id not in before]

    async def alerts(self) -> list[AlertInfo]:
        return list(reversed(await Alerts(self.dsn).list()))

    def alarms(self) -> list[Any]:
        return self.store.column("select input from durable.run where workflow = 'alarm' order by created_at, run_id")


@pytest.fixture
async def stage(durable_dsn: str) -> AsyncIterator[Watching]:
    stage = await Watching.open(durable_dsn)
    try:
        yield stage
    finally:
        await stage.close()


async def test_a_run_past_its_deadline_raises_one_alert_and_one_callback(stage: Watching) -> None:
    """Measured from the tick, raised when it is over and not before, and never again, whatever the run then does."""
    await stage.begin()
    await stage.tick(2)
    assert await stage.watch_at(june(2, 1, 59)) == []
    [alert] = await stage.watch_at(june(2, 2, 1))
    assert (alert.kind, alert.tick, alert.due_at) == ("late", june(2), june(2, 2))
    assert str(alert.run_id) == stage.run_at(june(2))
    [given] = stage.alarms()
    assert (given["workflow"], given["tick"], given["kind"]) == ("w", "2026-06-02T00:00:00Z", "late")
    assert given["run_id"] == stage.run_at(june(2))
    stage.settle()
    assert await stage.watch_at(june(2, 5)) == []
    assert len(stage.alarms()) == 1


async def test_a_run_that_ends_in_time_raises_nothing(stage: Watching) -> None:
    """Nor does one that failed in time: that is another thing."""
    await stage.begin(on_deadline=None)
    for day, state in ((2, "succeeded"), (3, "failed")):
        await stage.tick(day)
        stage.end_one(state)
        assert await stage.watch_at(june(day, 3)) == []


async def test_a_run_that_ended_late_while_nobody_looked_raises_an_alert(stage: Watching) -> None:
    """What was missed does not depend on when a scheduler looks."""
    await stage.begin(on_deadline=None)
    await stage.tick(2)
    stage.now_is(june(2, 3))
    stage.end_one()
    [alert] = await stage.watch_at(june(2, 4))
    assert (alert.kind, alert.tick) == ("late", june(2))


async def test_a_tick_that_did_not_start_raises_an_alert(stage: Watching) -> None:
    """It waits for a slot; the alert has no run, and the run it gets in the end raises no other."""
    await stage.begin(overlap="queue", catchup="true")
    await stage.tick(2)
    assert [alert.kind for alert in await stage.watch_at(june(2, 3))] == ["late"]
    [alert] = await stage.watch_at(june(3, 3))
    assert (alert.kind, alert.tick, alert.run_id) == ("not started", june(3), None)
    stage.end_one()
    assert await stage.watch_at(june(3, 8)) == []
    assert june(3) in stage.ticks()
    assert len(stage.alarms()) == 2


async def test_a_tick_that_waits_for_its_past_raises_an_alert(stage: Watching) -> None:
    """depends_on_past keeps it from starting; somebody should know."""
    await stage.begin(depends_on_past=True, overlap="queue", catchup="true", on_deadline=None)
    await stage.watch_at(june(2, 1))
    stage.end_one("failed")
    [alert] = await stage.watch_at(june(3, 3))
    assert (alert.kind, alert.tick) == ("not started", june(3))


async def test_ticks_missed_together_are_one_alert(stage: Watching) -> None:
    """After days without a scheduler: one row with the range and the count, one callback."""
    await stage.begin()
    stage.workflow("w", max_active_runs=None)
    [alert] = await stage.watch_at(june(6, 12))
    assert (alert.kind, alert.tick, alert.last_tick, alert.ticks) == ("skipped", june(2), june(6), 5)
    assert len(stage.alarms()) == 1


async def test_a_tick_skipped_for_want_of_a_slot_raises_an_alert(stage: Watching) -> None:
    """Nobody asked for that skip."""
    await stage.begin(on_deadline=None)
    for day in (2, 3, 4):
        await stage.tick(day)
    await stage.watch_at(june(4, 3))
    found = [(alert.kind, alert.tick) for alert in await stage.alerts()]
    assert found == [("late", june(2)), ("skipped", june(3)), ("not started", june(4))]


async def test_what_a_person_skipped_or_paused_raises_nothing(stage: Watching) -> None:
    """A pause and skip-next are decisions."""
    await stage.begin()
    assert await stage.schedules.skip_next("w", by="ann") == june(2)
    assert await stage.watch_at(june(2, 5)) == []
    await stage.schedules.pause("w", by="ann")
    assert await stage.watch_at(june(4, 5)) == []
    await stage.schedules.unpause("w", by="ann")
    assert await stage.watch_at(june(4, 6)) == []


async def test_ticks_of_the_time_before_deployment_raise_nothing(stage: Watching) -> None:
    """Catchup makes runs for a past whose deadlines were over before anybody watched."""
    stage.now_is(june(10, 15, 30))
    stage.workflow("w", "alarm", max_active_runs=1)
    await stage.set(start_date=june(1), catchup="true", deadline="2h")
    assert await stage.watch_at(june(10, 16)) == []
    assert await stage.watch_at(june(10, 20)) == []
    [alert] = await stage.watch_at(june(11, 3))
    assert (alert.kind, alert.tick) == ("not started", june(11))


async def test_a_schedule_is_watched_from_its_deployment(stage: Watching) -> None:
    """Though the first scheduler comes only days later."""
    stage.now_is(june(1, 15))
    stage.workflow("w")
    await stage.set(deadline="2h", catchup="true")
    [alert] = await stage.watch_at(june(4, 12))
    assert (alert.kind, alert.tick, alert.last_tick) == ("not started", june(2), june(4))


async def test_a_manual_run_has_no_deadline_of_the_schedule(stage: Watching) -> None:
    """It was never due."""
    await stage.begin()
    await stage.schedules.trigger("w", at=june(1, 16))
    assert await stage.watch_at(june(1, 20)) == []


async def test_a_deadline_longer_than_the_period_watches_each_run(stage: Watching) -> None:
    """Each tick has its own deadline, though the next ticks come before it."""
    await stage.begin(cron="@hourly", deadline="3h", overlap="allow", on_deadline=None)
    stage.workflow("w", max_active_runs=None)
    for hour in range(16, 21):
        await stage.watch_at(june(1, hour, 1))
    assert [alert.tick for alert in await stage.alerts()] == [june(1, 16), june(1, 17)]


async def test_a_changed_deadline_counts_for_runs_that_still_go_on(stage: Watching) -> None:
    """Set while a run is under way, it is watched at once."""
    await stage.begin(deadline=None, on_deadline=None)
    await stage.tick(2)
    await stage.set(deadline="2h")
    assert await stage.watch_at(june(2, 1, 30)) == []
    [alert] = await stage.watch_at(june(2, 2, 1))
    assert alert.tick == june(2)
    await stage.set(deadline="1h")
    stage.end_one()
    await stage.tick(3)
    [alert] = await stage.watch_at(june(3, 1, 30))
    assert (alert.tick, alert.due_at) == (june(3), june(3, 1))


async def test_a_continuous_run_has_its_deadline_too(stage: Watching) -> None:
    """Its tick is the moment it began."""
    await stage.begin(cron="@continuous", max_active_runs=1, on_deadline=None)
    [alert] = await stage.watch_at(june(1, 17, 1))
    assert (alert.kind, str(alert.run_id)) == ("late", stage.run_at(alert.tick))


async def test_a_callback_that_cannot_start_is_said_and_loses_no_alert(stage: Watching) -> None:
    """It does not exist, or its parameters do not fit: the alert stands, with the reason."""
    await stage.begin(on_deadline="nobody")
    [alert] = await stage.watch_at(june(2, 3))
    assert (alert.callback_run, alert.callback_note) == (None, "no such workflow")
    stage.store.register("picky", params={"required": ["tick", "color"], "optional": [], "open": False})
    await stage.set(deadline="2h", on_deadline="picky")
    [alert] = await stage.watch_at(june(3, 3))
    assert alert.callback_note == "missing 'color'"
    assert len(await stage.notes("deadline")) == 2


async def test_a_callback_gets_what_it_declares(stage: Watching) -> None:
    """A Python workflow with two parameters is given these two."""
    stage.store.register("brief", params={"required": ["workflow", "tick"], "optional": [], "open": False})
    await stage.begin(on_deadline="brief")
    [alert] = await stage.watch_at(june(2, 3))
    given = stage.store.value("select input from durable.run where run_id = %s", alert.callback_run)
    assert given == {"workflow": "w", "tick": "2026-06-02T00:00:00Z"}


async def test_a_deadline_that_cannot_be_decided_waits_and_stops_no_other(stage: Watching) -> None:
    """A zone that this machine does not have: it is looked at again later."""
    stage.now_is(june(1, 15))
    stage.workflow("w", "v")
    await stage.set(workflow="w", deadline="2h")
    await stage.set(workflow="v", deadline="2h")
    await stage.look_at(june(2, 0, 0, 1))
    stage.store.run("update durable.schedule set timezone = 'Mars/Olympus' where workflow = 'v'")
    assert [alert.workflow for alert in await stage.watch_at(june(2, 3))] == ["w"]
    stage.store.run("update durable.schedule set timezone = 'UTC' where workflow = 'v'")
    assert [alert.workflow for alert in await stage.watch_at(june(2, 4))] == ["v"]


async def test_schedulers_beside_each_other_raise_one_alert(stage: Watching) -> None:
    """Case 58: four look at the same moment at twenty schedules; one row and one callback for each."""
    stage.now_is(june(1, 15))
    names = [f"w{number}" for number in range(20)]
    stage.workflow("alarm", *names)
    for name in names:
        await stage.set(workflow=name, deadline="2h", on_deadline="alarm")
    await stage.look_at(june(2, 0, 0, 1))
    await look_at_all(DeadlineLooks(), stage.connection)
    stage.now_is(june(2, 3))

    async def watch() -> None:
        async with await psycopg.AsyncConnection.connect(stage.dsn, autocommit=True) as connection:
            await look_at_all(DeadlineLooks(), connection)

    await asyncio.gather(*(watch() for _ in range(4)))
    assert sorted(alert.workflow for alert in await stage.alerts()) == sorted(names)
    assert sorted(given["workflow"] for given in stage.alarms()) == sorted(names)


async def test_a_scheduler_that_dies_before_its_commit_raises_nothing(stage: Watching) -> None:
    """Alert, callback and cursor are one transaction: the next look raises it, once."""
    await stage.begin()
    await stage.look_at(june(2, 0, 0, 1))
    stage.now_is(june(2, 3))
    async with await psycopg.AsyncConnection.connect(stage.dsn) as doomed:
        # A transaction around the look, so that it stays open behind it.
        await doomed.execute("select")
        assert await DeadlineLooks().run_once(doomed) == 1
        stage.store.run("select pg_terminate_backend(%s)", doomed.info.backend_pid)
        with pytest.raises(psycopg.OperationalError):
            await doomed.commit()
    assert await stage.alerts() == []
    [alert] = await stage.watch_at(june(2, 4))
    assert (alert.tick, len(stage.alarms())) == (june(2), 1)


async def test_the_next_deadline_is_known(stage: Watching) -> None:
    """The service sleeps until then."""
    await stage.begin()
    assert await DeadlineLooks().next_at(stage.connection) == june(2, 2)
    await stage.watch_at(june(2, 3))
    assert await DeadlineLooks().next_at(stage.connection) == june(3, 2)


async def test_a_schedule_that_is_removed_is_watched_no_more(stage: Watching) -> None:
    """Its runs go on without a deadline."""
    await stage.begin()
    await stage.look_at(june(2, 0, 0, 1))
    await stage.schedules.remove("w")
    assert await stage.watch_at(june(2, 3)) == []
    assert await DeadlineLooks().next_at(stage.connection) is None
