"""Event triggers on the real store: exactly once per event or interval, whoever emits, looks or dies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import psycopg
import pytest

from durable import Durable, DurableContext, Refused, Settings, Worker, workflow
from durable.testing.protocol import Store
from scheduler.triggers import DUE, TriggerLooks
from tests.scheduler.looking import Looking, look_at_all, looking


@pytest.fixture
async def stage(durable_dsn: str) -> AsyncIterator[Looking]:
    """A store with `ship`, which takes an order id, and `report`, which takes anything."""
    async with looking(durable_dsn) as stage:
        stage.register("ship", "order_id", optional=("event_name", "rush"))
        stage.store.register("report")
        yield stage


async def test_an_event_starts_one_run_with_its_payload(stage: Looking) -> None:
    """The payload is the input; the name of the event is given to a workflow that declares it."""
    await stage.triggers.set("ship", ["order.paid"])
    stage.emit("order.paid", {"order_id": 1})
    stage.emit("order.lost", {"order_id": 2})
    await stage.fire()
    await stage.fire()
    assert stage.inputs("ship") == [{"event_name": "order.paid", "order_id": 1}]


async def test_a_triggered_run_stands_on_its_workflows_own_queue(stage: Looking) -> None:
    """Or on the one that the trigger names."""
    stage.store.run("update durable.workflow set queue = 'gpu' where name = 'report'")
    await stage.triggers.set("report", ["any"])
    await stage.triggers.set("ship", ["any"], queue="trucks")
    stage.emit("any", {"order_id": 1})
    await stage.fire()
    assert stage.store.rows("select workflow, queue from durable.run order by 1") == [
        ("report", "gpu"),
        ("ship", "trucks"),
    ]


async def test_a_star_stands_for_any_text_and_nothing_else_is_special(stage: Looking) -> None:
    """`%`, `_` and a backslash are themselves."""
    await stage.triggers.set("report", ["order.*.paid", r"a_b%\c"])
    names = ["order.7.paid", "order.eu.7.paid", "order.paid", "xorder.7.paid", r"a_b%\c", r"axb%\c", r"a_bxx\c"]
    for name in names:
        stage.emit(name)
    await stage.fire()
    assert sorted(x["event_name"] for x in stage.inputs("report")) == [r"a_b%\c", "order.7.paid", "order.eu.7.paid"]


async def test_events_of_the_runtime_itself_fit_no_star(stage: Looking) -> None:
    """A pattern must name them: otherwise `*` would start a run for every decision about an uncertain step."""
    await stage.triggers.set("report", ["*"])
    stage.emit("durable.decide/x")
    await stage.fire()
    assert stage.inputs("report") == []


async def test_one_event_starts_every_workflow_that_asks_for_it(stage: Looking) -> None:
    """Triggers know nothing of each other."""
    await stage.triggers.set("ship", ["order.*"])
    await stage.triggers.set("report", ["*.paid"])
    stage.emit("order.paid", {"order_id": 1})
    await stage.fire()
    assert (len(stage.inputs("ship")), len(stage.inputs("report"))) == (1, 1)


async def test_events_count_from_the_setting_of_the_trigger(stage: Looking) -> None:
    """What was emitted before starts nothing, though no pass has looked at it; nor does a change bring it back."""
    stage.emit("order.paid", {"order_id": 1})
    await stage.triggers.set("ship", ["order.paid"])
    stage.emit("order.paid", {"order_id": 2})
    await stage.triggers.set("ship", ["order.*"])
    await stage.fire()
    assert [x["order_id"] for x in stage.inputs("ship")] == [2]
    assert (await stage.triggers.list())[0].waiting == 0


async def test_a_clock_that_goes_back_loses_no_event(stage: Looking) -> None:
    """Events that are emitted at an earlier time than the trigger was set count all the same, whenever a pass comes."""
    await stage.triggers.set("report", ["n"])
    stage.store.skip("-3 days")
    stage.emit("n", {"n": 1})
    await stage.fire()
    stage.emit("n", {"n": 2})
    stage.store.skip("6 days")
    stage.emit("n", {"n": 3})
    await stage.fire()
    assert sorted(x["n"] for x in stage.inputs("report")) == [1, 2, 3]


async def test_a_payload_that_does_not_fit_leaves_a_note_and_stops_nobody(stage: Looking) -> None:
    """The note names the event and the fault; the next event starts its run."""
    await stage.triggers.set("ship", ["order.paid"])
    for payload in ({"number": 1}, [1], {"order_id": 3}):
        stage.emit("order.paid", payload)
    await stage.fire()
    assert [x["order_id"] for x in stage.inputs("ship")] == [3]
    first, second = sorted(stage.notes("ship", "payload"))
    assert "order.paid" in first
    assert "missing 'order_id'" in first
    assert "not a JSON object but array" in second


async def test_values_keep_their_text_on_the_way_to_the_input(stage: Looking) -> None:
    """Numbers that no float holds arrive as they were emitted."""
    await stage.triggers.set("report", ["n"])
    stage.store.run("""select durable.emit('n', '{"big": 123456789012345678901234567890, "small": 1e-400}')""")
    await stage.fire()
    text = stage.store.value("select input::text from durable.run where workflow = 'report'")
    assert '"big" : 123456789012345678901234567890' in text
    assert '"small" : 1e-400' in text


async def test_the_triggers_own_inputs_stand_below_the_payload(stage: Looking) -> None:
    """Fixed inputs fill what the payload leaves open."""
    await stage.triggers.set("ship", ["paid"], inputs={"rush": True, "order_id": 0})
    stage.emit("paid", {"order_id": 5})
    await stage.fire()
    assert stage.inputs("ship") == [{"event_name": "paid", "rush": True, "order_id": 5}]


async def test_an_event_of_an_open_transaction_counts_when_it_commits(stage: Looking) -> None:
    """The run exists if and only if the emitter's own transaction does."""
    await stage.triggers.set("report", ["paid"])
    with Store(stage.store.dsn) as other:
        with other.connection.transaction(force_rollback=True):
            other.emit("paid", {"n": 1})
        with other.connection.transaction():
            other.emit("paid", {"n": 2})
            await stage.fire()
            assert stage.inputs("report") == []
    await stage.fire()
    assert [x["n"] for x in stage.inputs("report")] == [2]


