"""The built-in tools, each in a run on a real worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from durable import RunFailed
from interpreter import tools
from interpreter.functions import AllowedFunctions


def test_every_tool_can_be_loaded() -> None:
    """Each listed name leads to something callable."""
    for name in tools.NAMES:
        assert callable(AllowedFunctions(["tools"]).resolve(name))


async def test_echo_gives_back_what_it_gets(caller: Any) -> None:
    """One value, or named ones as an object."""
    assert await caller.call("tools.echo", [1, {"a": None}]) == [1, {"a": None}]
    assert await caller.call("tools.echo", a=1, b="x") == {"a": 1, "b": "x"}


async def test_fail_fails_with_its_message(caller: Any) -> None:
    """A retryable failure is tried again, one for good is not."""
    with pytest.raises(RunFailed, match="no stock"):
        await caller.call("tools.fail", "no stock")
    assert [step.kind for step in await caller.client.steps(caller.run_id)] == ["attempt", "attempt", "failed"]
    with pytest.raises(RunFailed, match="never"):
        await caller.call("tools.fail", "never", retryable=False)
    assert [step.kind for step in await caller.client.steps(caller.run_id)] == ["failed"]


async def test_log_writes_into_the_log_of_the_run(caller: Any) -> None:
    """With its level, and under its step."""
    await caller.call("tools.log", "hello", level="warning", order=42)
    await caller.call("tools.log.error", "bad")
    rows = await caller.sql("select level, step, message, fields ->> 'order' from durable.log order by id")
    assert rows == [("warning", "tools.log", "hello", "42"), ("error", "tools.log.error", "bad", None)]


async def test_sleep_ends(caller: Any) -> None:
    """It holds its step and returns nothing."""
    assert await caller.call("tools.sleep", 0.01) is None


class TestMemory:
    """Values that outlive a run."""

    async def test_what_is_set_is_got_by_a_later_run(self, caller: Any) -> None:
        """Values are kept by scope and key; an absent one is the default."""
        assert await caller.call("tools.memory.set", "k", {"a": [1]}) == {"a": [1]}
        assert await caller.call("tools.memory.get", "k") == {"a": [1]}
        assert await caller.call("tools.memory.get", "k", default=5, scope="other") == 5

    async def test_an_increment_counts_once(self, caller: Any) -> None:
        """Each step adds once, and the sum is its result."""
        assert [await caller.call("tools.memory.increment", "n") for _ in range(3)] == [1, 2, 3]
        assert await caller.call("tools.memory.increment", "n", by=0.5) == 3.5
        assert await caller.call("tools.memory.get", "n") == 3.5

    async def test_only_a_number_can_be_incremented(self, caller: Any) -> None:
        """The failure says what is there."""
        await caller.call("tools.memory.set", "word", "text")
        with pytest.raises(RunFailed, match="no number to add to"):
            await caller.call("tools.memory.increment", "word")


class TestHttp:
    """One request a step."""

    async def test_json_comes_back_as_a_value(self, caller: Any, server: Any) -> None:
        """Status, headers and body; the query and headers are sent."""
        server.answers = ['HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"a":[1]}']
        result = await caller.call("tools.http.get", f"{server.url}/x", params={"q": "1 2"}, headers={"X-Own": "yes"})
        assert (result["status"], result["body"]) == (200, {"a": [1]})
        assert server.requests[0].startswith("GET /x?q=1%202 ") or server.requests[0].startswith("GET /x?q=1+2 ")
        assert "x-own: yes" in server.requests[0].lower()

    async def test_a_change_carries_the_idempotency_key(self, caller: Any, server: Any) -> None:
        """Every try of the same step has the same key, so that the server can tell them."""
        server.answers = ["HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", server.answers[0]]
        result = await caller.call("tools.http.post", server.url, json={"n": 1})
        assert result["body"] == "ok"
        keys = [line for text in server.requests for line in text.splitlines() if "idempotency-key" in line.lower()]
        assert len(keys) == 2
        assert len(set(keys)) == 1
        assert caller.run_id in keys[0]

    async def test_a_refusal_is_not_tried_again(self, caller: Any, server: Any) -> None:
        """A 404 is final; with `check` off it is a result."""
        server.answers = ["HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone"]
        with pytest.raises(RunFailed, match="404 Not Found: gone"):
            await caller.call("tools.http", server.url)
        assert len(server.requests) == 1
        assert (await caller.call("tools.http", server.url, check=False))["status"] == 404

    async def test_a_server_that_is_not_there_is_tried_again(self, caller: Any) -> None:
        """Nobody listens: that may pass, so the policy decides."""
        with pytest.raises(RunFailed, match="ConnectError"):
            await caller.call("tools.http.get", "http://127.0.0.1:1/")
        assert [step.kind for step in await caller.client.steps(caller.run_id)] == ["attempt", "attempt", "failed"]


def _ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    except FileNotFoundError:
        return True


class TestShell:
    """One command a step."""

    async def test_a_command_runs_without_a_shell(self, caller: Any) -> None:
        """What looks like shell syntax is only an argument."""
        result = await caller.call("tools.shell.run", ["echo", "$HOME; ls"])
        assert result == {"code": 0, "stdout": "$HOME; ls\n", "stderr": ""}
        assert (await caller.call("tools.shell", "echo 'a b' c"))["stdout"] == "a b c\n"

    async def test_a_shell_is_there_when_asked_for(self, caller: Any) -> None:
        """With variables and standard input."""
        result = await caller.call("tools.shell.run", "cat; echo $X", shell=True, env={"X": "y"}, input="in ")
        assert result["stdout"] == "in y\n"

    async def test_a_failing_command_fails_its_step(self, caller: Any) -> None:
        """With its code and what it said; with `check` off that is a result."""
        command = {"command": "echo bad >&2; exit 3", "shell": True}
        with pytest.raises(RunFailed, match="ended with 3: bad"):
            await caller.call("tools.shell.run", **command)
        assert (await caller.call("tools.shell.run", check=False, **command))["code"] == 3

    async def test_a_command_over_its_time_is_killed_with_its_children(self, caller: Any, tmp_path: Path) -> None:
        """Nothing of it is left running."""
        pid = tmp_path / "pid"
        command = f"sleep 60 & echo $! > {pid}.part; mv {pid}.part {pid}; wait"
        with pytest.raises(RunFailed, match="took longer"):
            await caller.call("tools.shell.run", command, shell=True, timeout=1)
        assert _ended(int(pid.read_text()))


class TestSql:
    """One statement a step."""

    async def test_rows_come_back_as_plain_values(self, caller: Any) -> None:
        """Dates, exact numbers and bytes as JSON can hold them; parameters are values."""
        statement = "select %(n)s::int as n, 1.5::numeric as exact, date '2026-01-02' as day, %(t)s as t"
        result = await caller.call("tools.sql.query", statement, {"n": 3, "t": "'; drop table x"}, database=caller.dsn)
        assert result["rows"] == [{"n": 3, "exact": "1.5", "day": "2026-01-02", "t": "'; drop table x"}]

    async def test_a_transaction_commits_with_its_step(self, caller: Any) -> None:
        """In the runtime's own database, a statement and its record are one commit."""
        await caller.sql("create table effects (n int)")
        result = await caller.call("tools.sql.transaction", "insert into effects values (%s), (%s)", [1, 2])
        assert result == {"rows": [], "count": 2}
        assert await caller.sql("select sum(n) from effects") == [(3,)]

    async def test_a_wrong_statement_is_not_tried_again(self, caller: Any) -> None:
        """What the database refuses it would refuse again."""
        with pytest.raises(RunFailed, match="does not exist"):
            await caller.call("tools.sql.query", "select * from nowhere", database=caller.dsn)
        assert [step.kind for step in await caller.client.steps(caller.run_id)] == ["failed"]
