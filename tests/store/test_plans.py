"""Plans: what a transition costs depends on what it moves, never on what the tables hold or statistics say."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from durable.claims import Claimed
from durable.ids import uuid7
from durable.testing.databases import Databases
from durable.testing.protocol import Answer, HandWorker, Passed, Store, wait_row

MANY = 100_000
BATCH = 10
# Pages that one more level of each index, or a full leaf page, may cost a batch of ten.
SLACK = 150

HISTORY = """
    with n as (
      select ('01000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid as id from generate_series(1, %(count)s) n
    ), t as (
      insert into durable.task (task_id, run_id, line, state, prio, epoch, ready_at, created_at, finished_at, input)
      select n.id, n.id, %(line)s, %(state)s, 5, 1, now(), now(), %(finished)s, '{}' from n)
    insert into durable.journal (run_id, task_id, pos, epoch, kind, name, at)
    select n.id, n.id, 0, 1, 'step', 'charge', now() from n
"""
HELD_ONCE = """
    insert into durable.held (task_id, worker_id, epoch, claimed_at)
    select gen_random_uuid(), %s, 1, now() from generate_series(1, %s)
"""
FILLS = {"all finished": ("succeeded", "2020-01-01"), "all ready": ("active", None), "all parked": ("parked", None)}


def fill(store: Store, kind: str) -> None:
    """So many tasks of one kind, and statistics that say so."""
    store.connection.execute(HISTORY, history(store, kind))
    if kind == "all ready":
        store.run("insert into durable.ready select line, 9, ready_at, task_id, 0 from durable.task")
    if kind == "all parked":
        store.run("insert into durable.timer select now() + interval '1 year', task_id from durable.task")
        store.run("insert into durable.wait (run_id, task_id, key, name, step)"
                  " select run_id, task_id, 'w', 'never', 's' from durable.task")  # fmt: skip
    store.run("analyze")


def history(store: Store, kind: str) -> dict[str, Any]:
    state, finished = FILLS[kind]
    return {"line": store.lines[0], "state": state, "finished": finished, "count": MANY}


class Measured:
    """A worker whose calls are explained: how many pages each one touched."""

    def __init__(self, store: Store):
        self.store = store
        self.worker = store.worker()

    def pages(self, call: Callable[[HandWorker], Any]) -> int:
        """Pages that a call touches, after plans had time to become generic ones."""
        touched: list[int] = []
        spy = self.worker.on(Explaining(self.store, touched))
        call(spy)
        return touched[-1]


class Explaining(Store):
    """A session that explains each call instead of answering it."""

    def __init__(self, store: Store, touched: list[int]):
        self.dsn, self.connection, self._lines = store.dsn, store.connection, store._lines
        self._plain = store
        self._touched = touched

    def value(self, sql: str, *params: Any) -> Any:
        self._touched.append(pages_of(self._plain, sql, *params))
        return [None] * (len(Passed._fields) if "durable.pass" in sql else len(Answer._fields))


def held(store: Store, worker: HandWorker) -> list[Claimed]:
    return [Claimed(*row) for row in store.value("select durable.held_by(%s)", worker.id)]


def ends(tasks: list[Claimed]) -> list[dict[str, Any]]:
    return [{"t": task.task_id, "e": task.epoch, "s": "succeeded", "r": 1, "m": True} for task in tasks]


def costs(store: Store) -> dict[str, int]:
    """Pages touched by a batch of each transition, the cheapest of some rounds (the first ones plan)."""
    measured = Measured(store)
    rounds = [one_round(store, measured) for _ in range(8)]
    return {name: min(cost[name] for cost in rounds[2:]) for name in rounds[0]}


def one_round(store: Store, measured: Measured) -> dict[str, int]:
    """Start ten runs, claim, record, park with a wait, wake by an event, end."""
    store.start_many("order", BATCH, prio=1)
    pages = {"claim": measured.pages(lambda w: w.flush(claim=BATCH))}
    tasks = held(store, measured.worker)
    assert len(tasks) == BATCH
    rows = [{"t": t.task_id, "p": 0, "e": t.epoch, "k": "step", "n": "charge", "b": 1} for t in tasks]
    pages["record"] = measured.pages(lambda w: w.flush(journal=rows))
    name = f"event {uuid7()}"
    parks = [{"t": task.task_id, "e": task.epoch, "w": task.wakes, "u": 4e9} for task in tasks]
    waits = [wait_row(task, "w", name) for task in tasks]
    pages["park"] = measured.pages(lambda w: w.flush(parks=parks, effects={"waits": waits}))
    measured.worker.apply()
    store.emit(name)
    pages["pass"] = measured.pages(lambda w: w.apply(claim=BATCH))
    tasks = held(store, measured.worker)
    assert len(tasks) == BATCH
    pages["end"] = measured.pages(lambda w: w.flush(ends=ends(tasks)))
    return pages


@contextmanager
def fresh_store(databases: Databases) -> Iterator[Store]:
    dsn = databases.create()
    with Store(dsn) as store:
        store.register("order")
        yield store
    databases.drop(dsn)


@pytest.fixture(scope="module")
def on_empty(durable_databases: Databases) -> dict[str, int]:
    """What each transition costs on tables that hold next to nothing."""
    with fresh_store(durable_databases) as store:
        store.run("analyze")
        return costs(store)


@pytest.fixture(scope="module")
def finished(durable_databases: Databases) -> Iterator[Store]:
    """A store with a hundred thousand finished runs."""
    with fresh_store(durable_databases) as store:
        fill(store, "all finished")
        yield store


@pytest.mark.parametrize("kind", list(FILLS))
def test_a_transition_costs_the_same_whatever_the_tables_hold(
    store: Store, on_empty: dict[str, int], kind: str
) -> None:
    """With a hundred thousand finished, ready or parked tasks, and statistics of just that, every access is by key
    and no table that grows is read from end to end."""
    fill(store, kind)
    with Store(store.dsn) as fresh:
        fresh.register("order")
        assert within(on_empty, costs(fresh)) == {}
    with Store(store.dsn) as fresh:
        fresh.register("order")
        assert [row for row in scans(fresh) if row[1] > BATCH] == []


def test_a_plan_made_on_empty_tables_is_good_for_full_ones(store: Store, on_empty: dict[str, int]) -> None:
    """A worker that began on an empty store keeps its cached plans while the tables grow."""
    store.run("analyze")
    costs(store)
    with Store(store.dsn) as other:
        other.register("order")
        fill(other, "all finished")
    assert within(on_empty, costs(store)) == {}


def test_a_plan_made_after_a_vacuum_of_empty_tables_is_good_for_full_ones(
    store: Store, on_empty: dict[str, int]
) -> None:
    """Statistics that say "nothing in here", as a vacuum leaves them of a queue that was empty just then, do not make
    a worker walk through what others run, wait for or have finished since."""
    for table in ("task", "held", "wait", "timer", "open_child", "ready", "signal"):
        store.run(f"alter table durable.{table} set (autovacuum_enabled = off)")
        store.run(f"vacuum durable.{table}")
    costs(store)
    with Store(store.dsn) as other:
        other.register("order")
        other.connection.execute(HISTORY, history(other, "all parked"))
        other.run(HELD_ONCE, uuid7(), MANY)
        other.run("insert into durable.wait (run_id, task_id, key, name, step)"
                  " select run_id, task_id, 'w', 'never', 's' from durable.task")  # fmt: skip
    assert within(on_empty, costs(store)) == {}


def test_a_worker_of_long_standing_pays_no_more_than_a_new_one(store: Store, on_empty: dict[str, int]) -> None:
    """What a worker held once, and no vacuum has taken away yet, is not looked at by its next park or end."""
    store.run("alter table durable.held set (autovacuum_enabled = off)")
    measured = Measured(store)
    for _ in range(8):
        one_round(store, measured)
    store.run(HELD_ONCE, measured.worker.id, MANY)
    store.run("delete from durable.held")
    rounds = [one_round(store, measured) for _ in range(3)]
    cost = {name: min(each[name] for each in rounds) for name in ("park", "end")}
    assert within({name: on_empty[name] for name in cost}, cost) == {}


def test_a_batch_of_retention_costs_the_same_at_any_size(store: Store, finished: Store) -> None:
    """Pruning ten of a hundred thousand old runs touches no more pages than pruning ten of fifty."""
    line = store.lines[0]
    store.connection.execute(HISTORY, {"line": line, "state": "succeeded", "finished": "2020-01-01", "count": 50})
    assert prune(finished) <= prune(store) * 2 + SLACK
    assert finished.value("select count(*) from durable.task") == MANY - 4 * BATCH


def prune(store: Store) -> int:
    """Pages touched by a batch of retention, the cheapest of some."""
    call = f"select * from durable.prune_runs(now() - interval '1 day', {BATCH})"
    return min(pages_of(store, call) for _ in range(4))


def test_reads_of_a_worker_go_by_key(finished: Store) -> None:
    """Journals, values, children, what a worker holds and the newest runs are read by their keys."""
    run = str(finished.value("select task_id from durable.task limit 1"))
    for call in (
        f"select durable.read_journal('{run}', '{run}')",
        f"select durable.read_values('{run}', array['x'])",
        f"select durable.read_children('{run}', '{run}', array['{run}']::uuid[])",
        f"select durable.held_by('{run}')",
        f"select * from durable.run where run_id = '{run}'",
        "select * from durable.run order by run_id desc limit 50",
    ):
        assert pages_of(finished, call) < 500, call


def pages_of(store: Store, call: str, *params: Any) -> int:
    """Pages that a call touches, with everything that it calls."""
    plan = store.value(f"explain (analyze, buffers, format json) {call}", *params)[0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def within(few: dict[str, int], many: dict[str, int]) -> dict[str, tuple[int, int]]:
    """Where the cost on full tables is out of proportion to the cost on empty ones."""
    return {name: (few[name], many[name]) for name in few if many[name] > few[name] * 2 + SLACK}


def scans(store: Store) -> list[tuple[Any, ...]]:
    """Tables that a life of ten tasks reads from end to end, with how many rows that were."""
    worker = store.worker()
    with store.connection.transaction():
        store.start_many("order", BATCH, prio=1)
        tasks = worker.claim(BATCH)
        worker.flush(
            journal=[{"t": t.task_id, "p": 0, "e": t.epoch, "k": "step", "n": "s", "b": 1} for t in tasks],
            effects={"waits": [wait_row(task, "w", "paid") for task in tasks]},
        )
        store.emit("paid")
        worker.apply()
        worker.flush(ends=ends(tasks))
        store.run("select durable.prune(now() - interval '30 days', 10)")
        return store.rows(
            "select relname, seq_tup_read from pg_stat_xact_user_tables where schemaname = 'durable' and seq_scan > 0"
        )
