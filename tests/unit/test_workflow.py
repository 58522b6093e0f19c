"""Workflows and steps as people write them, and what is refused when they are written wrong."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from durable import RetryPolicy, Start, step, workflow
from durable.errors import WrongArguments
from durable.start import input_of, row_of
from durable.workflow import PLAIN, Workflow, policy_of


@workflow
async def order(ctx: object, item: int, note: str = "", *, fast: bool = False) -> None: ...


@workflow(name="anything", queue="slow", max_running=3, deadline=timedelta(hours=1))
async def loose(ctx: object, **rest: Any) -> None: ...


def test_a_workflow_knows_its_name_and_parameters() -> None:
    """What the store registers of it."""
    assert order.registration()["params"] == {"required": ("item",), "optional": ("note", "fast"), "open": False}
    assert (loose.name, loose.queue, loose.max_running, loose.deadline) == ("anything", "slow", 3, 3600)
    assert loose.registration()["params"] == {"required": (), "optional": (), "open": True}


async def test_a_workflow_can_be_called_like_its_function() -> None:
    @workflow
    async def double(ctx: object, number: int) -> int:
        return number * 2

    assert await double(None, 21) == 42


@pytest.mark.parametrize(
    ("args", "kwargs", "bound"),
    [
        ((1,), {}, {"item": 1}),
        ((1, "x"), {"fast": True}, {"item": 1, "note": "x", "fast": True}),
        ((), {"item": 1}, {"item": 1}),
    ],
)
def test_arguments_are_stored_by_name(args: tuple[Any, ...], kwargs: dict[str, Any], bound: dict[str, Any]) -> None:
    assert input_of(order, args, kwargs) == bound


def test_keywords_of_an_open_workflow_are_kept_flat() -> None:
    assert input_of(loose, (), {"a": 1, "b": 2}) == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("args", "kwargs", "said"),
    [
        ((), {}, "missing a required argument: 'item'"),
        ((1,), {"colour": 2}, "unexpected keyword argument 'colour'"),
        ((1, "x", True), {}, "too many positional arguments"),
        ((1,), {"item": 2}, "multiple values for argument 'item'"),
    ],
)
def test_wrong_arguments_are_refused_with_the_signature(
    args: tuple[Any, ...], kwargs: dict[str, Any], said: str
) -> None:
    """The message names the workflow, what is wrong, and what it takes."""
    with pytest.raises(WrongArguments) as caught:
        input_of(order, args, kwargs)
    assert "workflow 'order'" in str(caught.value)
    assert said in str(caught.value)
    assert "it takes (item: 'int', note: 'str' = '', *, fast: 'bool' = False)" in str(caught.value)


def test_a_workflow_started_by_name_takes_named_arguments_only() -> None:
    assert input_of("order", (), {"item": 1}) == {"item": 1}
    with pytest.raises(WrongArguments, match="pass its arguments by name"):
        input_of("order", (1,), {})


def no_context() -> Workflow:
    @workflow
    async def f() -> None: ...

    return f


def plain_function() -> Workflow:
    @workflow  # type: ignore[arg-type]
    def f(ctx: object) -> None: ...

    return f  # type: ignore[return-value]


def star_args() -> Workflow:
    @workflow
    async def f(ctx: object, *args: int) -> None: ...

    return f


def positional_only() -> Workflow:
    @workflow
    async def f(ctx: object, item: int, /) -> None: ...

    return f


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (no_context, "takes no context"),
        (plain_function, "must be `async def`"),
        (star_args, "stored by name"),
        (positional_only, "stored by name"),
    ],
)
def test_a_function_that_cannot_be_a_workflow_is_refused_when_it_is_written(make: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        make()


@pytest.mark.parametrize("cap", ["max_active_runs", "max_running", "max_active_per_key", "max_running_per_key"])
def test_a_cap_below_one_is_refused(cap: str) -> None:
    with pytest.raises(ValueError, match=cap):
        workflow(**{cap: 0})(order.fn)


@pytest.mark.parametrize("deadline", [0, -1, timedelta(0)])
def test_a_deadline_that_is_over_at_once_is_refused(deadline: Any) -> None:
    with pytest.raises(ValueError, match="over 0 seconds"):
        workflow(deadline=deadline)(order.fn)


def test_a_step_keeps_its_policy() -> None:
    """The decorator attaches; the function stays what it is."""

    @step(name="charge", retry=RetryPolicy(max_attempts=5), timeout=3, lane="thread")
    def charge(amount: int) -> int:
        return amount

    policy = policy_of(charge)
    assert (charge(7), policy.name, policy.retry.max_attempts) == (7, "charge", 5)
    assert (policy.timeout, policy.lane) == (3, "thread")
    assert policy_of(print) is PLAIN


@pytest.mark.parametrize("wrong", [{"priority": 10}, {"priority": -1}, {"start_at": datetime(2030, 1, 1)}])
def test_options_of_a_start_are_checked(wrong: dict[str, Any]) -> None:
    """Priorities are 0 to 9, and a time needs its zone."""
    with pytest.raises(WrongArguments):
        Start(**wrong)


def test_options_become_fields_of_the_row() -> None:
    """What is not given is left out; the run's own deadline wins over its workflow's."""
    assert row_of(None, None) == {}
    assert row_of(None, 60.0) == {"deadline": 60.0}
    chosen = Start(priority=0, start_at=datetime(2030, 1, 1, tzinfo=UTC), tags=("a",), deadline=timedelta(seconds=5))
    assert row_of(chosen, 60.0) == {"prio": 0, "at": "2030-01-01T00:00:00+00:00", "tags": ["a"], "deadline": 5.0}
