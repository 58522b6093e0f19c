"""What a benchmark found: numbers as measured, the limits measured next to them, and the budgets they must keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.limits import Limits


@dataclass(frozen=True)
class Budget:
    """A ratio that must be reached (`at_least`) or must not be passed."""

    what: str
    bound: float
    actual: float
    at_least: bool = True

    @property
    def met(self) -> bool:
        return self.actual >= self.bound if self.at_least else self.actual <= self.bound

    def as_json(self) -> dict[str, Any]:
        sign = ">=" if self.at_least else "<="
        return {"what": self.what, "must": f"{sign} {self.bound:g}", "actual": self.actual, "met": self.met}


@dataclass
class Result:
    """One case of one benchmark. `against` names the bare limit that its main number is compared with."""

    bench: str
    case: str
    values: dict[str, float]
    against: str | None = None
    limits: Limits | None = None
    budgets: list[Budget] = field(default_factory=list)
    note: str | None = None

    @property
    def main(self) -> tuple[str, float]:
        return next(iter(self.values.items()))

    @property
    def ratio(self) -> float | None:
        """The main number as a multiple of the bare limit."""
        if self.against is None or self.limits is None:
            return None
        return self.main[1] / float(getattr(self.limits, self.against))

    def as_json(self) -> dict[str, Any]:
        return {
            "bench": self.bench,
            "case": self.case,
            "values": self.values,
            "limits": None if self.limits is None else self.limits.as_json(),
            "against": self.against,
            "ratio": self.ratio,
            "budgets": [budget.as_json() for budget in self.budgets],
            "note": self.note,
        }


def percentile(numbers: Sequence[float], share: float) -> float:
    ordered = sorted(numbers)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
