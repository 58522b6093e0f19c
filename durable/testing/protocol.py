"""The store's protocol by hand: one SQL session, and a worker that does only what it is told.

For tests of the store itself, and as an example for whoever speaks the protocol from another language. Nothing here
waits, retries or decides.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import psycopg

from durable.claims import Claimed, best_first
from durable.ids import child_ids, group_start, uuid7
from durable.link import PLANNER

ALL_SHARDS = list(range(16))

Json = dict[str, Any]


class Store:
    """One session on a store, as psql would have it."""

    def __init__(self, dsn: str):
        self.dsn = dsn
        self.connection = psycopg.connect(dsn, autocommit=True, options=PLANNER)
        self._lines: dict[tuple[str, str], int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    # ---------------------------------------------------------------- statements

    def run(self, sql: str, *params: Any) -> None:
        self.connection.execute(sql, params or None)

    def rows(self, sql: str, *params: Any) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql, params or None).fetchall()

    def column(self, sql: str, *params: Any) -> list[Any]:
        return [row[0] for row in self.rows(sql, *params)]

    def value(self, sql: str, *params: Any) -> Any:
        """The first column of the first row."""
        return self.rows(sql, *params)[0][0]

    # ---------------------------------------------------------------- transitions

    def register(self, *names: str, queue: str = "default", **options: Any) -> int:
        """Register workflows with these options; the line of the first."""
        rows = self.rows(
            "select line, queue, workflow from durable.register(%s::json, %s)",
            json.dumps([{"name": name, **options} for name in names]), [queue],
        )  # fmt: skip
        self._lines |= {(of, name): line for line, of, name in rows}
        return self._lines[queue, names[0]]

    @property
    def lines(self) -> list[int]:
        """The lines that were registered here."""
        return list(self._lines.values())

    def start(self, workflow: str, queue: str = "default", **fields: Any) -> str:
        """Start a run by its row."""
        row = {"id": uuid7(), "line": self._lines[queue, workflow], **fields}
        self.run("select durable.start_runs(%s::json)", json.dumps([row]))
        return str(row["id"])

    def start_many(self, workflow: str, count: int, **fields: Any) -> list[str]:
        """Runs in bulk, with ids in their order."""
        line = self._lines["default", workflow]
        ids = child_ids(group_start(), count)
        self.run(
            "select durable.start_runs(%s::json)", json.dumps([{"id": run, "line": line, **fields} for run in ids])
        )
        return ids

    def spawn(self, workflow: str, **options: Any) -> str:
        """Start a run as SQL does: options by the names of the function's parameters."""
        named = "".join(f", _{name} => %({name})s" for name in options)
        cursor = self.connection.execute(f"select durable.spawn(%(workflow)s{named})::text".encode(),
                                         {"workflow": workflow, **options})  # fmt: skip
        return str((cursor.fetchone() or ("",))[0])

    def emit(self, name: str, payload: Any = None, key: str | None = None) -> str:
        return str(self.value("select durable.emit(%s, %s::json, %s)::text", name, json.dumps(payload), key))

    def skip(self, interval: str) -> None:
        self.run("select durable.skip_time(%s::interval)", interval)

    # ---------------------------------------------------------------- looking

    def state(self, task: str) -> str:
        """The state in a person's words: ready, running, parked, queued, delayed, or how it ended."""
        return str(self.value("select state from durable.branch where task_id = %s", task))

    def states(self, tasks: Sequence[str]) -> list[str]:
        return [self.state(task) for task in tasks]

    def worker(self, channels: int = 2) -> HandWorker:
        """A worker that was just enlisted."""
        return HandWorker(self, channels)


class Answer(NamedTuple):
    """What a flush answers, by position."""

    now: float
    claimed: list[Any] | None
    told: list[Any] | None
    refused: list[Any] | None
    met: list[Any] | None
    shards: list[int] | None
    lines: list[int] | None


class Passed(NamedTuple):
    """What a pass answers, by position."""

    now: float
    claimed: list[Any] | None
    told: list[Any] | None
    lines: list[int] | None
    more: bool
    signalled: list[int] | None
    next_timer: float | None
    others: list[str] | None  # workers that run tasks with news


