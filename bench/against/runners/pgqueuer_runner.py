"""PgQueuer on asyncpg, as its own documentation sets it up, with its tables logged.

How many jobs it takes at once decides its rate, so several sizes are tried and the best of each counts.
"""

from __future__ import annotations

import time
from datetime import timedelta

import asyncpg
import play
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode

BATCHES = (1_000, 5_000)
TAKEN_AT_ONCE = (200, 500, 1_000)


async def queue(url: str, tasks: int) -> dict[str, float]:
    """W2: the best rates of enqueueing in bulk, and of draining."""
    await install(url)
    enqueued, drained = [], []
    for batch in BATCHES:
        enqueued.append(tasks / await enqueue(url, tasks, batch))
        await empty(url)
    for size in TAKEN_AT_ONCE:
        await enqueue(url, tasks, BATCHES[0])
        drained.append(tasks / await drain(url, tasks, size))
        await empty(url)
    return {"enqueued/s": max(enqueued), "drained/s": max(drained)}


async def install(url: str) -> None:
    connection = await asyncpg.connect(url)
    await Queries(AsyncpgDriver(connection)).install()
    await connection.close()


async def enqueue(url: str, tasks: int, batch: int) -> float:
    """The seconds it took."""
    connection = await asyncpg.connect(url)
    queries = Queries(AsyncpgDriver(connection))
    await queries.enqueue(["trivial"], [None], [0])
    began = time.perf_counter()
    for first in range(0, tasks, batch):
        size = min(batch, tasks - first)
        await queries.enqueue(["trivial"] * size, [b"0"] * size, [0] * size)
    seconds = time.perf_counter() - began
    await connection.close()
    return seconds


async def empty(url: str) -> None:
    """The next try finds tables as fresh as the first one did."""
    connection = await asyncpg.connect(url)
    queries = Queries(AsyncpgDriver(connection))
    await queries.clear_queue()
    await queries.clear_queue_log()
    await connection.close()


async def drain(url: str, tasks: int, size: int) -> float:
    """Until the last job has been run, by one process with a pool of connections."""
    done: list[float] = []
    async with asyncpg.create_pool(url, min_size=4, max_size=4) as pool:
        pgq = PgQueuer(AsyncpgPoolDriver(pool))

        @pgq.entrypoint("trivial")
        async def trivial(job: Job) -> None:
            done.append(time.perf_counter())

        began = time.perf_counter()
        await pgq.qm.run(batch_size=size, mode=QueueExecutionMode.drain, dequeue_timeout=timedelta(seconds=0.1))
    assert len(done) >= tasks, (len(done), tasks)
    return done[-1] - began


PLAYS: dict[str, play.Play] = {"queue": queue}

if __name__ == "__main__":
    play.main(PLAYS)
