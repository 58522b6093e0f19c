"""Schedules of workflows in code: what their decorators say, and what becomes of it when they are served."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from durable import Durable, DurableContext, Workflow, workflow
from durable.errors import WrongState
from examples.nightly import call_somebody, nightly_report
from scheduler.definition import BadSchedule, Schedule
from scheduler.following import findings_in_code, follow_code, schedule_in_code
from scheduler.schedules import Schedules


def scheduled(**options: Any) -> Workflow:
    async def job(ctx: DurableContext) -> None: ...

    return workflow(**options)(job)


def test_a_decorator_carries_a_schedule() -> None:
    """Every option is a field of the schedule; the workflow's own limit stays its own."""
    found = schedule_in_code(scheduled(every=timedelta(hours=1), schedule_deadline="2h", max_active_runs=3, queue="q"))
    assert found is not None
    assert ("every 1h", timedelta(hours=2), None, "q") == (
        found.rule, found.deadline, found.max_active_runs, found.queue,
    )  # fmt: skip
    assert None is schedule_in_code(scheduled())


def test_one_decorator_may_make_several_workflows() -> None:
    """Its options are not used up by the first."""
    decorate = workflow(schedule="@daily", deadline=60)

    async def one(ctx: DurableContext) -> None: ...

    async def two(ctx: DurableContext) -> None: ...

    assert (decorate(one).schedule, decorate(one).deadline) == (decorate(two).schedule, decorate(two).deadline)


def test_terms_without_a_rule_are_refused_where_they_are_written() -> None:
    """A time zone says nothing when nothing is scheduled."""
    with pytest.raises(ValueError, match="timezone says nothing without a schedule"):
        scheduled(timezone="Europe/Berlin")


def test_a_bad_schedule_in_code_is_refused_by_its_field() -> None:
    """Case 55 and others: the limit of the workflow counts as the schedule's."""
    with pytest.raises(BadSchedule, match="one at a time"):
        schedule_in_code(scheduled(schedule="@continuous", max_active_runs=2))
    doubtful = findings_in_code(scheduled(schedule="@daily", start_date=datetime(2026, 1, 1)))
    assert doubtful is not None
    assert [warning.kind for warning in doubtful.warnings] == ["naive_date"]


async def test_a_served_workflow_has_its_schedule_and_loses_it(durable_dsn: str) -> None:
    """Set when it is first served, unchanged when it is served again, removed when its decorator names none."""
    async with Durable(durable_dsn) as client:
        with_one, without = scheduled(schedule="@daily"), scheduled()
        assert await follow_code(client, [with_one], by="ann") == {"job": "set"}
        assert await follow_code(client, [with_one], by="ann") == {"job": "unchanged"}
        assert await follow_code(client, [without], by="ann") == {"job": "removed"}
        assert await follow_code(client, [without], by="ann") == {"job": None}
    with pytest.raises(WrongState, match="has no schedule"):
        await Schedules(durable_dsn).show("job")


async def test_a_worker_leaves_a_persons_schedule_alone(durable_dsn: str) -> None:
    """What was set by hand stays until it is removed by hand."""
    schedules, job = Schedules(durable_dsn), scheduled(schedule="@daily")
    async with Durable(durable_dsn) as client:
        await follow_code(client, [job], by="ann")
        await schedules.set("job", Schedule.of(schedule="@hourly"), by="bob")
        assert await follow_code(client, [job], by="ann") == {"job": "kept"}
        assert (await schedules.show("job")).cron == "@hourly"
        await schedules.remove("job", by="bob")
        assert await follow_code(client, [job], by="ann") == {"job": "set"}


async def test_one_bad_schedule_keeps_all_from_being_set(durable_dsn: str) -> None:
    """A worker that is refused has changed nothing."""
    async with Durable(durable_dsn) as client:
        with pytest.raises(BadSchedule):
            await follow_code(client, [nightly_report, scheduled(schedule="61 * * * *")], by="ann")
    assert list(await Schedules(durable_dsn).list()) == []


async def test_the_example_runs_by_hand_for_a_tick_of_its_own(durable_lab: Any, durable_dsn: str) -> None:
    """The interval is the one before the tick: from Friday's to Monday's, on the clock of Berlin."""
    async with durable_lab(nightly_report, call_somebody) as lab:
        await follow_code(lab.client, [nightly_report, call_somebody], by="ann")
        tick = datetime(2026, 6, 15, tzinfo=UTC)
        run = await Schedules(lab.client.dsn).trigger("nightly_report", at=tick)
        assert "from 2026-06-12T00:00:00Z to 2026-06-15T00:00:00Z" in await lab.result(run)
