"""What every runner shares: how it is called, how it answers, and a server process of its own.

A runner is a script that is run inside its rival's own environment, where nothing of this repository is installed:

    python NAME_runner.py URL PLAY JSON-ARGUMENTS

It writes one JSON line with the numbers it found. One rule: only this folder and the rival may be imported here.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

Play = Callable[..., Coroutine[Any, Any, dict[str, float] | None]]


def main(plays: dict[str, Play]) -> None:
    """Do the play that the command line names, and say what it found."""
    url, name, given = sys.argv[1:]
    found = run(plays[name](url, **json.loads(given)))
    if found is not None:
        say(found)


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run it on uvloop where that is installed: rivals get the same loop as we have."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(coroutine)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(coroutine)


def say(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


@contextmanager
def serving(url: str, play: str, **given: Any) -> Iterator[dict[str, Any]]:
    """Another process of the same runner, for the time of a block; gives what it said when it was ready."""
    command = [sys.executable, sys.argv[0], url, play, json.dumps(given)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    try:
        yield answer(process)
    finally:
        process.stdin.close()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Its next JSON line; whatever else it prints is passed over."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{"):
            found: dict[str, Any] = json.loads(line)
            return found
    raise RuntimeError(f"a process of the runner ended with code {process.wait()}")


async def input_ended() -> None:
    """Return when whoever started this process wants it to end."""
    await asyncio.to_thread(sys.stdin.read)


def median(numbers: list[float]) -> float:
    """The middle, found as our own benchmarks find it."""
    return sorted(numbers)[min(len(numbers) - 1, len(numbers) // 2)]
