"""The command as tests use it: inside this process where that is the same, and as real processes where it is not."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import durablectl
from durable import Settings, Worker, Workflow
from tests.command import Command, Said, calling

REPOSITORY = Path(durablectl.__file__).parents[1]
PATIENCE = 60.0


@pytest.fixture
def bare(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command without any database chosen for it."""
    return calling(capsys, monkeypatch)


@pytest.fixture
def durable(bare: Command, durable_dsn: str, monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command with a store of its own."""
    monkeypatch.setenv("DURABLE_DATABASE_URL", durable_dsn)
    return bare


@pytest.fixture
def working(durable_dsn: str) -> Iterator[Callable[..., None]]:
    """Let a worker in a thread of this process run some workflows until the test is over."""
    with ExitStack() as until_end:

        def begin(*workflows: Workflow, **settings: Any) -> None:
            until_end.enter_context(_thread_worker(durable_dsn, workflows, Settings(**settings)))

        yield begin


@contextmanager
def _thread_worker(dsn: str, workflows: tuple[Workflow, ...], settings: Settings) -> Iterator[None]:
    ready, stop = threading.Event(), threading.Event()

    async def work() -> None:
        worker = Worker(dsn, workflows, settings=settings)
        serving = asyncio.create_task(worker.run())
        await worker.ready()
        ready.set()
        await asyncio.to_thread(stop.wait)
        worker.stop()
        await serving

    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    assert ready.wait(PATIENCE)
    try:
        yield
    finally:
        stop.set()
        thread.join()


def await_that(condition: Callable[[], Any], what: str) -> Any:
    """What the condition gives as soon as it is true."""
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.05)
    return found


class Place:
    """A directory of a person's own, the processes they start there, and all that is left of them."""

    def __init__(self, path: Path):
        self.path = path
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("DURABLE_", "PYTEST"))
        } | {"PYTHONPATH": str(REPOSITORY), "DURABLE_PLACE": str(path)}
        self._started: list[subprocess.Popen[str]] = []

    def write(self, name: str, text: str) -> None:
        (self.path / name).write_text(text)

    def start(self, *arguments: str, **environment: str) -> Running:
        """A `durable` command as a process of its own."""
        return self.start_python("-m", "durablectl", *arguments, **environment)

    def start_python(self, *arguments: str, **environment: str) -> Running:
        log = self.path / f"log-{len(self._started)}"
        with log.open("w") as file:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=self.path, env=self.environment | environment, stdout=file, stderr=file, text=True,
            )  # fmt: skip
        self._started.append(process)
        return Running(process, log)

    def run(self, *arguments: str, **environment: str) -> Said:
        """A `durable` command from its start to its end."""
        return Said(
            *_finished([sys.executable, "-m", "durablectl", *arguments], self.path, self.environment | environment)
        )

    def left(self) -> list[str]:
        """Command lines of processes that still belong to this place."""
        return [line for _, line in self._processes()]

    def pids(self) -> set[int]:
        return {pid for pid, _ in self._processes()}

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.wait()

    def _processes(self) -> Iterator[tuple[int, str]]:
        mark = os.fsencode(self.path)
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                line, variables = _read(entry / "cmdline"), _read(entry / "environ")
                if line and (mark in line or b"DURABLE_PLACE=" + mark in variables):
                    yield int(entry.name), line.replace(b"\0", b" ").decode()


class Running(NamedTuple):
    """A command that goes on."""

    process: subprocess.Popen[str]
    log: Path

    @property
    def said(self) -> str:
        return self.log.read_text()

    def await_word(self, word: str, times: int = 1) -> str:
        def found() -> bool:
            assert self.process.poll() is None or word in self.said, self.said
            return self.said.count(word) >= times

        await_that(found, f"{word!r} in the output")
        return self.said

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        return self.process.wait(PATIENCE)


def _finished(command: list[str], cwd: Path, environment: dict[str, str]) -> tuple[int, str, str]:
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    return done.returncode, done.stdout, done.stderr


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.fixture
def place() -> Iterator[Place]:
    # Not pytest's own directory: root's is closed to the user that an embedded server runs under.
    path = Path(tempfile.mkdtemp(prefix="durable-cli-")).resolve()
    path.chmod(0o755)
    made = Place(path)
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def eventually() -> Callable[[Callable[[], Any], str], Any]:
    return await_that
