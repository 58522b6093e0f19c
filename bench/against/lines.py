"""The lines of the comparison: which number of ours stands next to which number of theirs, and the goal.

A goal is a bound of ours / theirs. A line without one is shown because it helps to read the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.sizes import Sizes

# Its own public clients poll; both ends every 2 ms is as often as one would in earnest.
OFTEN = {"poll": 0.002}
BARE = "bare server"


@dataclass(frozen=True)
class Goal:
    """What ours / theirs must reach (`at_least`), or must not pass."""

    bound: float
    at_least: bool

    def reached(self, ratio: float) -> bool:
        return ratio >= self.bound if self.at_least else ratio <= self.bound

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.bound:g}"


def times(bound: float) -> Goal:
    return Goal(bound, at_least=True)


def at_most(bound: float) -> Goal:
    return Goal(bound, at_least=False)


@dataclass(frozen=True)
class Play:
    """What a rival's runner is asked to do. Rates need fewer workflows where a rival is slow."""

    name: str
    given: Callable[[Sizes], dict[str, Any]]


@dataclass(frozen=True)
class Line:
    """`case` is a part of the name of our case; the last case that has it counts."""

    bench: str
    case: str
    ours: str
    rival: str
    theirs: str
    play: Play | None = None
    goal: Goal | None = None
    note: str = ""


def steps(workflows: int, in_flight: int) -> Play:
    return Play("steps", lambda sizes: {"workflows": workflows, "in_flight": in_flight})


def latency(name: str, share: float = 1.0, **given: Any) -> Play:
    return Play(name, lambda sizes: {"count": max(1, int(sizes.latencies * share)), **given})


QUEUE = Play("queue", lambda sizes: {"tasks": min(sizes.trivial, 10_000)})
SHORT_QUEUE = Play("queue", lambda sizes: {"tasks": min(sizes.trivial, 2_000)})
RESUME = Play("resume", lambda sizes: {"steps": sizes.resume_steps})
FAN_OUT = Play("fan_out", lambda sizes: {"children": sizes.children[0]})
START = "start_to_result"
EMIT = "emit_to_resumed"

LINES = (
    Line("W1", " 500 in flight", "steps/s", BARE, "rows_per_s", goal=times(0.45), note="inserts of 200 rows"),
    Line("W1", " 500 in flight", "steps/s", "absurd", "steps/s", steps(500, 500), times(25)),
    Line("W1", " 500 in flight", "steps/s", "dbos", "steps/s", steps(100, 500), times(100)),
    Line("W1", " 10 in flight", "steps/s", "absurd", "steps/s", steps(100, 10), times(6)),
    Line("W1", " 10 in flight", "steps/s", "dbos", "steps/s", steps(40, 10)),
    Line("W1", " 1 in flight", "ms/step", BARE, "commit_ms", goal=at_most(1.25), note="one commit"),
    Line("W1", " 1 in flight", "steps/s", "absurd", "steps/s", steps(30, 1)),
    Line("W1", " 1 in flight", "steps/s", "dbos", "steps/s", steps(15, 1)),
    Line("W2", "enqueue, empty", "tasks/s", "pgqueuer", "enqueued/s", QUEUE, times(2)),
    Line("W2", "enqueue, empty", "tasks/s", "absurd", "enqueued/s", SHORT_QUEUE),
    Line("W2", "drain, empty", "tasks/s", "pgqueuer", "drained/s", QUEUE, times(2)),
    Line("W2", "drain, empty", "tasks/s", "absurd", "drained/s", SHORT_QUEUE),
    Line("W3", "start to result", "p50 ms", "absurd", "p50 ms", latency(START, **OFTEN), at_most(0.5), "every 2 ms"),
    Line("W3", "start to result", "p50 ms", "absurd", "p50 ms", latency(START, 0.1), note="by default"),
    Line("W3", "start to result", "p50 ms", "dbos", "p50 ms", latency(START, 0.5), note="every 2 ms"),
    Line("W4", "emit to resumed", "p50 ms", "absurd", "p50 ms", latency(EMIT, **OFTEN), at_most(0.6), "every 2 ms"),
    Line("W4", "emit to resumed", "p50 ms", "absurd", "p50 ms", latency(EMIT, 0.1), note="by default"),
    Line("W4", "emit to resumed", "p50 ms", "dbos", "p50 ms", latency(EMIT, 0.5)),
    Line("W5", " steps", "ms from claim", "absurd", "ms from claim", RESUME, at_most(1)),
    Line("W5", " steps", "ms from ready", "absurd", "ms from ready", RESUME, at_most(1)),
    Line("W5", " steps", "ms from ready", "dbos", "ms from ready", RESUME),
    Line("W6", " children", "seconds", "absurd", "seconds", FAN_OUT, at_most(0.1)),
    Line("W6", " children", "seconds", "dbos", "seconds", FAN_OUT),
)

COMPARED = tuple(dict.fromkeys(line.bench for line in LINES))