async def test_any_per_interval_starts_one_run_with_the_interval(stage: Looking) -> None:
    """The first event of the day; the others are counted beside it."""
    await stage.triggers.set("report", ["a", "b"], per="@daily", timezone="Europe/Berlin")
    stage.set_clock("2026-06-01 12:00Z")
    for name in ("a", "b", "a"):
        stage.emit(name, {"name": name})
        await stage.fire()
    [given] = stage.inputs("report")
    assert given["name"] == "a"
    assert (given["data_interval_start"], given["data_interval_end"]) == (
        "2026-05-31T22:00:00Z",
        "2026-06-01T22:00:00Z",
    )
    assert given["ds"] == "2026-05-31T22:00:00Z"
    [run] = await stage.triggers.runs("report")
    assert (len(run.events), run.surplus) == (1, 2)


async def test_all_per_interval_waits_for_the_last_name(stage: Looking) -> None:
    """Each payload stands under its name; the next interval begins anew."""
    await stage.triggers.set("report", ["users.*", "orders.done"], mode="all", per="@hourly")
    stage.set_clock("2026-06-01 12:10Z")
    stage.emit("users.eu", {"n": 1})
    stage.emit("users.us", {"n": 2})
    await stage.fire()
    assert stage.inputs("report") == []
    stage.store.skip("10 minutes")
    stage.emit("orders.done", {"n": 3})
    await stage.fire()
    stage.store.skip("1 hour")
    stage.emit("orders.done", {"n": 4})
    await stage.fire()
    [given] = stage.inputs("report")
    assert given["events"] == {"users.*": {"n": 1}, "orders.done": {"n": 3}}
    assert given["data_interval_end"] == "2026-06-01T13:00:00Z"


async def test_an_interval_that_stays_incomplete_leaves_a_note(stage: Looking) -> None:
    """Once it is over for longer than the grace, the note says which name was missing, and nothing waits any more."""
    await stage.triggers.set("report", ["a", "b"], mode="all", per="@hourly")
    stage.set_clock("2026-06-01 12:10Z")
    stage.emit("a")
    await stage.fire()
    due = await TriggerLooks().next_at(stage.connection)
    assert due is not None
    assert due.isoformat() == "2026-06-01T13:01:00+00:00"
    stage.set_clock("2026-06-01 13:02Z")
    assert await stage.fire() == 1
    assert stage.notes("report", "incomplete") == [
        "no run for the interval until 2026-06-01T13:00:00Z: it had no event b"
    ]
    [trigger] = await stage.triggers.list()
    assert trigger.waiting == 0
    assert await TriggerLooks().next_at(stage.connection) is None


