"""Results as a table for people; `Result.as_json` is the one for programs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.against.contest import Row
from bench.against.table import table
from bench.limits import Limits
from bench.result import Result


def _console() -> Console:
    # Into a file or a pipe a table must not be folded to the width of a terminal that is not there.
    return Console() if sys.stdout.isatty() else Console(width=150)


def show_surroundings(about: dict[str, Any]) -> None:
    postgres = ", ".join(f"{name} {value}" for name, value in about["postgres"].items())
    _console().print(f"{about['cores']} cores, load {about['load']:.1f}; {postgres}", highlight=False)


def show(bench: str, results: Iterable[Result]) -> None:
    table = Table(title=bench, title_justify="left", title_style="bold")
    for column in ("case", "measured", "P0 beside it", "ratio", "budget"):
        table.add_column(column, overflow="fold")
    for result in results:
        table.add_row(result.case, _values(result), _limits(result.limits), _ratio(result), _budgets(result))
        table.add_section()
    _console().print(table)


def show_comparison(rows: Iterable[Row], versions: Mapping[str, str]) -> None:
    _console().print(table(rows, versions))


def _values(result: Result) -> str:
    lines = [f"{_number(value)} {name}" for name, value in result.values.items()]
    return "\n".join(lines + ([result.note] if result.note else []))


def _limits(limits: Limits | None) -> str:
    if limits is None:
        return ""
    return (
        f"{_number(limits.rows_per_s)} rows/s\n{_number(limits.commits_per_s)} commits/s"
        f" ({_number(limits.commit_ms)} ms)\n{_number(limits.notify_ms)} ms NOTIFY and back"
    )


def _ratio(result: Result) -> str:
    if result.ratio is None:
        return ""
    return f"{result.ratio:.2f} x {(result.against or '').replace('_per_s', '/s').replace('_ms', ' ms')}"


def _budgets(result: Result) -> str:
    said = []
    for budget in result.budgets:
        sign = ">=" if budget.at_least else "<="
        verdict = "met" if budget.met else "NOT MET"
        said.append(f"{verdict}: {budget.actual:.2f} {budget.what} ({sign} {budget.bound:g})")
    return "\n".join(said)


def _number(value: float) -> str:
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"
