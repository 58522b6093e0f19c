"""Timeouts of deployed tasks: one attempt has so long, and its work is really stopped."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from durable import RunFailed
from interpreter.deployment import Deployed, load
from interpreter.secrets import Vault
from tests.deployment import slow


async def deployed(runtime: Any, folder: Path, function: str, args: list[str], more: str) -> str:
    """A workflow of one task on a worker of this process, started."""
    file = folder / "limited.yaml"
    fields = f"function: tests.deployment.slow.{function}, args: {args}, {more}"
    file.write_text(f"name: limited\ntasks:\n  t: {{task_id: t, operator_type: task, {fields}}}\n")
    (loaded,) = load(file)
    await runtime.work(catalogue=Deployed(["tests."], Vault(runtime.dsn)))
    await runtime.client.deploy(loaded.deployment())
    started: str = await runtime.client.start("limited")
    return started


async def test_a_plain_function_that_takes_too_long_is_killed(runtime: Any, tmp_path: Path) -> None:
    """By default its process is gone, the attempt has failed, and the next one has time of its own."""
    more = "timeout_policy: {timeout: PT3S}, retry_policy: {max_retries: 1, delay: PT0S}"
    run = await deployed(runtime, tmp_path, "stuck_once", [str(tmp_path / "pids")], more)
    assert await runtime.client.result(run, timeout=60) == 2
    first, second = map(int, (tmp_path / "pids").read_text().split())
    assert len({first, second, os.getpid()}) == 3

    async def is_gone() -> bool:
        try:
            os.kill(first, 0)
        except ProcessLookupError:
            return True
        return False

    await runtime.until(is_gone)


async def test_a_function_that_is_not_to_be_killed_is_left_behind(runtime: Any, tmp_path: Path) -> None:
    """With `kill_on_timeout: false` it runs in a thread; the task fails in time, and its late result is dropped."""
    slow.release.clear()
    slow.left.clear()
    more = "timeout_policy: {timeout: PT0.1S, kill_on_timeout: false}"
    run = await deployed(runtime, tmp_path, "held", [], more)
    try:
        with pytest.raises(RunFailed, match="took longer than"):
            await runtime.client.result(run, timeout=60)
        assert not slow.left.is_set()
    finally:
        slow.release.set()
    assert slow.left.wait(30)
    assert await runtime.client.state(run) == "failed"


async def test_an_async_function_that_takes_too_long_is_cancelled(runtime: Any, tmp_path: Path) -> None:
    """It can tidy up, and then the task has failed."""
    run = await deployed(runtime, tmp_path, "cancelled", [str(tmp_path / "seen")], "timeout_policy: {timeout: PT0.1S}")
    with pytest.raises(RunFailed, match="took longer than"):
        await runtime.client.result(run, timeout=60)
    assert (tmp_path / "seen").read_text() == "cancelled"


@pytest.mark.parametrize("function", ["written", "written_in_thread", "written_past_its_time"])
async def test_a_transaction_that_takes_too_long_is_rolled_back(runtime: Any, tmp_path: Path, function: str) -> None:
    """Whether it is async, in one long statement or in many short ones: nothing of it stays, in no attempt."""
    await runtime.sql("create table effects (n int)")
    more = "timeout_policy: {timeout: PT0.3S}, retry_policy: {max_retries: 1, delay: PT0S}"
    run = await deployed(runtime, tmp_path, function, [], more)
    with pytest.raises(RunFailed, match="its transaction was rolled back"):
        await runtime.client.result(run, timeout=60)
    assert await runtime.sql("select n from effects") == []
    kinds = await runtime.sql("select kind from durable.journal where run_id = %s and name = 't' order by pos", run)
    assert [kind for (kind,) in kinds] == ["attempt", "failed"]


async def test_a_transaction_in_time_commits(runtime: Any, tmp_path: Path) -> None:
    """Its limit is the server's, too, and leaves nothing behind."""
    await runtime.sql("create table effects (n int)")
    run = await deployed(runtime, tmp_path, "written_in_time", [], "timeout_policy: {timeout: PT60S}")
    assert await runtime.client.result(run, timeout=60) == "1min"
    assert await runtime.sql("select n from effects") == [(4,)]