async def test_all_without_an_interval_pairs_the_oldest(stage: Looking) -> None:
    """The first payment meets the first parcel, however far apart they come."""
    await stage.triggers.set("report", ["paid", "packed"], mode="all")
    for number in (1, 2, 3):
        stage.emit("paid", number)
    await stage.fire()
    for number in (1, 2):
        stage.emit("packed", number)
        await stage.fire()
    assert [x["events"] for x in stage.inputs("report")] == [{"paid": n, "packed": n} for n in (1, 2)]
    [trigger] = await stage.triggers.list()
    assert trigger.waiting == 1


async def test_many_events_become_one_run_each_with_schedulers_beside_each_other(stage: Looking) -> None:
    """Three schedulers and a worker work on a thousand events at the same time; each event is one run."""
    await stage.triggers.set("report", ["n"])
    for number in range(1200):
        stage.emit("n", {"n": number})

    async def schedule() -> None:
        async with await psycopg.AsyncConnection.connect(stage.store.dsn, autocommit=True) as connection:
            async with asyncio.timeout(60):
                while stage.store.value("select count(*) from durable.trigger_run") < 1200:
                    await look_at_all(TriggerLooks(), connection)

    async def work() -> None:
        while stage.worker.apply(limit=100).more:
            await asyncio.to_thread(lambda: None)

    await asyncio.gather(work(), schedule(), schedule(), schedule())
    assert sorted(x["n"] for x in stage.inputs("report")) == list(range(1200))


async def test_a_scheduler_that_dies_before_its_commit_leaves_everything_as_it_was(stage: Looking) -> None:
    """Its backend is ended inside the look; the next look makes the run, once."""
    await stage.triggers.set("report", ["n"])
    stage.emit("n", {"n": 1})
    stage.pass_on()
    async with await psycopg.AsyncConnection.connect(stage.store.dsn) as doomed:
        # A transaction around the look, so that it stays open behind it.
        await doomed.execute("select")
        looks = TriggerLooks()
        assert await looks.run_once(doomed) == 1
        assert await look_at_all(looks, stage.connection) == 0
        stage.store.run("select pg_terminate_backend(%s)", doomed.info.backend_pid)
        with pytest.raises(psycopg.OperationalError):
            await doomed.commit()
    assert stage.inputs("report") == []
    await stage.fire()
    assert len(stage.inputs("report")) == 1


async def test_a_changed_trigger_keeps_what_waits_and_still_fits(stage: Looking) -> None:
    """Names that are gone give up their events, with a note; the others complete as before."""
    await stage.triggers.set("report", ["a", "b", "c"], mode="all")
    stage.emit("a", 1)
    stage.emit("c", 1)
    await stage.fire()
    assert await stage.triggers.set("report", ["a", "b"], mode="all")
    assert not await stage.triggers.set("report", ["a", "b"], mode="all")
    stage.emit("b", 2)
    await stage.fire()
    assert [x["events"] for x in stage.inputs("report")] == [{"a": 1, "b": 2}]
    assert stage.notes("report", "trigger")[-1] == "starts on all a, b; 1 events that waited no longer fit"


async def test_a_paused_trigger_starts_nothing_and_says_what_it_skipped(stage: Looking) -> None:
    """Events of the pause are skipped with a note, or made up for when asked."""
    await stage.triggers.set("report", ["n"])
    await stage.triggers.pause("report", by="ann", note="migration")
    stage.emit("n", {"n": 1})
    await stage.fire()
    assert await stage.triggers.unpause("report", by="ann") == 1
    await stage.triggers.pause("report")
    stage.emit("n", {"n": 2})
    await stage.fire()
    assert await stage.triggers.unpause("report", keep=True) == 0
    await stage.fire()
    assert [x["n"] for x in stage.inputs("report")] == [2]
    assert stage.notes("report", "trigger unpaused")[0] == "1 events that came meanwhile are skipped"


