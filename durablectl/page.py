"""Pages of text: rows under titles, coloured in a terminal, and plain and stable when piped."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from durable.runs import LogLine, RunInfo
from durablectl.story import NOTE, StepLine, Story, said

if TYPE_CHECKING:
    from rich.console import OverflowMethod, RenderableType

MANY = 20
LONG = 200
COLOURS = {
    "succeeded": "green", "done": "green", "received": "green", "joined": "green", "slept": "green",
    "failed": "red", "timed out": "red", "cancelled": "yellow", "retrying": "yellow", "begun": "yellow",
    "running": "cyan", "ready": "blue", "parked": "magenta", "sleeping": "magenta", "queued": "blue", "delayed": "blue",
}  # fmt: skip


@dataclass
class Table:
    """Rows under a title; an empty one is not shown."""

    title: str
    rows: Sequence[Sequence[str]]
    header: Sequence[str] = field(default=())


def show(tables: Sequence[Table]) -> None:
    """Print a page to standard output."""
    if sys.stdout.isatty():
        from rich.console import Console

        Console().print(drawn(tables))
    else:
        print(plain(tables))


def plain(tables: Sequence[Table]) -> str:
    return "\n\n".join(_plain(table) for table in tables if table.rows)


def _plain(table: Table) -> str:
    rows = [*([table.header] if table.header else []), *table.rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "\n".join([*([table.title] if table.title else []), *lines])


def drawn(tables: Sequence[Table]) -> RenderableType:
    """The page for a terminal."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = []
    for table in tables:
        if table.rows:
            parts += [Text(f"\n{table.title}", style="bold")] if table.title else []
            parts.append(_drawn(table))
    return Group(*parts)


def _drawn(table: Table) -> RenderableType:
    from rich.table import Table as RichTable
    from rich.text import Text

    grid = RichTable(box=None, show_header=bool(table.header), header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    last = len(table.rows[0]) - 1
    for column in range(last + 1):
        wraps = column == last and not table.header
        # The first column holds what a person copies: it is never cut.
        least = max(len(row[0]) for row in table.rows) if column == 0 else None
        overflow: OverflowMethod = "fold" if wraps else "ellipsis"
        title = table.header[column] if table.header else ""
        grid.add_column(title, overflow=overflow, no_wrap=not wraps, min_width=least)
    for row in table.rows:
        grid.add_row(*(Text(cell, style=COLOURS.get(cell, "")) for cell in row))
    return grid


# ---------------------------------------------------------------- a run


def story_page(story: Story) -> list[Table]:
    """Everything about one run, the most important first."""
    return [
        Table("", _head(story)),
        Table("steps", [_step_row(step) for step in story.of_task(story.run.run_id)], STEP_HEADER),
        _children(story),
        Table("log", [_log_row(line) for line in story.logs if line.level != NOTE][-MANY:]),
        Table("next", [(command,) for command in story.next]),
    ]


def live_page(story: Story) -> list[Table]:
    """What moves while a run goes on, short enough for a terminal."""
    head: list[Sequence[str]] = [("run", f"{story.run.workflow} {story.run.run_id}"), ("state", story.run.state)]
    waits = [("waits for", text) for text in story.waiting_for] or [("", "")]
    below = [step for step in story.steps if step.task_id != story.run.run_id]
    return [
        Table("", [*head, *waits]),
        Table("steps", [_step_row(step) for step in story.of_task(story.run.run_id)], STEP_HEADER),
        Table(f"steps of {len(story.children)} children", [_step_row(step) for step in below[-MANY:]], STEP_HEADER),
    ]


def _head(story: Story) -> list[Sequence[str]]:
    run = story.run
    rows = [
        ("run", str(run.run_id)),
        ("workflow", f"{run.workflow} (queue {run.queue}, priority {run.prio})"),
        ("state", run.state),
        *(("waits for", text) for text in story.waiting_for),
        ("created", said(run.created_at)),
        ("started", said(run.started_at)),
        ("finished", said(run.finished_at)),
        ("took", took(run)),
        ("tags", ", ".join(run.tags or [])),
        ("worker", str(run.worker_id or "")),
        ("input", short(run.input)),
        ("result", short(run.result) if run.state == "succeeded" else ""),
        ("error", failure(run.error)),
        *(("progress", _progress(line.done, line.total, line.note)) for line in story.progress),
    ]
    return [row for row in rows if row[1] not in ("", "-")]


STEP_HEADER = ("step", "state", "attempts", "took", "result or error")


def _step_row(step: StepLine) -> Sequence[str]:
    said_of = failure(step.error) if step.error else "" if step.result is None else short(step.result, 80)
    attempts = str(step.attempts) if step.attempts else ""
    return step.name, step.state, attempts, "" if step.ms is None else duration(step.ms / 1000), said_of


def _children(story: Story) -> Table:
    rows: list[Sequence[str]] = []
    for child in story.children[:MANY]:
        done = sum(step.state == "done" for step in story.of_task(child.task_id))
        end = failure(child.error) if child.error else short(child.result, 80) if child.finished_at else ""
        rows.append((str(child.task_id), child.workflow, child.state, f"{done} steps", end))
    if len(story.children) > MANY:
        rest = len(story.children) - MANY
        rows.append((f"and {rest} more", "", "", "", ""))
    return Table("children", rows, ("task", "workflow", "state", "recorded", "result or error"))


def failure(error: dict[str, Any] | None) -> str:
    """An error in one line."""
    if not error:
        return ""
    where = f" in step {error['step']!r}" if error.get("step") else ""
    first = str(error.get("message", "")).strip().partition("\n")[0]
    return f"{error.get('type')}{where}: {first}"[:LONG]


def _progress(done: float, total: float | None, note: str | None) -> str:
    share = f"{done:g} of {total:g}" if total else f"{done:g}"
    return f"{share} {note or ''}".strip()


def _log_row(line: LogLine) -> Sequence[str]:
    fields = [f"{name}={value}" for name, value in (line.fields or {}).items()]
    return said(line.at), line.level, line.step or "", " ".join([line.message, *fields])


# ---------------------------------------------------------------- many runs

LIST_HEADER = ("run", "workflow", "state", "created", "took", "tags")


def list_row(run: RunInfo, now: datetime | None = None) -> Sequence[str]:
    """One line for a run; with `now` its age instead of its time, which is what a person looks for."""
    created = f"{age((now - run.created_at).total_seconds())} ago" if now else said(run.created_at)
    return str(run.run_id), run.workflow, run.state, created, took(run), ",".join(run.tags or [])


# ---------------------------------------------------------------- values


def took(run: RunInfo) -> str:
    if run.started_at is None:
        return "-"
    end = run.finished_at or datetime.now(UTC)
    return duration(max(0.0, (end - run.started_at).total_seconds()))


def duration(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def age(seconds: float) -> str:
    """Roughly how long, in one unit."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def short(value: Any, limit: int = LONG) -> str:
    """A value in one line, cut where it gets long."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
