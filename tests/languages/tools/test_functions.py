"""Functions by name: what is allowed, what is refused and how, and what a function may ask for."""

from __future__ import annotations

from typing import Any

import pytest

from durable import RunFailed
from interpreter.functions import AllowedFunctions, FunctionRefused

from .conftest import OFFERED


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("doubled", (4,), 8),
        ("quadrupled", (), 8),
        ("Scaler", (2,), 6),
        ("tripled", (2,), 6),
        ("Scaler.down", (9,), 3.0),
        ("Scaler.zero", (), 0),
    ],
)
async def test_every_kind_of_callable_is_called(caller: Any, name: str, args: Any, expected: Any) -> None:
    """Async functions, partials, classes with `__call__`, instances and methods give their result."""
    assert await caller.call(f"{OFFERED}.{name}", *args) == expected


async def test_a_plain_function_does_not_hold_up_the_loop(caller: Any) -> None:
    """It runs in a thread of the worker's lane."""
    assert "durable-step" in await caller.call(f"{OFFERED}.thread", prefix="in ")


async def test_a_function_may_ask_for_its_step(caller: Any) -> None:
    """It is given the idempotency key and the attempt, and its log lines and progress are stored under its step."""
    result = await caller.call(f"{OFFERED}.told", 5)
    assert result == {"key": f"{caller.run_id}:{OFFERED}.told", "attempt": 1, "value": 5}
    assert await caller.call(f"{OFFERED}.told_in_thread") == f"{OFFERED}.told_in_thread"
    rows = await caller.sql("select step, message from durable.log order by id")
    assert rows == [(f"{OFFERED}.told", "told"), (f"{OFFERED}.told_in_thread", "from a thread")]
    assert await caller.sql("select done, total, note from durable.progress") == [(1.0, 2.0, "half")]


@pytest.mark.parametrize("name", ["stored", "stored_in_thread", "stored_and_told"])
async def test_a_function_may_ask_for_the_transaction(caller: Any, name: str) -> None:
    """What it writes on its connection is there once its step is recorded."""
    await caller.sql("create table effects (n int)")
    await caller.call(f"{OFFERED}.{name}", 7)
    assert await caller.sql("select n from effects") == [(7,)]


async def test_a_refused_function_fails_its_run_at_once(caller: Any) -> None:
    """Trying again cannot help, so no retry policy does; the error names the option to add."""
    with pytest.raises(RunFailed, match=r"--allow os\."):
        await caller.call("os.getcwd")


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("os.system", r"this worker allows tests\.languages\.tools\.offered\.\. Start it with `--allow os\.`"),
        (f"{OFFERED}evil.run", "not allowed here"),
        (f"{OFFERED}.os.system", "goes through module 'os'"),
        (f"{OFFERED}.getcwd", "comes from 'posix'"),
        (f"{OFFERED}._private", "private"),
        (f"{OFFERED}.doubled.__globals__", "private"),
        (f"{OFFERED}.absent", "has no 'absent'"),
        (f"{OFFERED}.number", "not a function"),
        (f"{OFFERED}.Plain", "no __call__"),
        (f"{OFFERED}.Needy", "needs arguments"),
        ("tools.absent", "there is no tool"),
        ("tools.shell.run", r"--allow tools\.shell\."),
        ("tools.sql", r"--allow tools\.sql\."),
    ],
)  # fmt: skip
def test_what_is_not_offered_is_refused_with_a_reason(name: str, complaint: str) -> None:
    """A name that leads out of the allowed modules, to something private or to no function is refused."""
    with pytest.raises(FunctionRefused, match=complaint):
        AllowedFunctions([f"{OFFERED}."]).resolve(name)


@pytest.mark.parametrize("allow", [OFFERED, f"{OFFERED}.", "tests", f"{OFFERED}.doubled"])
def test_an_allowance_covers_what_is_below_it(allow: str) -> None:
    """A prefix ends at a dot, whether it is written or not."""
    AllowedFunctions([allow]).resolve(f"{OFFERED}.doubled")


def test_nothing_allows_nothing() -> None:
    """An empty allowance is not one for everything."""
    for allow in ([], [""], ["."]):
        with pytest.raises(FunctionRefused):
            AllowedFunctions(allow).resolve("os.getcwd")
        AllowedFunctions(allow).resolve("tools.echo")


def test_a_module_that_cannot_be_imported_says_why() -> None:
    """The reason of the import error is in the message."""
    with pytest.raises(FunctionRefused, match="there is no module 'nowhere'"):
        AllowedFunctions(["nowhere."]).resolve("nowhere.fn")
