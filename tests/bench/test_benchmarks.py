"""Laws of the benchmarks: each runs, and says what it found in the same form. No time is ever asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.__main__ import BENCHES
from bench.limits import Limits, mean
from bench.result import Budget, Result
from durable.testing.databases import Databases

ROOT = Path(__file__).parent.parent.parent
LIMITS = Limits(1000.0, 500.0, 1000.0, 200.0, 0.5)


@pytest.fixture(scope="module")
def everything(durable_databases: Databases) -> list[dict]:
    """The results of one tiny run of all benchmarks, as the command prints them."""
    command = [sys.executable, "-m", "bench", "--size", "tiny", "--json"]
    command += ["--database-url", durable_databases.url("postgres")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["results"]


@pytest.mark.parametrize("name", BENCHES)
def test_every_benchmark_says_what_it_measured_and_what_the_limits_were(everything: list[dict], name: str) -> None:
    """Each benchmark gives at least one case, with numbers and the bare limits measured beside it."""
    cases = [result for result in everything if result["bench"] == name]
    assert cases
    for case in cases:
        assert case["values"]
        assert all(isinstance(value, float | int) for value in case["values"].values())
        assert set(case["limits"]) == set(LIMITS.as_json())


def test_budgets_that_are_ratios_to_our_own_numbers_are_judged(everything: list[dict]) -> None:
    """Where a budget compares with our own limits or another case of ours, the verdict is there."""
    judged = {result["bench"] for result in everything if result["budgets"]}
    assert judged >= {"W1", "W2", "W5", "W6", "highway", "idle", "churn"}
    assert all(type(budget["met"]) is bool for result in everything for budget in result["budgets"])


def test_the_highway_benchmark_compares_in_one_run_and_counts_nodes(everything: list[dict]) -> None:
    """The same steps in code and as data on one worker, their ratio judged, and the walker's cost per node beside."""
    cases = [result for result in everything if result["bench"] == "highway"]
    *side_by_side, alone = cases
    for case in side_by_side:
        values = case["values"]
        assert values["of the code-first rate"] == pytest.approx(values["steps/s"] / values["steps/s in code"])
        assert [budget["must"] for budget in case["budgets"]] == [">= 0.4"]
    assert alone["values"]["us/node"] > 0


@pytest.mark.parametrize(("actual", "at_least", "met"), [(0.5, True, True), (0.4, True, False), (0.5, False, False)])
def test_a_budget_is_met_on_its_own_side_of_the_bound(actual: float, at_least: bool, met: bool) -> None:
    """A rate must reach its bound, a time must not pass it."""
    assert met == Budget("a ratio", 0.45, actual, at_least).met


def test_a_ratio_is_the_main_number_over_the_limit_beside_it() -> None:
    """The first number of a case is compared with the limit that the case names, and with nothing else."""
    assert Result("W1", "a case", {"steps/s": 450.0, "other": 1.0}, "rows_per_s", LIMITS).ratio == 0.45
    assert Result("W1", "a case", {"steps/s": 450.0}).ratio is None


def test_limits_measured_around_a_case_count_the_same() -> None:
    """So much work at each of these rates takes as long as at their mean; a time is a time."""
    after = Limits(3000.0, 1500.0, 3000.0, 600.0, 1.5)
    assert mean([LIMITS, after]) == Limits(1500.0, 750.0, 1500.0, 300.0, 1.0)
