"""`durable schedules ...`: every verb, against a real store and a scheduler that looks when it is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest

from durable import Durable, DurableContext, workflow
from durable.link import connect
from scheduler.service import all_parts

Command = Callable[..., Any]


@workflow
async def nightly(ctx: DurableContext, ds: str, who: str = "world") -> str:
    return f"{who} {ds}"


@workflow
async def greedy(ctx: DurableContext, size: int) -> int:
    return size


@pytest.fixture
def known(durable: Command, durable_dsn: str) -> Command:
    """The command on a store that knows some workflows, in the middle of June 2026."""

    async def register() -> None:
        async with Durable(durable_dsn) as client:
            await client.register(nightly, greedy)

    asyncio.run(register())
    move_to(durable_dsn, datetime(2026, 6, 10, 15, 30, tzinfo=UTC))
    return durable


def move_to(dsn: str, moment: datetime) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("select durable.skip_time(%s - durable.now())", (moment,))


def look(dsn: str) -> None:
    """A scheduler looks until nothing is due."""

    async def turn() -> None:
        connection = await connect(dsn, "test-scheduler")
        while sum([await part.run_once(connection) for part in all_parts()]):
            pass
        await connection.close()

    asyncio.run(turn())


def read(durable: Command, *arguments: str) -> Any:
    """What a verb says to programs."""
    said = durable("schedules", *arguments, "--json")
    assert said.code == 0, said
    return json.loads(said.out)


def test_a_schedule_is_set_and_looked_at(known: Command) -> None:
    """What was set is shown, listed and counted ahead, in UTC and on the clock of its zone."""
    said = known("schedules", "set", "nightly", "0 2 * * 1-5", "--timezone", "Europe/Berlin", "--tag", "bank")
    assert (said.code, said.out) == (0, "scheduled nightly 0 2 * * 1-5 (Europe/Berlin); next 2026-06-11T00:00:00Z\n")
    assert "unchanged nightly" in known("schedules", "set", "nightly", "0 2 * * 1-5").out
    shown = read(known, "show", "nightly")
    assert tuple(shown[name] for name in ("cron", "timezone", "state", "tags")) == (
        "0 2 * * 1-5",
        "Europe/Berlin",
        "active",
        ["bank"],
    )
    assert [each["workflow"] for each in read(known, "list")] == ["nightly"]
    assert [each["tick"] for each in read(known, "next", "nightly", "-n", "3")] == [
        "2026-06-11T00:00:00Z",
        "2026-06-12T00:00:00Z",
        "2026-06-15T00:00:00Z",
    ]
    page = known("schedules", "next", "nightly", "-n", "1").out
    assert "Thu 2026-06-11 02:00 CEST" in page
    assert "0 2 * * 1-5 (Europe/Berlin)" in known("schedules", "show", "nightly").out


def test_what_is_not_named_stays_and_what_is_unset_goes(known: Command) -> None:
    """A second `set` changes one thing; a new kind of rule takes the place of the old."""
    known(
        "schedules",
        "set",
        "nightly",
        "@daily",
        "--jitter",
        "5m",
        "--catchup",
        "true",
        "--start-date",
        "2026-06-01T00:00Z",
    )
    assert read(known, "show", "nightly")["overlap"] == "queue"
    known("schedules", "set", "nightly", "--catchup", "latest", "--unset", "jitter")
    found = read(known, "show", "nightly")
    assert tuple(found[name] for name in ("cron", "catchup", "jitter", "overlap")) == ("@daily", "latest", None, "skip")
    known("schedules", "set", "nightly", "--every", "12h")
    found = read(known, "show", "nightly")
    assert (found["cron"], found["every"]) == (None, "PT12H")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nightly", "61 * * * *"), "schedule: '61' is no minute"),
        (("nightly", "@daily", "--timezone", "Europe/Berln"), "did you mean Europe/Berlin?"),
        (
            ("nightly", "@daily", "--start-date", "2026-02-01T00:00Z", "--end-date", "2026-01-01T00:00Z"),
            "not after start_date",
        ),
        (("nightly", "@daily", "--max-active-runs", "0"), "at least 1"),
        (("nightly", "@continuous", "--max-active-runs", "2"), "one at a time"),
        (("nightly",), "there is no rule"),
        (("greedy", "@daily"), "missing 'size'"),
        (("nightly", "@daily", "--input", "whom=you"), "unknown 'whom'"),
        (("nobody", "@daily"), "unknown workflow"),
    ],
)
def test_a_bad_schedule_is_refused_and_nothing_written(known: Command, arguments: tuple[str, ...], said: str) -> None:
    """Exit code 4, the field and a hint."""
    refused = known("schedules", "set", *arguments)
    assert refused.code == 4, refused
    assert said in refused.err
    assert read(known, "list") == []


def test_a_date_without_a_zone_is_taken_with_a_warning(known: Command) -> None:
    """Case 21, on the command line."""
    said = known("schedules", "set", "nightly", "@daily", "--timezone", "Asia/Tokyo", "--start-date", "2026-06-20")
    assert "taken in the schedule's, Asia/Tokyo" in said.err
    assert read(known, "show", "nightly")["start_date"] == "2026-06-19T15:00:00Z"


def test_a_pause_says_who_when_and_why(known: Command) -> None:
    """And the history keeps it after it is over."""
    known("schedules", "set", "nightly", "@daily")
    assert known("schedules", "pause", "nightly", "--note", "moving house").code == 0
    shown = read(known, "show", "nightly")
    assert (shown["paused"], shown["pause_note"]) == (True, "moving house")
    assert shown["paused_by"]
    assert "moving house" in known("schedules", "show", "nightly").out
    assert "was paused before" in known("schedules", "pause", "nightly").out
    assert "goes on; next 2026-06-11" in known("schedules", "unpause", "nightly").out
    kinds = [note["kind"] for note in read(known, "history", "nightly")]
    assert kinds == ["unpaused", "paused", "set"]


def test_a_paused_workflow_runs_by_hand_and_a_tick_only_once(known: Command) -> None:
    """Cases 42 and 43: a run by hand is made; its tick is taken then, by name, until it is asked for again."""
    known("schedules", "set", "nightly", "@daily", "--paused")
    run = read(known, "trigger", "nightly", "--input", "who=you", "--at", "2026-06-09T00:00Z")["run_id"]
    again = known("schedules", "trigger", "nightly", "--at", "2026-06-09T00:00Z")
    assert again.code == 4
    assert run in again.err
    rerun = read(known, "trigger", "nightly", "--at", "2026-06-09T00:00Z", "--rerun")["run_id"]
    assert rerun != run
    found = json.loads(known("runs", "show", run, "--json").out)["run"]["input"]
    assert (found["who"], found["ds"]) == ("you", "2026-06-08T00:00:00Z")
    assert known("schedules", "trigger", "nightly").code == 0


def test_the_next_tick_can_be_left_out(known: Command, durable_dsn: str) -> None:
    """It gets no run, and the history says so."""
    known("schedules", "set", "nightly", "@daily")
    assert "leaves out 2026-06-11" in known("schedules", "skip-next", "nightly").out
    move_to(durable_dsn, datetime(2026, 6, 12, 0, 0, 1, tzinfo=UTC))
    look(durable_dsn)
    shown = read(known, "show", "nightly")
    assert [tick["tick"] for tick in shown["ticks"]] == ["2026-06-12T00:00:00Z"]
    assert "skipped" in [note["kind"] for note in shown["notes"]]


def test_what_is_owed_is_shown_with_who_holds_the_slot(known: Command, durable_dsn: str) -> None:
    """Case 27, as a person sees it: the run in flight is named, the rest is a number."""
    terms = ("--catchup", "true", "--start-date", "2026-06-01T00:00Z", "--max-active-runs", "1")
    known("schedules", "set", "nightly", "@hourly", *terms)
    look(durable_dsn)
    page = known("schedules", "show", "nightly").out
    shown = read(known, "show", "nightly")
    assert len(shown["ticks"]) == 1
    assert shown["owed"] > 200
    assert f"{shown['owed']} ticks" in page
    assert "no slot is free" in page
    assert known("schedules", "list").out.count("waiting") == 1


def test_a_schedule_that_was_removed_makes_nothing(known: Command, durable_dsn: str) -> None:
    """Its history stays; a second removal is refused."""
    known("schedules", "set", "nightly", "@daily")
    assert known("schedules", "remove", "nightly").code == 0
    move_to(durable_dsn, datetime(2026, 6, 12, tzinfo=UTC))
    look(durable_dsn)
    assert read(known, "list") == []
    assert (known("schedules", "remove", "nightly").code, known("schedules", "show", "nightly").code) == (4, 4)
    assert [note["kind"] for note in read(known, "history", "nightly")] == ["removed", "set"]


def test_a_dry_run_lists_exactly_what_the_backfill_makes(known: Command, durable_dsn: str) -> None:
    """Case 50: the list, then the same ticks as runs; a tick with a run is left out of the next."""
    known("schedules", "set", "nightly", "@daily")
    span = ("--from", "2026-06-01", "--to", "2026-06-05")
    planned = read(known, "backfill", "create", "nightly", *span, "--dry-run")
    assert read(known, "backfill", "list") == []
    made = read(known, "backfill", "create", "nightly", *span, "--limit", "10", "--note", "lost disk")
    look(durable_dsn)
    shown = read(known, "backfill", "show", made["id"])
    assert [each["tick"] for each in planned["ticks"]] == [each["tick"] for each in shown["ticks"]]
    assert (planned["made"], shown["made"], shown["note"]) == (5, 5, "lost disk")
    again = known("schedules", "backfill", "create", "nightly", *span, "--dry-run").out
    assert "0 runs of nightly would be made, 5 left out" in again


def test_a_backfill_is_paused_resumed_and_cancelled(known: Command, durable_dsn: str) -> None:
    """By its id; one at a time unless more are asked for."""
    known("schedules", "set", "nightly", "@daily")
    span = ("--from", "2026-06-01", "--to", "2026-06-05")
    backfill = known("schedules", "backfill", "create", "nightly", *span).out.strip()
    look(durable_dsn)
    assert "is paused: 1 of 5" in known("schedules", "backfill", "pause", backfill).out
    assert "is running" in known("schedules", "backfill", "resume", backfill).out
    assert "is cancelled" in known("schedules", "backfill", "cancel", backfill).out
    assert backfill in known("schedules", "backfill", "list").out
    assert known("schedules", "backfill", "show", "nonsense").code == 4
    assert known("schedules", "backfill", "create", "nightly", *span, "--reprocess", "all").code == 2


def test_a_workflow_starts_on_events(known: Command, durable_dsn: str, working: Command, eventually: Command) -> None:
    """Once for each, with the payload as its input."""
    assert "starts on order.*" in known("schedules", "triggers", "set", "nightly", "order.*").out
    known("emit", "order.paid", "--payload", '{"ds": "now", "who": "you"}')
    working(nightly)

    def started() -> Any:
        look(durable_dsn)
        return read(known, "triggers", "runs", "nightly")

    [run] = eventually(started, "a run for the event")
    assert json.loads(known("runs", "show", run["run_id"], "--json").out)["run"]["input"]["who"] == "you"
    assert read(known, "triggers", "list")[0]["events"] == ["order.*"]
    assert known("schedules", "triggers", "pause", "nightly", "--note", "no").code == 0
    assert "paused" in known("schedules", "triggers", "list").out
    assert known("schedules", "triggers", "unpause", "nightly").code == 0
    assert known("schedules", "triggers", "remove", "nightly").code == 0
    assert known("schedules", "triggers", "remove", "nightly").code == 4


def test_a_missed_deadline_is_listed(known: Command, durable_dsn: str) -> None:
    """Case 58, as a person sees it: one alert for the tick."""
    known("schedules", "set", "nightly", "@daily", "--deadline", "2h")
    assert known("schedules", "alerts").out == "no alerts\n"
    look(durable_dsn)
    move_to(durable_dsn, datetime(2026, 6, 11, 0, 0, 1, tzinfo=UTC))
    look(durable_dsn)
    move_to(durable_dsn, datetime(2026, 6, 11, 2, 30, tzinfo=UTC))
    look(durable_dsn)
    [alert] = read(known, "alerts", "nightly")
    assert tuple(alert[name] for name in ("workflow", "tick", "kind")) == ("nightly", "2026-06-11T00:00:00Z", "late")
    assert "late" in known("schedules", "alerts").out
