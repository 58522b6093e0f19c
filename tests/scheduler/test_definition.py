"""What a definition of a schedule is refused for, and what becomes of one that is sound."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from highway_dsl import Workflow, WorkflowBuilder, faults_of
from scheduler.definition import BadSchedule, Schedule, examine

NAIVE = datetime(2026, 1, 1)


@pytest.mark.parametrize(
    ("given", "field", "said", "hint"),
    [
        ({"schedule": "0 0 0 * * *"}, "schedule", "6 fields", "no seconds"),
        ({"schedule": "0 0 0 * * * 2026"}, "schedule", "7 fields", "no years"),
        ({"schedule": "60 * * * *"}, "schedule", "minute", "0 to 59"),
        ({"schedule": "0 24 * * *"}, "schedule", "hour", "0 to 23"),
        ({"schedule": "*/0 * * * *"}, "schedule", "minute", "steps"),
        ({"schedule": "0 0 * * FOO"}, "schedule", "day of week", "SUN to SAT"),
        ({"schedule": "TZ=UTC 0 0 * * *"}, "schedule", "fields", "timezone"),
        ({"schedule": "0 0 30 2 *"}, "schedule", "never fires", "no month"),
        ({"schedule": "0 0 1 * 5#2"}, "schedule", "two ways", "either"),
        ({"schedule": "@often"}, "schedule", "@often", "@daily"),
        ({}, "schedule", "no rule", "@daily"),
        ({"schedule": "@daily", "every": "1d"}, "every", "not both", ""),
        ({"every": "0s"}, "every", "too short", ""),
        ({"every": "often"}, "every", "timedelta", "15m"),
        ({"every": "P1M"}, "every", "no fixed length", "15m"),
        ({"schedule": "@daily", "timezone": "Europe/Berln"}, "timezone", "Europe/Berln", "Europe/Berlin?"),
        ({"schedule": "@daily", "timezone": "nowhere"}, "timezone", "nowhere", "IANA"),
        ({"schedule": "@daily", "start_date": "soon"}, "start_date", "datetime", "2026-01-31"),
        ({"schedule": "@daily", "start_date": NAIVE, "end_date": NAIVE}, "end_date", "not after", "swap"),
        (
            {"schedule": "@daily", "start_date": NAIVE, "end_date": NAIVE + timedelta(hours=9)},
            *("end_date", "no tick", "2026-01-02"),
        ),
        ({"schedule": "@daily", "max_active_runs": 0}, "max_active_runs", "greater", "at least 1"),
        ({"schedule": "@daily", "max_active_runs": -1}, "max_active_runs", "greater", "at least 1"),
        ({"schedule": "@continuous", "max_active_runs": 2}, "max_active_runs", "one at a time", "to 1"),
        ({"schedule": "@daily", "catchup": "maybe"}, "catchup", "latest", ""),
        ({"schedule": "@daily", "catchup_window": 0}, "catchup_window", "greater", "15m"),
        ({"schedule": "@daily", "overlap": "fight"}, "overlap", "cancel_old", ""),
        ({"schedule": "@daily", "overlap": "cancel_old", "depends_on_past": True}, "overlap", "depends", "queue"),
        ({"schedule": "@daily", "on_deadline": "page"}, "on_deadline", "no deadline", "PT2H"),
        ({"schedule": "@daily", "prio": 10}, "prio", "less", "0 (first)"),
        ({"schedule": "@daily", "colour": "red"}, "colour", "not permitted", ""),
    ],
)
def test_a_bad_schedule_is_refused_by_its_field(given: dict[str, Any], field: str, said: str, hint: str) -> None:
    """Cases 12, 15, 47 and 55, zones and dates: the field, what is wrong with it, and what to write instead."""
    found = examine(given)
    assert found.schedule is None
    assert [field] == [fault.loc[0] for fault in found.faults]
    assert said in found.faults[0].message
    assert hint in (found.faults[0].hint or "")


def test_all_that_is_wrong_is_said_at_once() -> None:
    """One refusal names the workflow and every fault of its schedule."""
    with pytest.raises(BadSchedule, match="'nightly'") as refused:
        Schedule.of("nightly", schedule="61 * * * *", timezone="Mars/Olympus", on_deadline="page")
    assert [fault.loc[0] for fault in refused.value.faults] == ["schedule", "timezone", "on_deadline"]


def test_a_date_without_a_zone_is_taken_in_the_schedules_and_said() -> None:
    """Case 21: midnight in Berlin is stored as the instant it is; a warning says so."""
    found = examine({"schedule": "@daily", "timezone": "Europe/Berlin", "start_date": NAIVE})
    assert found.schedule is not None
    assert datetime(2025, 12, 31, 23, tzinfo=UTC) == found.schedule.start_date
    assert [warning.kind for warning in found.warnings] == ["naive_date"]


def test_a_date_of_another_zone_is_the_same_instant() -> None:
    """Case 22: dates are compared and stored as instants."""
    schedule = Schedule.of(schedule="@daily", timezone="Asia/Tokyo", start_date="2026-01-01T00:00:00-05:00")
    assert datetime(2026, 1, 1, 5, tzinfo=UTC) == schedule.start_date


@pytest.mark.parametrize(("catchup", "policy"), [(False, "skip"), (True, "queue"), ("latest", "skip")])
def test_without_an_overlap_catchup_decides_what_a_full_house_does(catchup: Any, policy: str) -> None:
    """Rule 5: with catchup a tick waits for its slot, else it is skipped."""
    assert policy == Schedule.of(schedule="@daily", catchup=catchup).policy


def test_only_the_timetable_makes_another_definition() -> None:
    """A new tag or deadline does not begin a schedule anew; a new rule, zone or start does."""
    plain = {"schedule": "@daily", "start_date": "2026-01-01T00:00:00Z"}
    same = [{"tags": ("a",)}, {"deadline": "2h"}, {"catchup": True}, {"start_date": "2026-01-01T01:00:00+01:00"}]
    other = [{"schedule": "@hourly"}, {"timezone": "Asia/Tokyo"}, {"start_date": "2026-01-02T00:00:00Z"}]
    mine = Schedule.of(**plain).definition
    assert {mine} == {Schedule.of(**{**plain, **change}).definition for change in same}
    assert mine not in {Schedule.of(**{**plain, **change}).definition for change in other}


def test_lengths_of_time_are_written_as_people_say_them() -> None:
    """`15m` and PT15M are the same."""
    assert Schedule.of(every="15m").every == Schedule.of(every="PT15M").every == timedelta(minutes=15)
    assert Schedule.of(every="P1Y").every == timedelta(days=365)
    assert [Schedule.of(every=text).rule for text in ("15m", "24h", "90s")] == ["every 15m", "every 1d", "every 90s"]


DOCUMENT = """\
name: nightly
schedule: "0 2 * * *"
timezone: Europe/Berln
start_date: 2026-02-01T00:00:00Z
end_date: 2026-01-01T00:00:00Z
tasks:
  a: {task_id: a, operator_type: task, function: f}
