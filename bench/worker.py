"""One worker in a process of its own, run as the command runs it, that answers for what it has used.

    python -m bench.worker DSN [setting=value ...]

It writes one JSON line when it is ready and one for every line that it reads; it drains when its input ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

from bench.highway_flow import ten_steps_highway
from bench.workloads import SERVED
from durable import Settings, Worker, process


async def serve(dsn: str, given: dict[str, str]) -> None:
    worker = Worker(dsn, [*SERVED, ten_steps_highway], settings=Settings.model_validate(given))
    running = asyncio.create_task(worker.run())
    await worker.ready()
    _say({"ready": time.time(), "pid": os.getpid()})
    lines = await _lines_of_input()
    while await lines.readline():
        _say(used_by(worker))
    worker.stop()
    await running


def used_by(worker: Worker) -> dict[str, Any]:
    """What this process has used until now. Reaches into the term: these counters are for measuring only."""
    term = worker.term
    assert term is not None
    usage = resource.getrusage(resource.RUSAGE_SELF)
    links = [channel._link for channel in term._channels] + [term._reads._link, term._notifier._link]
    return {
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "memory_mb": _resident_mb(),
        "flushes": sum(writer.flushes for writer in term._writers),
        "entries": sum(writer.records for writer in term._writers),
        "passes": term._passer.passes,
        "calls": sum(link.calls for link in links if link is not None),
    }


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


async def _lines_of_input() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


def _say(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main() -> None:
    dsn, *rest = sys.argv[1:]
    given = dict(part.split("=", 1) for part in rest)
    process.run(serve(dsn, given))


if __name__ == "__main__":
    main()
