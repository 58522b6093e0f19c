"""Retry policies: pure decisions about what follows a failed attempt."""

from __future__ import annotations

import random
from dataclasses import dataclass

from durable.errors import NonRetryable, RetryAfter, ValueRefused

Kinds = type[BaseException] | tuple[type[BaseException], ...]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a step is tried, and how long it rests in between.

    The wait before retry n (counted from 1) is `delay * backoff ** (n - 1)`, at most `max_delay`, plus or minus
    `jitter` of itself. Only exceptions of `on` are retried, and none of `never`.
    """

    max_attempts: int = 3
    delay: float = 1.0
    backoff: float = 2.0
    max_delay: float = 3600.0
    jitter: float = 0.0
    on: Kinds = Exception
    never: Kinds = ()

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise ValueError(f"max_attempts is {self.max_attempts}; 1 means no retry")
        if self.delay < 0 or self.backoff <= 0 or self.max_delay < 0:
            raise ValueError("delay and max_delay cannot be negative, and backoff must be over 0")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"jitter is {self.jitter}; it is a share between 0 and 1")

    def rest(self, attempt: int, error: BaseException, chance: float | None = None) -> float | None:
        """Seconds to wait after failed attempt number `attempt`, or None when it was the last."""
        if attempt >= self.max_attempts or not self._retryable(error):
            return None
        if isinstance(error, RetryAfter):
            return max(0.0, error.seconds)
        return self._delay(attempt, random.random() if chance is None else chance)

    def _retryable(self, error: BaseException) -> bool:
        if isinstance(error, (NonRetryable, ValueRefused, *_kinds(self.never))):
            return False
        return isinstance(error, (RetryAfter, *_kinds(self.on)))

    def _delay(self, attempt: int, chance: float) -> float:
        try:
            plain = min(self.delay * self.backoff ** (attempt - 1), self.max_delay)
        except OverflowError:
            plain = self.max_delay
        return max(0.0, plain * (1 + self.jitter * (2 * chance - 1)))


def _kinds(kinds: Kinds) -> tuple[type[BaseException], ...]:
    return kinds if isinstance(kinds, tuple) else (kinds,)


ONCE = RetryPolicy(max_attempts=1)