class HandWorker:
    """A worker whose every call is written down in a test."""

    def __init__(self, store: Store, channels: int = 2):
        self.id = uuid7()
        self.store = store
        self._numbers = [itertools.count(1) for _ in range(channels)]
        store.run("select durable.enlist(%s, %s, '{}')", self.id, channels)

    def on(self, store: Store) -> HandWorker:
        """The same worker through another session."""
        other = object.__new__(HandWorker)
        other.id, other.store, other._numbers = self.id, store, self._numbers
        return other

    # ---------------------------------------------------------------- calls

    def flush(
        self,
        *,
        journal: list[Json] | None = None,
        ends: list[Json] | None = None,
        parks: list[Json] | None = None,
        effects: dict[str, list[Json]] | None = None,
        claim: int = 0,
        lines: Sequence[Json] | None = None,
        alone: bool = False,
        channel: int = 0,
        number: int | None = None,
    ) -> Answer | None:
        """One flush; None when it was applied before."""
        number = next(self._numbers[channel]) if number is None else number
        parts = [None if part is None else json.dumps(part) for part in (journal, ends, parks, effects)]
        answer = self.store.value(
            "select durable.flush(%s, %s, %s, %s::json, %s::json, %s::json, %s::json, %s, %s::json, %s)",
            self.id, channel, number, *parts, claim, self._from(lines), alone,
        )  # fmt: skip
        return None if answer is None else Answer(*answer)

    def apply(
        self,
        shards: Sequence[int] = ALL_SHARDS,
        *,
        timers: bool = True,
        claim: int = 0,
        alone: bool = False,
        channel: int = 1,
        limit: int = 500,
    ) -> Passed:
        """One pass."""
        answer = self.store.value(
            "select durable.pass(%s, %s, %s, %s, %s, %s, %s::json, %s, %s)",
            self.id, channel, next(self._numbers[channel]), list(shards), timers, claim, self._from(None), alone, limit,
        )  # fmt: skip
        return Passed(*answer)

    def _from(self, lines: Sequence[Json] | None) -> str:
        return json.dumps([{"line": line} for line in self.store.lines] if lines is None else list(lines))

    # ---------------------------------------------------------------- moves

    def claim(self, count: int = 1, lines: Sequence[Json] | None = None, *, alone: bool = False) -> list[Claimed]:
        answer = self.flush(claim=count, lines=lines, alone=alone)
        assert answer is not None
        return best_first(answer.claimed)

    def claim_one(self) -> Claimed:
        [task] = self.claim(1)
        return task

    def record(self, task: Claimed, pos: int, kind: str, name: str, body: Any = None, **effects: list[Json]) -> Answer:
        row = {"r": task.run_id, "t": task.task_id, "p": pos, "e": task.epoch, "k": kind, "n": name, "b": body}
        return self._answered(self.flush(journal=[row], effects=effects or None))

    def end(self, task: Claimed, state: str = "succeeded", result: Any = None, error: Json | None = None) -> Answer:
        if state != "succeeded" and error is None:
            error = {"type": "Boom", "message": "it failed"}
        end = {"t": task.task_id, "e": task.epoch, "s": state, "r": result, "x": error, "m": True}
        return self._answered(self.flush(ends=[end]))

    def park(
        self, task: Claimed, until: float | None = None, wakes: int | None = None, **effects: list[Json]
    ) -> Answer:
        """Park a task, until a time of the store at the latest, together with effects such as `waits`."""
        seen = task.wakes if wakes is None else wakes
        park = {"t": task.task_id, "e": task.epoch, "w": seen, "u": until}
        return self._answered(self.flush(parks=[park], effects=effects or None))

    def spawn(self, task: Claimed, workflow: str, count: int = 1, **fields: Any) -> list[str]:
        """Children of a running task."""
        line = self.store._lines["default", workflow]
        ids = child_ids(group_start(), count)
        base = {"run": task.run_id, "parent": task.task_id, "line": line, **fields}
        self.flush(effects={"spawns": [base | {"id": child} for child in ids]})
        return ids

    def bury(self, quarantine: int = 3) -> int:
        """Declare this worker dead."""
        beat = self.store.value("select beat from durable.worker where worker_id = %s", self.id)
        return int(self.store.value("select durable.bury(%s, %s, %s)", self.id, beat, quarantine))

    @staticmethod
    def _answered(answer: Answer | None) -> Answer:
        assert answer is not None, "the flush was applied before"
        return answer


def wait_row(task: Claimed, key: str, name: str | None = None, *, step: str | None = None, **more: Any) -> Json:
    """A wait of a task: for an event by its name, or for children by `mode` and `kids`."""
    return {"r": task.run_id, "t": task.task_id, "k": key, "n": name, "s": step or f"{task.task_id}/{key}", **more}
