"""`python -m bench [W1 ...]`: run benchmarks and print what they found, with the budgets beside it."""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, NamedTuple

import structlog

from bench import churn, fanout, highway, idle, latency, limits, queue, report, resume, steps, ticks
from bench.against.comparison import Comparison
from bench.against.lines import COMPARED
from bench.against.rivals import RIVALS
from bench.limits import Limits
from bench.result import Result
from bench.sizes import NAMED
from bench.stage import Stage, stage, surroundings
from durable import process


class Bench(NamedTuple):
    """A benchmark: what it yields, and how its results are judged once all are in."""

    run: Callable[[Stage], AsyncIterator[Result]]
    judge: Callable[[list[Result]], None] = lambda results: None


async def bare(stage: Stage) -> AsyncIterator[Result]:
    """P0 alone."""
    found = await limits.measure(stage.bare, stage.sizes.limit_seconds * 4)
    yield Result("P0", "bare limits", found.as_json())


BENCHES = {
    "P0": Bench(bare),
    "W1": Bench(steps.run, steps.judge),
    "W2": Bench(queue.run, queue.judge),
    "W3": Bench(latency.start_to_result),
    "W4": Bench(latency.emit_to_resumed),
    "W5": Bench(resume.run, resume.judge),
    "W6": Bench(fanout.run, fanout.judge),
    "highway": Bench(highway.run, highway.judge),
    "ticks": Bench(ticks.run),
    "idle": Bench(idle.run, idle.judge),
    "churn": Bench(churn.run, churn.judge),
}


async def perform(name: str, stage: Stage, cases: int | None = None) -> list[Result]:
    """Run one benchmark, or its first cases; the bare limits are measured before and after each of them, unless it has
    measured them in between."""
    results: list[Result] = []
    before = await _limits(stage)
    async with aclosing(BENCHES[name].run(stage)) as running:
        async for result in running:
            after = await _limits(stage)
            result.limits = result.limits or limits.mean([before, after])
            before = after
            results.append(result)
            if len(results) == cases:
                break
    BENCHES[name].judge(results)
    return results


async def _limits(stage: Stage) -> Limits:
    return await limits.measure(stage.bare, stage.sizes.limit_seconds)


async def main(asked: argparse.Namespace) -> None:
    usual = "against" if asked.against else "default"
    sizes = NAMED["quick" if asked.quick else asked.size or usual]
    with stage(asked.database_url, sizes) as ours:
        about = surroundings(ours)
        if not asked.json:
            report.show_surroundings(about)
        if asked.against:
            await compare(asked, ours, about)
            return
        everything: list[dict[str, Any]] = []
        for name in asked.names or BENCHES:
            results = await perform(name, ours)
            everything += [result.as_json() for result in results]
            if not asked.json:
                report.show(name, results)
        if asked.json:
            print(json.dumps({"surroundings": about, "results": everything}, indent=2))


async def compare(asked: argparse.Namespace, stage: Stage, about: dict[str, Any]) -> None:
    comparison = Comparison()
    await comparison.invite(asked.against)
    rows = await comparison.hold(stage, asked.names or COMPARED, perform, asked.rounds)
    if asked.json:
        found = [row.as_json() for row in rows]
        print(json.dumps({"surroundings": about, "versions": comparison.versions, "against": found}, indent=2))
    else:
        report.show_comparison(rows, comparison.versions)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of {', '.join(BENCHES)}; all by default")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--quick", action="store_true", help="small sizes: less than a minute for all")
    parser.add_argument("--size", choices=NAMED, help="how much is done")
    parser.add_argument("--against", nargs="+", choices=RIVALS, metavar="RIVAL", default=[],
                        help=f"compare with any of {', '.join(RIVALS)} on the same server")  # fmt: skip
    parser.add_argument(
        "--rounds", type=int, default=3, help="turns of ours and theirs; the median of their ratios counts"
    )
    parser.add_argument("--database-url", help="a server to use instead of an embedded one; databases are made on it")
    asked = parser.parse_args()
    if wrong := [name for name in asked.names if name not in BENCHES]:
        parser.error(f"no benchmark {', '.join(wrong)}; there are {', '.join(BENCHES)}")
    if asked.against and (wrong := [name for name in asked.names if name not in COMPARED]):
        parser.error(f"nothing to compare {', '.join(wrong)} with; there are {', '.join(COMPARED)}")
    return asked


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    process.run(main(arguments()))
