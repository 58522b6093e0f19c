"""Absurd (absurd-sdk, on the schema that absurdctl carries), through its public clients.

Its Python client has one connection and one statement at a time on it, so one process is fastest with several clients:
as coroutines where many tasks are in flight, as threads where few are. Both are tried, and the better one counts.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import absurdctl
import play
import psycopg
from absurd_sdk import Absurd, AsyncAbsurd, AsyncTaskContext, TaskContext

QUEUE, CHILDREN = "default", "children"
CLIENTS = 8
OFTEN = 0.002
# Clients that have nothing left to claim must not take the machine from those that work.
SELDOM = 0.05
WARM_UP = 10


async def steps(url: str, workflows: int, in_flight: int) -> dict[str, float]:
    """W1: the rate of steps with so many tasks in flight."""
    install(url)
    spawn_many(url, "ten_steps", workflows)
    return {"steps/s": workflows * 10 / await drained(url, "ten_steps", workflows, in_flight)}


async def queue(url: str, tasks: int) -> dict[str, float]:
    """W2: the rates of spawning in transactions of a thousand, and of draining."""
    install(url)
    seconds = spawn_many(url, "trivial", tasks)
    return {"enqueued/s": tasks / seconds, "drained/s": tasks / await drained(url, "trivial", tasks, 500)}


async def drained(url: str, name: str, tasks: int, in_flight: int) -> float:
    """The seconds of the faster way: the first has the tasks that are there, the second as many new ones."""
    as_coroutines = await drained_by_coroutines(url, name, tasks, in_flight)
    spawn_many(url, name, tasks)
    return min(as_coroutines, drained_by_threads(url, name, tasks, in_flight))


async def drained_by_coroutines(url: str, name: str, tasks: int, in_flight: int) -> float:
    count = min(CLIENTS, in_flight)
    async with AsyncExitStack() as stack:
        connect = psycopg.AsyncConnection.connect
        clients = [
            AsyncAbsurd(await stack.enter_async_context(await connect(url, autocommit=True))) for _ in range(count)
        ]
        left = Countdown(tasks, clients)
        for client in clients:
            client.register_task(name)(left.counted_async(ASYNC[name]))
        began = time.perf_counter()
        each = -(-in_flight // count)
        await asyncio.gather(*(client.start_worker(concurrency=each, poll_interval=SELDOM) for client in clients))
        return time.perf_counter() - began


def drained_by_threads(url: str, name: str, tasks: int, in_flight: int) -> float:
    clients = [Absurd(url) for _ in range(min(CLIENTS, in_flight))]
    left = Countdown(tasks, clients)
    for client in clients:
        client.register_task(name)(left.counted(SYNC[name]))
    threads = [threading.Thread(target=client.start_worker, kwargs={"poll_interval": SELDOM}) for client in clients]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    for client in clients:
        client.close()
    return seconds


class Countdown:
    """Stops the workers when the last task has been run: they still write its end, and then return."""

    def __init__(self, tasks: int, clients: list[Any]):
        self._left = tasks
        self._clients = clients
        self._lock = threading.Lock()

    def counted(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        def counting(params: Any, ctx: TaskContext) -> Any:
            result = handler(params, ctx)
            self._one_less()
            return result

        return counting

    def counted_async(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        async def counting(params: Any, ctx: AsyncTaskContext) -> Any:
            result = await handler(params, ctx)
            self._one_less()
            return result

        return counting

    def _one_less(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left == 0:
                for client in self._clients:
                    client.stop_worker()


async def start_to_result(url: str, count: int, poll: float | None = None) -> dict[str, float]:
    """W3: polled so often by worker and client, or as both poll by default."""
    install(url)
    took = []
    with play.serving(url, "serve", poll=poll):
        client = Absurd(url)
        for number in range(WARM_UP + count):
            began = time.perf_counter()
            spawned = client.spawn("one_step", {"number": number}, queue=QUEUE)
            result_of(client, spawned["task_id"], poll)
            took.append(time.perf_counter() - began)
        client.close()
    return {"p50 ms": play.median(took[WARM_UP:]) * 1000}


async def emit_to_resumed(url: str, count: int, poll: float | None = None) -> dict[str, float]:
    """W4: from before the emit to the line after the wait."""
    install(url)
    count += WARM_UP
    took = []
    with play.serving(url, "serve", poll=poll):
        client = Absurd(url)
        tasks = [client.spawn("waiting", {"event": f"w4/{number}"}, queue=QUEUE)["task_id"] for number in range(count)]
        asleep(client, tasks)
        for number, task in enumerate(tasks):
            began = time.time()
            client.emit_event(f"w4/{number}", number)
            took.append(result_of(client, task, poll) - began)
        client.close()
    return {"p50 ms": play.median(took[WARM_UP:]) * 1000}


async def resume(url: str, steps: int) -> dict[str, float]:
    """W5: a fresh worker takes over a task with a long past."""
    install(url)
    client = Absurd(url)
    task = client.spawn("many_steps", {"steps": steps}, queue=QUEUE)["task_id"]
    with play.serving(url, "serve", poll=OFTEN):
        asleep(client, [task])
    client.emit_event("go on", 1)
    with play.serving(url, "serve", poll=OFTEN) as said:
        resumed = result_of(client, task, OFTEN)
    with psycopg.connect(url) as connection:
        query = "select extract(epoch from max(started_at)) from absurd.r_default where task_id = %s"
        row = connection.execute(query, (task,)).fetchone()
    client.close()
    assert row is not None
    return {"ms from claim": (resumed - float(row[0])) * 1000, "ms from ready": (resumed - said["ready"]) * 1000}


async def fan_out(url: str, children: int) -> dict[str, float]:
    """W6: a parent that waits for each of its children."""
    install(url)
    client = Absurd(url)
    with play.serving(url, "serve_family"):
        for number in (10, children):
            began = time.perf_counter()
            parent = client.spawn("parent", {"children": number}, queue=QUEUE)["task_id"]
            assert result_of(client, parent, OFTEN) == number
            seconds = time.perf_counter() - began
    client.close()
    return {"seconds": seconds}


async def serve(url: str, poll: float | None) -> None:
    """A worker for one thing at a time."""
    client = Absurd(url)
    for name, handler in SYNC.items():
        client.register_task(name)(handler)
    given = {} if poll is None else {"poll_interval": poll}
    worker = threading.Thread(target=client.start_worker, kwargs=given)
    play.say({"ready": time.time()})
    worker.start()
    await play.input_ended()
    client.stop_worker()
    worker.join()
    client.close()


async def serve_family(url: str) -> None:
    """One client for parents, the others for children: a parent may not wait on its own queue."""
    own = AsyncAbsurd(url, queue_name=QUEUE)
    own.register_task("parent")(parent_of(url))
    clients = [AsyncAbsurd(url, queue_name=CHILDREN) for _ in range(CLIENTS)]
    for client in clients:
        client.register_task("child")(trivial_async)
    workers = [asyncio.create_task(own.start_worker(poll_interval=OFTEN))]
    workers += [asyncio.create_task(client.start_worker(concurrency=60, poll_interval=SELDOM)) for client in clients]
    play.say({"ready": time.time()})
    await play.input_ended()
    for client in (own, *clients):
        client.stop_worker()
    await asyncio.gather(*workers)


def parent_of(url: str) -> Callable[..., Any]:
    async def parent(params: Any, ctx: AsyncTaskContext) -> int:
        async def spawn() -> list[str]:
            async with await psycopg.AsyncConnection.connect(url) as connection:
                client = AsyncAbsurd(connection, queue_name=CHILDREN)
                spawned = [
                    await client.spawn("child", {"number": number}, queue=CHILDREN)
                    for number in range(params["children"])
                ]
            return [str(child["task_id"]) for child in spawned]

        tasks = await ctx.step("spawn", spawn)
        ended = [await ctx.await_task_result(task, queue_name=CHILDREN) for task in tasks]
        return sum(child.state == "completed" for child in ended)

    return parent


def install(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(absurdctl.BUNDLED_SCHEMA_SQL)
        client = Absurd(connection)
        client.create_queue(QUEUE)
        client.create_queue(CHILDREN)


def spawn_many(url: str, name: str, count: int, batch: int = 1_000) -> float:
    """The seconds it took."""
    with psycopg.connect(url, autocommit=True) as connection:
        client = Absurd(connection)
        began = time.perf_counter()
        for first in range(0, count, batch):
            with connection.transaction():
                for _ in range(first, min(first + batch, count)):
                    client.spawn(name, {"number": 0}, queue=QUEUE)
        return time.perf_counter() - began


def result_of(client: Absurd, task: str, poll: float | None) -> Any:
    if poll is None:
        return client.await_task_result(task).result
    while (found := client.fetch_task_result(task)) is None or found.state not in ("completed", "failed"):
        time.sleep(poll)
    assert found.state == "completed", found
    return found.result


def asleep(client: Absurd, tasks: list[str]) -> None:
    """Return when all of them wait."""
    for task in tasks:
        while (found := client.fetch_task_result(task)) is None or found.state != "sleeping":
            time.sleep(OFTEN)


def ten_steps(params: Any, ctx: TaskContext) -> int:
    number = params["number"]
    for _ in range(10):
        number = ctx.step("add_one", lambda number=number: number + 1)
    return number


async def ten_steps_async(params: Any, ctx: AsyncTaskContext) -> int:
    number = params["number"]
    for _ in range(10):
        number = await ctx.step("add_one", adding_one(number))
    return number


def adding_one(number: int) -> Callable[[], Any]:
    async def add_one() -> int:
        return number + 1

    return add_one


def one_step(params: Any, ctx: TaskContext) -> int:
    return ctx.step("add_one", lambda: params["number"] + 1)


def waiting(params: Any, ctx: TaskContext) -> float:
    ctx.await_event(params["event"])
    return time.time()


def many_steps(params: Any, ctx: TaskContext) -> float:
    for number in range(params["steps"]):
        ctx.step(f"step {number}", lambda number=number: number + 1)
    ctx.await_event("go on")
    return ctx.step("wall_clock", time.time)


def trivial(params: Any, ctx: TaskContext) -> int:
    return params["number"]


async def trivial_async(params: Any, ctx: AsyncTaskContext) -> int:
    return params["number"]


SYNC = {
    "ten_steps": ten_steps,
    "one_step": one_step,
    "waiting": waiting,
    "many_steps": many_steps,
    "trivial": trivial,
}
ASYNC = {"ten_steps": ten_steps_async, "trivial": trivial_async}
PLAYS: dict[str, play.Play] = {
    "steps": steps,
    "queue": queue,
    "start_to_result": start_to_result,
    "emit_to_resumed": emit_to_resumed,
    "resume": resume,
    "fan_out": fan_out,
    "serve": serve,
    "serve_family": serve_family,
}

if __name__ == "__main__":
    play.main(PLAYS)
