"""Whether a failure is tried again, and after which wait. Pure; a driver uses it for leaves too."""

from __future__ import annotations

from typing import Any

from interpreter.plan import RetryRule


def error_matches(names: tuple[str, ...], error: dict[str, Any]) -> bool:
    """Whether an error is one of these types: by its class or a class it derives from, bare or dotted."""
    known = [*error.get("mro", ()), error.get("type", "")]
    bare = {name.rpartition(".")[2] for name in known}
    return any(name in known or name in bare for name in names)


def matching_rule(rules: tuple[RetryRule, ...], error: dict[str, Any]) -> int | None:
    """The first rule that names this error, else the first that names none."""
    for position, rule in enumerate(rules):
        if rule.errors and error_matches(rule.errors, error):
            return position
    return next((position for position, rule in enumerate(rules) if not rule.errors), None)


def delay_before(rule: RetryRule, retry: int) -> float:
    """The wait before retry number `retry` (1-based)."""
    scale = {"fixed": 1.0, "linear": float(retry), "exponential": rule.factor ** (retry - 1)}[rule.backoff]
    delay = rule.delay * scale
    return delay if rule.max_delay is None else min(delay, rule.max_delay)


def next_try(
    rules: tuple[RetryRule, ...], used: dict[str, int], error: dict[str, Any]
) -> tuple[float, dict[str, int]] | None:
    """The wait and the new counts if this failure is tried again, `None` if it stands.

    `used` counts the retries of each rule by its position; every rule has a counter of its own.
    """
    position = matching_rule(rules, error)
    if position is None:
        return None
    retry = used.get(str(position), 0) + 1
    if retry >= rules[position].attempts:
        return None
    return delay_before(rules[position], retry), {**used, str(position): retry}
