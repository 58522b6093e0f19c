"""`durable schedules ...`: when workflows run by themselves. What a verb does is imported when it is called."""

from __future__ import annotations

from typing import Annotated

import typer

from durablectl.backfill_verbs import app as backfill
from durablectl.options import DatabaseUrl, Input, Json, Note, WorkflowName
from durablectl.trigger_verbs import app as triggers

app = typer.Typer(no_args_is_help=True, help="When workflows run by themselves: by cron, at intervals, on events.")
app.add_typer(backfill, name="backfill")
app.add_typer(triggers, name="triggers")

Limit = Annotated[int, typer.Option("--limit", min=1, max=10_000)]


@app.command("list")
def list_schedules(json: Json = False, database_url: DatabaseUrl = None) -> int:
    """Every schedule, with what it owes and what comes next."""
    from durablectl.schedules_looking import list_schedules

    return list_schedules(as_json=json, database_url=database_url)


@app.command()
def show(workflow: WorkflowName, json: Json = False, database_url: DatabaseUrl = None) -> int:
    """Everything about one schedule: its rule, why an owed run does not start, its last runs and its history."""
    from durablectl.schedules_looking import show_schedule

    return show_schedule(workflow, as_json=json, database_url=database_url)


@app.command("next")
def next_ticks(
    workflow: WorkflowName,
    count: Annotated[int, typer.Option("-n", "--count", min=1, max=10_000, help="How many.")] = 10,
    json: Json = False,
    database_url: DatabaseUrl = None,
) -> int:
    """The next times that it fires."""
    from durablectl.schedules_looking import next_ticks

    return next_ticks(workflow, count, as_json=json, database_url=database_url)


@app.command()
def history(workflow: WorkflowName, limit: Limit = 50, json: Json = False, database_url: DatabaseUrl = None) -> int:
    """What happened to a schedule, newest first: skips, late ticks, pauses, changes, clock jumps."""
    from durablectl.schedules_looking import show_history

    return show_history(workflow, limit, as_json=json, database_url=database_url)


@app.command("set")
def set_schedule(
    workflow: WorkflowName,
    cron: Annotated[
        str | None, typer.Argument(metavar="[CRON]", help="'0 2 * * *', @daily, @once, @continuous, ...")
    ] = None,
    every: Annotated[str | None, typer.Option("--every", metavar="LENGTH", help="15m, 2h, 1d; not CRON.")] = None,
    timezone: Annotated[str | None, typer.Option("--timezone", metavar="ZONE", help="Such as Europe/Berlin.")] = None,
    start_date: Annotated[str | None, typer.Option("--start-date", metavar="TIME")] = None,
    end_date: Annotated[str | None, typer.Option("--end-date", metavar="TIME")] = None,
    catchup: Annotated[str | None, typer.Option("--catchup", metavar="true|false|latest")] = None,
    catchup_window: Annotated[str | None, typer.Option("--catchup-window", metavar="LENGTH")] = None,
    overlap: Annotated[str | None, typer.Option("--overlap", metavar="queue|skip|cancel_old|allow")] = None,
    max_active_runs: Annotated[int | None, typer.Option("--max-active-runs")] = None,
    jitter: Annotated[str | None, typer.Option("--jitter", metavar="LENGTH")] = None,
    deadline: Annotated[str | None, typer.Option("--deadline", metavar="LENGTH", help="Then an alert.")] = None,
    on_deadline: Annotated[str | None, typer.Option("--on-deadline", metavar="NAME", help="Then this starts.")] = None,
    depends_on_past: Annotated[bool | None, typer.Option("--depends-on-past/--no-depends-on-past")] = None,
    input: Input = None,
    queue: Annotated[str | None, typer.Option("--queue")] = None,
    priority: Annotated[int | None, typer.Option("--priority", help="0 (first) to 9.")] = None,
    tag: Annotated[list[str] | None, typer.Option("--tag", help="Of its runs. Repeatable.")] = None,
    paused: Annotated[bool, typer.Option("--paused", help="A new schedule begins paused.")] = False,
    unset: Annotated[list[str] | None, typer.Option("--unset", metavar="FIELD", help="Forget it. Repeatable.")] = None,
    json: Json = False,
    database_url: DatabaseUrl = None,
) -> int:
    """Give a workflow a schedule, or change what is named of the one that it has."""
    from durablectl.schedules_setting import Order, set_schedule

    named = {
        "schedule": cron,
        "every": every,
        "timezone": timezone,
        "start_date": start_date,
        "end_date": end_date,
        "catchup": catchup,
        "catchup_window": catchup_window,
        "overlap": overlap,
        "jitter": jitter,
        "max_active_runs": max_active_runs,
        "deadline": deadline,
        "on_deadline": on_deadline,
        "queue": queue,
        "depends_on_past": depends_on_past,
        "prio": priority,
        "tags": tag,
        "is_paused": paused or None,
    }
    order = Order(workflow, {name: value for name, value in named.items() if value is not None}, input, unset or [])
    return set_schedule(order, as_json=json, database_url=database_url)


@app.command()
def remove(workflow: WorkflowName, database_url: DatabaseUrl = None) -> int:
    """Take a schedule away. Its runs and its history stay; runs in flight go on."""
    from durablectl.schedules_acting import remove_schedule

    return remove_schedule(workflow, database_url)


@app.command()
def pause(
    workflow: WorkflowName,
    note: Note = None,
    hold: Annotated[bool, typer.Option("--hold", help="Runs in line for a slot wait too.")] = False,
    database_url: DatabaseUrl = None,
) -> int:
    """Make no scheduled runs until it is unpaused. Manual runs still run."""
    from durablectl.schedules_acting import pause_schedule

    return pause_schedule(workflow, note, hold=hold, database_url=database_url)


@app.command()
def unpause(workflow: WorkflowName, note: Note = None, database_url: DatabaseUrl = None) -> int:
    """Go on; ticks of the pause are made only if catchup asks for them."""
    from durablectl.schedules_acting import unpause_schedule

    return unpause_schedule(workflow, note, database_url)


@app.command()
def trigger(
    workflow: WorkflowName,
    input: Input = None,
    at: Annotated[str | None, typer.Option("--at", metavar="TIME", help="The logical time it stands for.")] = None,
    rerun: Annotated[bool, typer.Option("--rerun", help="Again, though that tick has a run.")] = False,
    json: Json = False,
    database_url: DatabaseUrl = None,
) -> int:
    """Start a run by hand, paused or not, and print its id."""
    from durablectl.schedules_acting import trigger_run

    return trigger_run(workflow, input or [], at, rerun=rerun, as_json=json, database_url=database_url)


@app.command("skip-next")
def skip_next(workflow: WorkflowName, json: Json = False, database_url: DatabaseUrl = None) -> int:
    """Leave out the next tick."""
    from durablectl.schedules_acting import skip_next

    return skip_next(workflow, as_json=json, database_url=database_url)


@app.command()
def alerts(
    workflow: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Only of this workflow.")] = None,
    limit: Limit = 50,
    json: Json = False,
    database_url: DatabaseUrl = None,
) -> int:
    """Deadlines that were missed, newest first."""
    from durablectl.schedules_looking import list_alerts

    return list_alerts(workflow, limit, as_json=json, database_url=database_url)
