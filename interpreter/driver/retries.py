"""A plan's retry rules as a policy of the runtime's own steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from durable import RetryAfter, RetryPolicy
from durable.failures import describe
from interpreter.plan import RetryRule
from interpreter.walker.retry import delay_before, matching_rule

# Waits have no cap unless a rule has one; the runtime wants a number.
_NO_CAP: Final = 10 * 365 * 86400.0


@dataclass(frozen=True, slots=True)
class RulePolicy(RetryPolicy):
    """Rules that tell errors apart, or wait longer by a fixed amount."""

    rules: tuple[RetryRule, ...] = ()

    def rest(self, attempt: int, error: BaseException, chance: float | None = None) -> float | None:
        if not self._retryable(error):
            return None
        described = describe(error)
        found = matching_rule(self.rules, {"type": described["type"], "mro": described.get("types", [])})
        if found is None or attempt >= self.rules[found].attempts:
            return None
        return error.seconds if isinstance(error, RetryAfter) else delay_before(self.rules[found], attempt)


def policy(rules: tuple[RetryRule, ...]) -> RetryPolicy | None:
    """The policy these rules mean; none without rules."""
    if not rules:
        return None
    rule = rules[0]
    if len(rules) > 1 or rule.errors or rule.backoff == "linear":
        return RulePolicy(max_attempts=max(rule.attempts for rule in rules), rules=rules)
    factor = rule.factor if rule.backoff == "exponential" else 1.0
    cap = _NO_CAP if rule.max_delay is None else rule.max_delay
    return RetryPolicy(max_attempts=rule.attempts, delay=rule.delay, backoff=factor, max_delay=cap)
