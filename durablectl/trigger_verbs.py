"""`durable schedules triggers ...`: workflows that start on events. What a verb does is imported when it is called."""

from __future__ import annotations

from typing import Annotated

import typer

from durablectl.options import DatabaseUrl, Input, Json, Note, WorkflowName

app = typer.Typer(no_args_is_help=True, help="Start workflows on events.")


@app.command("list")
def list_triggers(
    workflow: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Only of this workflow.")] = None,
    json: Json = False,
    database_url: DatabaseUrl = None,
) -> int:
    """Which workflows start on which events."""
    from durablectl.triggering import list_triggers

    return list_triggers(workflow, as_json=json, database_url=database_url)


@app.command("set")
def set_trigger(
    workflow: WorkflowName,
    events: Annotated[list[str], typer.Argument(metavar="EVENT...", help="Names; * stands for any text.")],
    every: Annotated[bool, typer.Option("--all", help="When one of each has come; else on any of them.")] = False,
    per: Annotated[str | None, typer.Option("--per", metavar="CRON", help="One run for each of its intervals.")] = None,
    timezone: Annotated[str, typer.Option("--timezone", metavar="ZONE")] = "UTC",
    input: Input = None,
    queue: Annotated[str | None, typer.Option("--queue", help="The workflow's own by default.")] = None,
    priority: Annotated[int | None, typer.Option("--priority", min=0, max=9)] = None,
    tag: Annotated[list[str] | None, typer.Option("--tag", help="Of its runs. Repeatable.")] = None,
    database_url: DatabaseUrl = None,
) -> int:
    """Start a workflow on events, once for each, with their payload as its input."""
    from durablectl.triggering import Order, set_trigger

    order = Order(workflow, events, "all" if every else "any", per, timezone, input or [], queue, priority, tag or [])
    return set_trigger(order, database_url)


@app.command()
def remove(workflow: WorkflowName, database_url: DatabaseUrl = None) -> int:
    """No longer start it on events."""
    from durablectl.triggering import remove_trigger

    return remove_trigger(workflow, database_url)


@app.command()
def pause(workflow: WorkflowName, note: Note = None, database_url: DatabaseUrl = None) -> int:
    """Start nothing until it is unpaused; events are kept aside."""
    from durablectl.triggering import pause_trigger

    return pause_trigger(workflow, note, database_url)


@app.command()
def unpause(
    workflow: WorkflowName,
    keep: Annotated[bool, typer.Option("--keep", help="Also start on what came meanwhile.")] = False,
    database_url: DatabaseUrl = None,
) -> int:
    """Start on events again; those of the pause are skipped unless they are kept."""
    from durablectl.triggering import unpause_trigger

    return unpause_trigger(workflow, keep=keep, database_url=database_url)


@app.command()
def runs(
    workflow: WorkflowName,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000)] = 50,
    json: Json = False,
    database_url: DatabaseUrl = None,
) -> int:
    """The runs that events have started, newest first."""
    from durablectl.triggering import list_trigger_runs

    return list_trigger_runs(workflow, limit, as_json=json, database_url=database_url)
