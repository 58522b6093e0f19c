"""The comparison as a table for people; `Row.as_json` is the one for programs."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping

from rich.table import Table

from bench.against.contest import Row

VERDICT = {True: "reached", False: "NOT REACHED", None: ""}


def table(rows: Iterable[Row], versions: Mapping[str, str]) -> Table:
    shown = Table(title="against " + "; ".join(versions.values()), title_justify="left", title_style="bold")
    for column in ("bench", "case", "number", "ours", "theirs", "", "ratio", "goal", "verdict"):
        shown.add_column(column, overflow="fold")
    for row in rows:
        shown.add_row(*cells(row))
    return shown


def cells(row: Row) -> tuple[str, ...]:
    line = row.line
    whose = f"{line.rival}, {line.note}" if line.note else line.rival
    left = (line.bench, row.case, line.ours, _median(row.ours))
    if row.ratio is None:
        return (*left, "-", whose, "", str(line.goal or ""), f"not measured: {row.reason}")
    return (*left, _median(row.theirs), whose, number(row.ratio), str(line.goal or ""), VERDICT[row.reached])


def _median(numbers: list[float]) -> str:
    return number(statistics.median(numbers)) if numbers else "-"


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
