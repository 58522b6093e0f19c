"""A worker that calls functions by name, as a plan's leaves do, and a server to send requests to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest

from durable import Durable, DurableContext, RetryPolicy, Settings, Worker, workflow
from interpreter.functions import AllowedFunctions

OFFERED = "tests.languages.tools.offered"


class Caller:
    """Calls one function in a run of its own."""

    def __init__(self, dsn: str, client: Durable):
        self.dsn = dsn
        self.client = client
        self.run_id = ""

    async def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """The result of a function, or `RunFailed`."""
        self.run_id = await self.client.start("caller", name=name, args=args, kwargs=kwargs)
        return await self.client.result(self.run_id, timeout=30)

    async def sql(self, text: str, *params: Any) -> list[Any]:
        async with await psycopg.AsyncConnection.connect(self.dsn, autocommit=True) as connection:
            cursor = await connection.execute(text, params or None)
            return await cursor.fetchall() if cursor.description else []


@pytest.fixture
async def caller(durable_dsn: str) -> AsyncIterator[Caller]:
    functions = AllowedFunctions([f"{OFFERED}.", "tools.shell", "tools.sql"])

    @workflow(name="caller")
    async def calls(ctx: DurableContext, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        fn = functions.resolve(name)
        retry = RetryPolicy(max_attempts=3, delay=0.0)
        perform = ctx.transaction if getattr(fn, "__durable_transaction__", False) else ctx.step
        return await perform(name, fn, *args, retry=retry, **kwargs)

    worker = Worker(durable_dsn, [calls], settings=Settings())
    working = asyncio.create_task(worker.run())
    await worker.ready()
    try:
        async with Durable(durable_dsn) as client:
            yield Caller(durable_dsn, client)
    finally:
        worker.stop()
        await working


class Server:
    """Answers every request with the next of its answers (the last one for ever), and keeps the requests."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.answers = ["HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"]
        self.url = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next((int(line[15:]) for line in head.lower().splitlines() if line.startswith("content-length:")), 0)
        self.requests.append(head + (await reader.readexactly(length)).decode())
        text = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        writer.write(text.encode())
        await writer.drain()
        writer.close()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    own = Server()
    listening = await asyncio.start_server(own.answer, "127.0.0.1", 0)
    own.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield own
    finally:
        listening.close()
        await listening.wait_closed()
