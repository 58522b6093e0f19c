"""Functions that take too long, each in its own way."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

from durable import StepInfo
from interpreter.functions import in_transaction, with_step

# For functions in threads of the test's own process.
release = threading.Event()
left = threading.Event()


@with_step
def stuck_once(step: StepInfo, pids: str) -> int:
    """Hangs for ever in its first attempt."""
    with Path(pids).open("a") as file:
        file.write(f"{os.getpid()}\n")
    if step.attempt == 1:
        threading.Event().wait()
    return step.attempt


def held() -> str:
    """Goes on until it is let go."""
    release.wait()
    left.set()
    return "too late"


async def cancelled(seen: str) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        _write(seen, "cancelled")


def _write(file: str, text: str) -> None:
    Path(file).write_text(text)


@in_transaction
async def written(connection: Any) -> None:
    await connection.execute("insert into effects (n) values (1)")
    await asyncio.Event().wait()


@in_transaction
def written_in_thread(connection: Any) -> None:
    connection.execute("insert into effects (n) values (2)")
    connection.execute("select pg_sleep(3600)")


@in_transaction
def written_past_its_time(connection: Any) -> None:
    """No statement of it takes long."""
    connection.execute("insert into effects (n) values (3)")
    for _ in range(8):
        connection.execute("select pg_sleep(0.05)")


@in_transaction
def written_in_time(connection: Any) -> str:
    connection.execute("insert into effects (n) values (4)")
    return str(connection.execute("show statement_timeout").fetchone()[0])
