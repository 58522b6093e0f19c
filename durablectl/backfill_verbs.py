"""`durable schedules backfill ...`: ticks of the past, on purpose. What a verb does is imported when it is called."""

from __future__ import annotations

from typing import Annotated

import typer

from durablectl.options import DatabaseUrl, Json, Note, WorkflowName

app = typer.Typer(no_args_is_help=True, help="Make runs for ticks of the past, a few at a time.")

Backfill = Annotated[str, typer.Argument(metavar="BACKFILL", help="The id of a backfill.")]


@app.command()
def create(
    workflow: WorkflowName,
    first: Annotated[str, typer.Option("--from", metavar="TIME", help="The first tick; the schedule's zone.")],
    last: Annotated[str, typer.Option("--to", metavar="TIME", help="The last tick, included.")],
    limit: Annotated[int, typer.Option("--limit", help="Unfinished runs at a time.")] = 1,
    reprocess: Annotated[str, typer.Option("--reprocess", metavar="none|failed|completed")] = "none",
    newest_first: Annotated[bool, typer.Option("--newest-first")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be made.")] = False,
    note: Note = None,
    json: Json = False,
    database_url: DatabaseUrl = None,
) -> int:
    """Begin a backfill and print its id."""
    from durablectl.backfilling import Order, create_backfill

    order = Order(workflow, first, last, limit, reprocess, newest_first, note)
    return create_backfill(order, dry_run=dry_run, as_json=json, database_url=database_url)


@app.command("list")
def list_backfills(
    workflow: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Only of this workflow.")] = None,
    json: Json = False,
    database_url: DatabaseUrl = None,
) -> int:
    """The newest backfills first."""
    from durablectl.backfilling import list_backfills

    return list_backfills(workflow, as_json=json, database_url=database_url)


@app.command()
def show(backfill: Backfill, json: Json = False, database_url: DatabaseUrl = None) -> int:
    """How far a backfill is, and its runs."""
    from durablectl.backfilling import show_backfill

    return show_backfill(backfill, as_json=json, database_url=database_url)


@app.command()
def pause(backfill: Backfill, note: Note = None, database_url: DatabaseUrl = None) -> int:
    """Make no more runs of it; those that were made go on."""
    from durablectl.backfilling import switch_backfill

    return switch_backfill("pause", backfill, note, database_url)


@app.command()
def resume(backfill: Backfill, note: Note = None, database_url: DatabaseUrl = None) -> int:
    """Go on."""
    from durablectl.backfilling import switch_backfill

    return switch_backfill("resume", backfill, note, database_url)


@app.command()
def cancel(backfill: Backfill, note: Note = None, database_url: DatabaseUrl = None) -> int:
    """End it, with those of its runs that have not ended."""
    from durablectl.backfilling import switch_backfill

    return switch_backfill("cancel", backfill, note, database_url)
