"""A worker process as a benchmark sees it: started, asked what it used, stopped or killed."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


class WorkerProcess:
    """One `python -m bench.worker`."""

    def __init__(self, process: asyncio.subprocess.Process, ready: dict[str, Any]):
        self._process = process
        self.ready_at: float = ready["ready"]
        self.pid: int = ready["pid"]

    @classmethod
    async def start(cls, dsn: str, settings: dict[str, Any]) -> WorkerProcess:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.worker", dsn, *(f"{name}={value}" for name, value in settings.items()),
            cwd=ROOT, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        return cls(process, await _line(process))

    async def used(self) -> dict[str, float]:
        """CPU, memory, calls and flushes of the process until now."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        return await _line(self._process)

    async def stop(self) -> None:
        if self._process.returncode is None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            await self._process.wait()


@asynccontextmanager
async def worker(dsn: str, **settings: Any) -> AsyncIterator[WorkerProcess]:
    """A worker of its own process for the time of a block; default settings unless told otherwise."""
    process = await WorkerProcess.start(dsn, settings)
    try:
        yield process
    finally:
        await process.stop()


async def _line(process: asyncio.subprocess.Process) -> dict[str, Any]:
    assert process.stdout is not None
    while line := await process.stdout.readline():
        if line.startswith(b"{"):
            answer: dict[str, Any] = json.loads(line)
            return answer
    raise RuntimeError(f"the worker process ended with code {await process.wait()}; its words are above")
