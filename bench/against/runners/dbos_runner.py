"""DBOS Transact, through its public decorators and client, with its own pool as large as it makes use of.

Its workflows can be coroutines or plain functions in threads; where many run at once both are tried and the better
counts. Queues are polled, so they are polled as often as is of use; messages come by LISTEN and NOTIFY, its default.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import play
from dbos import DBOS, DBOSClient, DBOSConfig

QUEUE = "measured"
OFTEN = 0.002
WARM_UP = 10
POOL = 20


async def steps(url: str, workflows: int, in_flight: int) -> dict[str, float]:
    """W1: the rate of steps with so many workflows in flight."""
    launch(url)
    as_coroutines = await timed(lambda: started_as_coroutines(workflows, in_flight))
    in_threads = await timed(lambda: asyncio.to_thread(started_in_threads, workflows, in_flight))
    DBOS.destroy()
    return {"steps/s": workflows * 10 / min(as_coroutines, in_threads)}


async def timed(act: Callable[[], Coroutine[Any, Any, None]]) -> float:
    began = time.perf_counter()
    await act()
    return time.perf_counter() - began


async def started_as_coroutines(workflows: int, in_flight: int) -> None:
    free = asyncio.Semaphore(in_flight)

    async def one() -> None:
        async with free:
            handle = await DBOS.start_workflow_async(ten_steps_async, 0)
            await handle.get_result()

    await asyncio.gather(*(one() for _ in range(workflows)))


def started_in_threads(workflows: int, in_flight: int) -> None:
    # A call of a workflow runs it in the thread of the caller, durably.
    with ThreadPoolExecutor(min(in_flight, workflows, 100)) as threads:
        list(threads.map(ten_steps, [0] * workflows))


async def start_to_result(url: str, count: int) -> dict[str, float]:
    """W3: enqueued by a client, run by another process that polls its queue often."""
    took = []
    with play.serving(url, "serve"):
        client = DBOSClient(system_database_url=url)
        for number in range(WARM_UP + count):
            began = time.perf_counter()
            enqueue(client, "one_step", number).get_result(polling_interval_sec=OFTEN)
            took.append(time.perf_counter() - began)
        client.destroy()
    return {"p50 ms": play.median(took[WARM_UP:]) * 1000}


async def emit_to_resumed(url: str, count: int) -> dict[str, float]:
    """W4: from before the send to the line after the receive."""
    count += WARM_UP
    took = []
    with play.serving(url, "serve"):
        client = DBOSClient(system_database_url=url)
        handles = [enqueue(client, "waiting") for _ in range(count)]
        for handle in handles:
            client.get_event(handle.get_workflow_id(), "waits")
        for number, handle in enumerate(handles):
            began = time.time()
            client.send(handle.get_workflow_id(), number, "w4")
            took.append(handle.get_result(polling_interval_sec=OFTEN) - began)
        client.destroy()
    return {"p50 ms": play.median(took[WARM_UP:]) * 1000}


async def resume(url: str, steps: int) -> dict[str, float]:
    """W5: a fresh process recovers a workflow with a long past."""
    with play.serving(url, "serve"):
        client = DBOSClient(system_database_url=url)
        handle = enqueue(client, "many_steps", steps)
        client.get_event(handle.get_workflow_id(), "waits", timeout_seconds=600)
    client.send(handle.get_workflow_id(), 1, "go on")
    with play.serving(url, "serve") as said:
        resumed = handle.get_result(polling_interval_sec=OFTEN)
    client.destroy()
    return {"ms from ready": (resumed - said["ready"]) * 1000}


async def fan_out(url: str, children: int) -> dict[str, float]:
    """W6: a parent that waits for each of its children."""
    with play.serving(url, "serve"):
        client = DBOSClient(system_database_url=url)
        seconds = min(
            time_of_family(client, "parent", children),
            time_of_family(client, "parent_async", children),
        )
        client.destroy()
    return {"seconds": seconds}


def time_of_family(client: DBOSClient, parent: str, children: int) -> float:
    began = time.perf_counter()
    found = enqueue(client, parent, children).get_result(polling_interval_sec=OFTEN)
    assert found == sum(range(children)), found
    return time.perf_counter() - began


async def serve(url: str) -> None:
    """A process that runs what is enqueued, and is gone like a killed one."""
    launch(url)
    await DBOS.register_queue_async(QUEUE, polling_interval_sec=OFTEN)
    play.say({"ready": time.time()})
    await play.input_ended()
    os._exit(0)


def launch(url: str) -> None:
    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": url,
        "sys_db_pool_size": POOL,
        "log_level": "ERROR",
    }
    DBOS(config=config)
    DBOS.launch()


def enqueue(client: DBOSClient, workflow: str, *given: Any) -> Any:
    return client.enqueue({"queue_name": QUEUE, "workflow_name": workflow}, *given)


@DBOS.step()
def add_one(number: int) -> int:
    return number + 1


@DBOS.step()
async def add_one_async(number: int) -> int:
    return number + 1


@DBOS.step()
def wall_clock() -> float:
    return time.time()


@DBOS.workflow(name="ten_steps")
def ten_steps(number: int) -> int:
    for _ in range(10):
        number = add_one(number)
    return number


@DBOS.workflow(name="ten_steps_async")
async def ten_steps_async(number: int) -> int:
    for _ in range(10):
        number = await add_one_async(number)
    return number


@DBOS.workflow(name="one_step")
def one_step(number: int) -> int:
    return add_one(number)


@DBOS.workflow(name="waiting")
def waiting() -> float:
    DBOS.set_event("waits", True)
    DBOS.recv("w4", timeout_seconds=600)
    return time.time()


@DBOS.workflow(name="many_steps")
def many_steps(steps: int) -> float:
    for number in range(steps):
        add_one(number)
    DBOS.set_event("waits", True)
    DBOS.recv("go on", timeout_seconds=600)
    return wall_clock()


@DBOS.workflow(name="child")
def child(number: int) -> int:
    return number


@DBOS.workflow(name="child_async")
async def child_async(number: int) -> int:
    return number


@DBOS.workflow(name="parent")
def parent(children: int) -> int:
    handles = [DBOS.start_workflow(child, number) for number in range(children)]
    return sum(handle.get_result() for handle in handles)


@DBOS.workflow(name="parent_async")
async def parent_async(children: int) -> int:
    handles = [await DBOS.start_workflow_async(child_async, number) for number in range(children)]
    return sum([await handle.get_result() for handle in handles])


PLAYS: dict[str, play.Play] = {
    "steps": steps,
    "start_to_result": start_to_result,
    "emit_to_resumed": emit_to_resumed,
    "resume": resume,
    "fan_out": fan_out,
    "serve": serve,
}

if __name__ == "__main__":
    play.main(PLAYS)
