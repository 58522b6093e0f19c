"""Owners in processes of their own, and what tests ask of servers."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

import durable.embedded
from durable.embedded import EmbeddedPostgres, EmbeddedPostgresError
from durable.embedded.ownership import Process, Server

ROOT = os.geteuid() == 0
REPOSITORY = Path(durable.embedded.__file__).parents[2]
FAST = {"fsync": "off", "shared_buffers": "16MB"}

OWNER = """
import resource, sys
from pathlib import Path
from durable.embedded import EmbeddedPostgres, EmbeddedPostgresError

server = EmbeddedPostgres(Path(sys.argv[1]), settings={"fsync": "off", "shared_buffers": "16MB"})
for line in sys.stdin:
    match line.split():
        case ["start"]:
            try:
                server.start()
                print(server.pid, flush=True)
            except EmbeddedPostgresError as error:
                print(repr(str(error)), flush=True)
        case ["stop"]:
            server.stop()
            print("stopped", flush=True)
        case ["limit", size]:
            resource.setrlimit(resource.RLIMIT_FSIZE, (int(size), int(size)))
"""


class Owner:
    """A process that starts and stops a server when told to."""

    def __init__(self, data_dir: Path) -> None:
        command = [sys.executable, "-c", OWNER, str(data_dir)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, cwd=REPOSITORY, stdin=pipe, stdout=pipe, text=True)

    def tell(self, order: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{order}\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ask(self, order: str) -> str:
        self.tell(order)
        return self.answer()

    def end(self) -> None:
        """Let it run to its end, without a stop."""
        self.process.communicate()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def eventually(holds: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "did not come true in time"
        time.sleep(0.01)


def ask(dsn: str, query: str) -> object:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(query.encode()).fetchone()
        return row[0] if row else None


def processes_of(data_dir: Path) -> list[Process]:
    server = Server.read(data_dir)
    assert server is not None
    return [server.postmaster, server.supervisor]


def processes_that_name(path: Path) -> list[str]:
    listed = subprocess.run(["ps", "-ww", "-eo", "args"], capture_output=True, text=True, check=True)
    return [line for line in listed.stdout.splitlines() if f"{path}" in line]


def modes_above(path: Path) -> dict[Path, tuple[int, int, int]]:
    found = {parent: parent.stat() for parent in path.parents}
    return {parent: (one.st_mode, one.st_uid, one.st_gid) for parent, one in found.items()}


def refusal(data_dir: Path, **options: float) -> str:
    with pytest.raises(EmbeddedPostgresError) as caught:
        EmbeddedPostgres(data_dir, settings=FAST, **options).start()  # type: ignore[arg-type]
    return str(caught.value)
