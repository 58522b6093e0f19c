"""`durable start` and `durable emit`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from uuid import UUID

from durable import DurableContext, workflow

Command = Callable[..., Any]


async def double(n: int) -> int:
    return 2 * n


@workflow
async def doubling(ctx: DurableContext, n: int) -> int:
    return int(await ctx.step(double, n))


@workflow
async def broken(ctx: DurableContext) -> None:
    raise ValueError("no luck")


@workflow
async def expecting(ctx: DurableContext, event: str) -> Any:
    return await ctx.wait_for_event(event)


def test_a_started_run_is_named_by_its_id(durable: Command, working: Command) -> None:
    """Without --wait the id is all that standard output holds, so that a script can keep it."""
    working(doubling)
    said = durable("start", "doubling", "--input", "n=21")
    assert said.code == 0
    assert UUID(said.out.strip())


def test_waiting_prints_the_result(durable: Command, working: Command) -> None:
    """With --wait the result is JSON on standard output."""
    working(doubling)
    assert durable("start", "doubling", "--input", "n=21", "--wait") == (0, "42\n", "")


def test_waiting_for_a_run_that_fails_exits_with_1(durable: Command, working: Command) -> None:
    """The error and what to do about it are on standard error, in a line."""
    working(broken)
    said = durable("start", "broken", "--wait")
    assert (said.code, said.out) == (1, "")
    assert "ValueError: no luck" in said.err
    assert "durable runs retry" in said.err
    failed = durable("start", "broken", "--wait", "--json")
    assert (failed.code, json.loads(failed.out)["state"]) == (1, "failed")


def test_the_same_key_is_the_same_run(durable: Command, working: Command) -> None:
    """Starting twice under one key starts once."""
    working(doubling)
    first, second = (durable("start", "doubling", "--input", "n=1", "--key", "k").out for _ in range(2))
    assert first == second


def test_options_of_a_start_are_kept(durable: Command, working: Command) -> None:
    """Time, priority, queue, tags and cap key are what the run has."""
    working(doubling)
    options = ["--at", "2999-01-01T00:00:00Z", "--priority", "1", "--queue", "slow", "--tag", "a", "--tag", "b"]
    said = durable("start", "doubling", "--input", '{"n": 1}', *options, "--cap-key", "c", "--json")
    run = json.loads(said.out)
    found = [run[name] for name in ("state", "prio", "queue", "tags", "cap_key", "input")]
    assert found == ["delayed", 1, "slow", ["a", "b"], "c", {"n": 1}]


def test_a_start_that_cannot_be_is_refused(durable: Command, working: Command) -> None:
    """Unknown names, wrong arguments and impossible priorities exit with 4 and say what is known."""
    working(doubling)
    cases = [
        (["nothing"], "Registered are: doubling"),
        (["doubling"], "missing 'n'"),
        (["doubling", "--input", "m=1"], "unknown 'm'"),
        (["doubling", "--input", "n=1", "--priority", "11"], "between 0 (first) and 9"),
    ]
    for arguments, words in cases:
        said = durable("start", *arguments)
        assert (said.code, said.out) == (4, "")
        assert words in said.err
        assert len(said.err.splitlines()) <= 2


def test_an_event_reaches_the_run_that_waits_for_it(durable: Command, working: Command) -> None:
    """Its payload is what the wait gives; an emitted key emits once."""
    working(expecting)
    run = durable("start", "expecting", "--input", "event=paid").out.strip()
    first, second = (durable("emit", "paid", "--payload", '{"sum": 5}', "--key", "k") for _ in range(2))
    assert first == second
    durable("runs", "watch", run)
    assert json.loads(durable("runs", "show", run, "--json").out)["run"]["result"] == {"sum": 5}
    assert "event_id" in json.loads(durable("emit", "paid", "--json").out)
