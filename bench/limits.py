"""P0: what this server and this client can do at all, without any runtime in between.

Nothing here uses the runtime: only psycopg, one connection, plain tables.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from uuid import UUID, uuid4

import orjson
import psycopg

ROWS = 200

TABLES = """
create table if not exists bare_rows (
  run_id uuid not null, task_id uuid not null, pos int not null, epoch int not null, kind text not null,
  name text not null, body json, at timestamptz not null, primary key (run_id, task_id, pos));
create table if not exists bare_commits (id uuid primary key, body json not null)
"""
VALUES = "insert into bare_rows values " + ",".join(["(%s, %s, %s, 1, 'step', 'a_step', '1', now())"] * ROWS)
RECORDS = """
insert into bare_rows select r, r, p, 1, k, n, b, now()
from json_to_recordset(%s::json) as x (r uuid, p int, k text, n text, b json)
"""
COMMIT = "insert into bare_commits values (%s, '1')"


@dataclass(frozen=True)
class Limits:
    """The bare limits of one moment."""

    rows_per_s: float
    rows_as_values_per_s: float
    rows_as_json_per_s: float
    commits_per_s: float
    notify_ms: float

    @property
    def commit_ms(self) -> float:
        return 1000 / self.commits_per_s

    def as_json(self) -> dict[str, float]:
        return asdict(self) | {"commit_ms": self.commit_ms}


async def measure(dsn: str, seconds: float) -> Limits:
    """The limits now; takes three times `seconds`, and a little."""
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute(TABLES)
        as_values = await _rows_as_values(connection, seconds / 2)
        as_json = await _rows_as_json(connection, seconds / 2)
        commits = await _rate(lambda: _insert_one(connection), seconds)
        await connection.execute("drop table bare_rows, bare_commits")
    notify = await _round_trip(dsn, seconds)
    return Limits(max(as_values, as_json), as_values, as_json, commits, notify)


def mean(measured: Sequence[Limits]) -> Limits:
    """What all of them come to: of rates the harmonic mean, because a rate of ours, too, is work by all of its time."""
    columns = {name: [getattr(each, name) for each in measured] for name in asdict(measured[0])}
    notify = statistics.fmean(columns.pop("notify_ms"))
    return Limits(notify_ms=notify, **{name: statistics.harmonic_mean(found) for name, found in columns.items()})


async def _rows_as_values(connection: psycopg.AsyncConnection, seconds: float) -> float:
    async def insert() -> None:
        run = uuid4()
        params: list[UUID | int] = [value for pos in range(ROWS) for value in (run, run, pos)]
        await connection.execute(VALUES, params, prepare=True)

    return await _rate(insert, seconds) * ROWS


async def _rows_as_json(connection: psycopg.AsyncConnection, seconds: float) -> float:
    async def insert() -> None:
        run = str(uuid4())
        rows = [{"r": run, "p": pos, "k": "step", "n": "a_step", "b": 1} for pos in range(ROWS)]
        await connection.execute(RECORDS, (orjson.dumps(rows).decode(),), prepare=True)

    return await _rate(insert, seconds) * ROWS


async def _insert_one(connection: psycopg.AsyncConnection) -> None:
    await connection.execute(COMMIT, (uuid4(),), prepare=True)


async def _rate(act: Callable[[], Awaitable[None]], seconds: float) -> float:
    """How often per second it can be done, one after the other."""
    await act()
    began, count = time.perf_counter(), 0
    while (passed := time.perf_counter() - began) < seconds or count == 0:
        await act()
        count += 1
    return count / passed


async def _round_trip(dsn: str, seconds: float) -> float:
    """The median of a NOTIFY from one connection to another and its answer, in milliseconds."""
    here = await psycopg.AsyncConnection.connect(dsn, autocommit=True)
    there = await psycopg.AsyncConnection.connect(dsn, autocommit=True)
    async with here, there:
        await here.execute("listen bare_answer")
        await there.execute("listen bare_question")
        answering = asyncio.create_task(_answer(there))
        trips: list[float] = []
        answers = here.notifies()
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or not trips:
            began = time.perf_counter()
            await answers.aclose()
            await here.execute("notify bare_question")
            answers = here.notifies()
            await anext(answers)
            trips.append(time.perf_counter() - began)
        await answers.aclose()
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)
    return statistics.median(trips) * 1000


async def _answer(connection: psycopg.AsyncConnection) -> None:
    while True:
        questions = connection.notifies()
        await anext(questions)
        await questions.aclose()
        await connection.execute("notify bare_answer")
