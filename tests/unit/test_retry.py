"""Retry policies as laws."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable import NonRetryable, RetryAfter, RetryPolicy
from durable.errors import ValueRefused
from durable.retry import ONCE

policies = st.builds(
    RetryPolicy,
    max_attempts=st.integers(1, 1000),
    delay=st.floats(0, 1e6),
    backoff=st.floats(0.01, 100),
    max_delay=st.floats(0, 1e6),
    jitter=st.floats(0, 1),
)
chances = st.floats(0, 1, exclude_max=True)


@given(policies, st.integers(0, 100))
def test_the_last_attempt_is_the_last(policy: RetryPolicy, more: int) -> None:
    """After `max_attempts` there is no rest, whatever was raised."""
    assert policy.rest(policy.max_attempts + more, ValueError()) is None
    assert policy.rest(policy.max_attempts + more, RetryAfter(1)) is None


@given(policies, st.data(), chances)
def test_a_rest_is_between_nothing_and_the_longest_delay(
    policy: RetryPolicy, data: st.DataObject, chance: float
) -> None:
    """At most `max_delay`, plus or minus its jitter; never negative."""
    policy = replace(policy, max_attempts=1001)
    attempt = data.draw(st.integers(1, 1000))
    rest = policy.rest(attempt, ValueError(), chance)
    assert rest is not None
    assert 0 <= rest <= policy.max_delay * (1 + policy.jitter) * 1.0001


@given(policies, st.integers(1, 999), chances)
def test_rests_grow_until_the_longest(policy: RetryPolicy, attempt: int, chance: float) -> None:
    """With a backoff of 1 or more and no jitter, the next rest is never shorter."""
    policy = replace(policy, max_attempts=1001, backoff=max(1.0, policy.backoff), jitter=0.0)
    assert policy.rest(attempt, ValueError(), chance) <= policy.rest(attempt + 1, ValueError(), chance)


@given(policies, chances)
def test_jitter_moves_a_rest_by_its_share_at_most(policy: RetryPolicy, chance: float) -> None:
    """The same attempt without jitter is in the middle of what jitter can give."""
    policy = replace(policy, max_attempts=2)
    plain = replace(policy, jitter=0.0).rest(1, ValueError(), chance)
    rest = policy.rest(1, ValueError(), chance)
    assert plain * (1 - policy.jitter) * 0.9999 <= rest <= plain * (1 + policy.jitter) * 1.0001


def test_the_delays_are_those_of_the_formula() -> None:
    """`delay * backoff ** (n - 1)`, at most `max_delay`."""
    policy = RetryPolicy(max_attempts=6, delay=1, backoff=3, max_delay=20)
    assert [policy.rest(attempt, ValueError()) for attempt in range(1, 7)] == [1, 3, 9, 20, 20, None]


@pytest.mark.parametrize(
    ("policy", "error", "retried"),
    [
        (RetryPolicy(), ValueError(), True),
        (RetryPolicy(), NonRetryable(), False),
        (RetryPolicy(), ValueRefused("$"), False),
        (RetryPolicy(on=OSError), ValueError(), False),
        (RetryPolicy(on=OSError), ConnectionError(), True),
        (RetryPolicy(on=(OSError, ValueError)), ValueError(), True),
        (RetryPolicy(never=ValueError), ValueError(), False),
        (RetryPolicy(never=(OSError,)), ConnectionError(), False),
        (RetryPolicy(on=OSError, never=ConnectionError), ConnectionError(), False),
        (RetryPolicy(on=OSError), RetryAfter(1), True),
        (RetryPolicy(never=RetryAfter), RetryAfter(1), False),
        (ONCE, ValueError(), False),
    ],
)
def test_who_is_retried(policy: RetryPolicy, error: Exception, retried: bool) -> None:
    """Only exceptions of `on`, none of `never`; NonRetryable and values that cannot be stored never are."""
    assert (policy.rest(1, error) is not None) is retried


@given(st.floats(-10, 1e9))
def test_a_step_may_say_when_it_wants_to_be_tried_again(seconds: float) -> None:
    """RetryAfter is taken at its word, over `max_delay` and without jitter; the past means now."""
    policy = RetryPolicy(max_delay=1, jitter=1)
    assert policy.rest(1, RetryAfter(seconds)) == max(0, seconds)


@pytest.mark.parametrize(
    "wrong",
    [{"max_attempts": 0}, {"delay": -1}, {"backoff": 0}, {"max_delay": -1}, {"jitter": 1.1}, {"jitter": -0.1}],
)
def test_a_policy_that_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        RetryPolicy(**wrong)  # type: ignore[arg-type]
