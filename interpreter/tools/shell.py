"""`tools.shell`: one command, without a shell unless asked for one: what a template put into it is never code."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
from collections.abc import Sequence
from typing import Any

from durable import NonRetryable

# Output is a step's value and lives in the journal; a command that says more writes to a file.
MOST_BYTES = 4 * 1024 * 1024
_STDERR_TAIL = 2000


class CommandFailed(Exception):
    """The command ended with another code than 0."""


async def run(
    command: str | Sequence[str],
    *,
    shell: bool = False,
    cwd: str | None = None,
    env: dict[str, str] | None = None,
    input: str | None = None,
    timeout: float | None = None,
    check: bool = True,
) -> dict[str, Any]:
    """`{code, stdout, stderr}`. A text is split into words as a shell would, and no more; `shell: true` is a real one.

    When the step ends early (its timeout, a cancel), the command and all it started are killed.
    """
    words = _words(command, shell)
    process = await _start(words, cwd, env)
    try:
        async with asyncio.timeout(timeout):
            out, err = await process.communicate(None if input is None else input.encode())
    except TimeoutError:
        raise CommandFailed(f"{words[0]!r} took longer than {timeout:g} s and was killed") from None
    finally:
        await _kill(process)
    code = process.returncode or 0
    stdout, stderr = _text(words[0], out), _text(words[0], err)
    if check and code != 0:
        raise CommandFailed(f"{words[0]!r} ended with {code}: {stderr[-_STDERR_TAIL:].strip() or 'it said nothing'}")
    return {"code": code, "stdout": stdout, "stderr": stderr}


def _words(command: str | Sequence[str], shell: bool) -> list[str]:
    if shell:
        if not isinstance(command, str):
            raise NonRetryable("tools.shell: with shell: true the command is one text, not a list")
        return ["/bin/sh", "-c", command]
    words = shlex.split(command) if isinstance(command, str) else [str(word) for word in command]
    if not words:
        raise NonRetryable("tools.shell: the command is empty")
    return words


async def _start(words: list[str], cwd: str | None, env: dict[str, str] | None) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    try:
        return await asyncio.create_subprocess_exec(
            *words,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            cwd=cwd,
            env={**os.environ, **{name: str(value) for name, value in (env or {}).items()}},
            start_new_session=True,
        )
    except (FileNotFoundError, NotADirectoryError, PermissionError) as exc:
        raise NonRetryable(f"tools.shell: {words[0]!r} cannot be run: {exc.strerror}") from None


async def _kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def _text(command: str, data: bytes) -> str:
    if len(data) > MOST_BYTES:
        raise NonRetryable(f"tools.shell: {command!r} wrote over {MOST_BYTES:,} bytes; have it write to a file")
    return data.decode("utf-8", "replace").replace("\x00", "\ufffd")
