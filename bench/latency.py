"""W3 and W4: one thing at a time, from another process, with default settings."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

from bench.probe import Probe
from bench.process import worker
from bench.result import Result, percentile
from bench.stage import Stage
from bench.workloads import one_step, waiting
from durable import Durable

WARM_UP = 10


async def start_to_result(stage: Stage) -> AsyncIterator[Result]:
    """W3: start a workflow of one step here, have its result from the worker there."""
    async with stage.database() as dsn, worker(dsn), Durable(dsn) as durable, await Probe.open(dsn) as probe:
        took = []
        for number in range(WARM_UP + stage.sizes.latencies):
            if number == WARM_UP:
                transactions = await probe.transactions()
            began = time.perf_counter()
            await durable.result(await durable.start(one_step, number))
            took.append(time.perf_counter() - began)
        transactions = await probe.transactions() - transactions
    values = spread(took[WARM_UP:]) | {"commits/run": transactions / stage.sizes.latencies}
    yield Result("W3", "start to result, one step", values, "notify_ms")


async def emit_to_resumed(stage: Stage) -> AsyncIterator[Result]:
    """W4: emit here, and the workflow that was parked on it goes on there."""
    count = WARM_UP + stage.sizes.latencies
    async with stage.database() as dsn, worker(dsn), Durable(dsn) as durable, await Probe.open(dsn) as probe:
        runs = await durable.start_many(waiting, [{"event": f"w4/{number}"} for number in range(count)])
        await probe.parked(count)
        took, transactions = [], await probe.transactions()
        for number, run in enumerate(runs):
            began = time.time()
            await durable.emit(f"w4/{number}", number)
            took.append(await durable.result(run) - began)
        transactions = await probe.transactions() - transactions
    half = count // 2
    values = spread(took[WARM_UP:]) | {"commits/run": transactions / count}
    yield Result("W4", "emit to resumed, from memory or journal", values, "notify_ms")
    # The worker keeps the newest parked runs in memory and replays the others.
    yield Result("W4", "of these the oldest half", spread(took[:half]), "notify_ms")
    yield Result("W4", "of these the newest half", spread(took[half:]), "notify_ms")


def spread(seconds: list[float]) -> dict[str, float]:
    """Times as people compare them."""
    return {
        "p50 ms": percentile(seconds, 0.5) * 1000,
        "p90 ms": percentile(seconds, 0.9) * 1000,
        "p99 ms": percentile(seconds, 0.99) * 1000,
        "max ms": max(seconds) * 1000,
    }