"""


def test_a_document_says_where_its_schedule_is_wrong() -> None:
    """The place of the field, in the file that holds it."""
    with pytest.raises(ValidationError) as refused:
        Workflow.from_yaml(DOCUMENT, file="nightly.yaml")
    assert [str(fault.position) for fault in faults_of(refused.value)] == ["nightly.yaml:3:1"]
    with pytest.raises(ValidationError) as again:
        Workflow.from_yaml(DOCUMENT.replace("Berln", "Berlin"), file="nightly.yaml")
    assert [str(fault.position) for fault in faults_of(again.value)] == ["nightly.yaml:5:1"]


def test_a_document_warns_of_a_date_without_a_zone() -> None:
    """At its place, when it is checked."""
    text = DOCUMENT.replace("Berln", "Berlin").replace("2026-02-01T00:00:00Z", "2025-02-01T00:00:00")
    doubts = Workflow.load_yaml(text, file="nightly.yaml").lint()
    assert [str(doubt.position) for doubt in doubts if doubt.kind == "naive_date"] == ["nightly.yaml:4:1"]


def test_the_builder_sets_every_field_of_a_schedule() -> None:
    """What a document can say, a program can."""
    built = (
        WorkflowBuilder("w")
        .set_schedule("0 2 * * *")
        .set_timezone("Europe/Berlin")
        .set_end_date(datetime(2027, 1, 1, tzinfo=UTC))
        .set_catchup(True)
        .set_catchup_window(timedelta(days=1))
        .set_overlap("queue")
        .set_jitter(timedelta(minutes=5))
        .set_depends_on_past()
        .set_deadline(timedelta(hours=2), on_deadline="page")
        .task("a", "f")
        .build()
    )
    again = Workflow.from_yaml(built.to_yaml())
    assert built == again
    assert (again.depends_on_past, again.on_deadline, again.deadline) == (True, "page", timedelta(hours=2))
    assert WorkflowBuilder("w").set_every(timedelta(hours=1)).task("a", "f").build().every == timedelta(hours=1)