async def test_a_removed_trigger_starts_nothing(stage: Looking) -> None:
    """Nor does what waited for it."""
    await stage.triggers.set("report", ["a", "b"], mode="all")
    stage.emit("a")
    await stage.fire()
    assert await stage.triggers.remove("report")
    assert not await stage.triggers.remove("report")
    stage.emit("b")
    await stage.fire()
    assert stage.inputs("report") == []


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ({"events": []}, "events"),
        ({"events": ["a", "a"]}, "twice"),
        ({"events": ["a"], "mode": "some"}, "mode"),
        ({"events": ["a"], "per": "61 * * * *"}, "per"),
        ({"events": ["a"], "per": "@once"}, "no data intervals"),
        ({"events": ["a"], "timezone": "Mars/Base"}, "timezone"),
        ({"events": ["a"], "queue": "q", "workflow": "nobody"}, "unknown workflow"),
        ({"events": ["a", "b"], "mode": "all", "workflow": "ship"}, "missing 'order_id'"),
        ({"events": ["a", "b"], "mode": "all", "inputs": {"order_id": 1, "x": 2}, "workflow": "ship"}, "unknown 'x'"),
    ],
)
async def test_a_wrong_trigger_is_refused_with_the_field(stage: Looking, what: dict[str, object], says: str) -> None:
    """The message names the field, and nothing is stored."""
    with pytest.raises(Refused, match=says):
        await stage.triggers.set(**{"workflow": "report", **what})  # type: ignore[arg-type]
    assert await stage.triggers.list() == []


async def test_a_trigger_that_cannot_be_looked_at_is_paused_and_stops_no_other(stage: Looking) -> None:
    """SQL can set what the client refuses; it is found out by the first look."""
    stage.store.run("select durable.set_trigger('report', '{n}', _per => 'never')")
    await stage.triggers.set("ship", ["n"])
    stage.emit("n", {"order_id": 1})
    await stage.fire()
    broken, works = await stage.triggers.list()
    assert (broken.workflow, broken.paused, works.paused) == ("report", True, False)
    assert len(stage.inputs("ship")) == 1
    assert len(stage.notes("report", "trigger paused")) == 1


async def test_workflows_clients_and_psql_start_runs_alike(durable_dsn: str) -> None:
    """An event emitted by a workflow, through the client and by SQL: one run each, that really runs."""

    @workflow
    async def source(ctx: DurableContext, n: int) -> None:
        await ctx.emit_event("made", {"n": n})

    @workflow
    async def sink(ctx: DurableContext, n: int) -> int:
        return n

    async with Durable(durable_dsn, workflows=[source, sink]) as client, looking(durable_dsn) as stage:
        worker = Worker(durable_dsn, [source, sink], settings=Settings())
        running = asyncio.create_task(worker.run())
        await worker.ready()
        await stage.triggers.set("sink", ["made"])
        await client.result(await client.start(source, 1), timeout=30)
        await client.emit("made", {"n": 2})
        stage.emit("made", {"n": 3})
        async with asyncio.timeout(30):
            while len(ended := await client.runs(workflow="sink", state="succeeded")) < 3:
                await look_at_all(TriggerLooks(), stage.connection)
                await asyncio.sleep(0.01)
        assert sorted(run.result for run in ended) == [1, 2, 3]
        worker.stop()
        await running


async def test_a_look_reads_by_keys(stage: Looking) -> None:
    """Finding triggers that have something to do touches no event that already waits."""
    await stage.triggers.set("report", ["a", "b"], mode="all")
    stage.store.run(
        "insert into durable.trigger_event select 'report', gen_random_uuid(), 'a', durable.now(), null, '{1}', false"
        " from generate_series(1, 5000)"
    )
    stage.store.run("analyze durable.trigger_event")
    before = reads(stage)
    assert await (await stage.connection.execute(DUE, (20,))).fetchall() == []
    assert reads(stage) - before < 100


def reads(stage: Looking) -> int:
    stage.store.run("select pg_stat_force_next_flush()")
    return int(
        stage.store.value(
            "select coalesce(sum(idx_tup_read), 0) from pg_stat_all_indexes where relname = 'trigger_event'"
        )
    )
