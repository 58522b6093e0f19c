"""How much each benchmark does. One rule: a size changes the amount of work, never its kind."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """The amounts of one run of the benchmarks."""

    limit_seconds: float
    in_flight: tuple[tuple[int, int], ...]
    trivial: int
    finished: int
    parked: int
    ready: int
    latencies: int
    resume_steps: int
    resume_loops: int
    resumes: int
    children: tuple[int, ...]
    idle_seconds: float
    parked_in_memory: int
    churn: int
    walks: int


DEFAULT = Sizes(
    limit_seconds=0.5,
    in_flight=((1_000, 500), (10_000, 500), (300, 10), (100, 1)),
    trivial=30_000,
    finished=1_000_000,
    parked=100_000,
    ready=100_000,
    latencies=300,
    resume_steps=5_000,
    resume_loops=10_000,
    resumes=5,
    children=(500, 10_000),
    idle_seconds=20.0,
    parked_in_memory=10_000,
    churn=200_000,
    walks=5_000,
)
QUICK = Sizes(
    limit_seconds=0.15,
    in_flight=((1_000, 500), (50, 10), (20, 1)),
    trivial=3_000,
    finished=20_000,
    parked=2_000,
    ready=2_000,
    latencies=50,
    resume_steps=1_000,
    resume_loops=2_000,
    resumes=1,
    children=(100, 1_000),
    idle_seconds=2.0,
    parked_in_memory=1_000,
    churn=10_000,
    walks=1_000,
)
TINY = Sizes(
    limit_seconds=0.02,
    in_flight=((2, 1),),
    trivial=50,
    finished=200,
    parked=20,
    ready=20,
    latencies=5,
    resume_steps=30,
    resume_loops=30,
    resumes=1,
    children=(5, 20),
    idle_seconds=0.2,
    parked_in_memory=20,
    churn=200,
    walks=10,
)
# The sustained churn of the budget takes minutes by itself.
FULL = Sizes(**{**DEFAULT.__dict__, "churn": 1_000_000, "latencies": 1_000})

# What stands next to the numbers of other systems, over several rounds.
AGAINST = Sizes(
    **{
        **QUICK.__dict__,
        "in_flight": ((5_000, 500), (300, 10), (100, 1)),
        "trivial": 20_000,
        "latencies": 100,
        "resume_steps": 5_000,
        "resume_loops": 10,
        "children": (500,),
    }
)

NAMED = {"default": DEFAULT, "quick": QUICK, "tiny": TINY, "full": FULL, "against": AGAINST}
