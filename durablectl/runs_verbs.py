"""`durable runs ...`: look at runs, and act on them."""

from __future__ import annotations

from typing import Annotated

import typer

from durablectl.options import DatabaseUrl, Input, Json, Run, Version

app = typer.Typer(no_args_is_help=True, help="Look at runs, and act on them.")


@app.command("list")
def list_runs(
    state: Annotated[str | None, typer.Option("--state", help="ready, running, parked, failed, ...")] = None,
    workflow: Annotated[str | None, typer.Option("--workflow")] = None,
    tag: Annotated[str | None, typer.Option("--tag")] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="A time, or an age: 15m, 2h, 7d.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000)] = 50,
    json: Json = False,
    database_url: DatabaseUrl = None,
) -> int:
    """The newest runs first."""
    from durablectl.looking import Filter, list_runs

    return list_runs(Filter(state, workflow, tag, since, limit), as_json=json, database_url=database_url)


@app.command()
def show(run: Run, json: Json = False, database_url: DatabaseUrl = None) -> int:
    """Everything about one run: steps, waits, children, log, error and what to do next."""
    from durablectl.looking import show_run

    return show_run(run, as_json=json, database_url=database_url)


@app.command()
def watch(run: Run, json: Json = False, database_url: DatabaseUrl = None) -> int:
    """Follow a run until it ends; exits with 0 if it succeeded, else with 1."""
    from durablectl.looking import watch_run

    return watch_run(run, as_json=json, database_url=database_url)


@app.command()
def cancel(
    run: Run,
    reason: Annotated[str, typer.Option("--reason")] = "cancelled by a person",
    database_url: DatabaseUrl = None,
) -> int:
    """Ask a run to end, with everything below it."""
    from durablectl.acting import cancel_run

    return cancel_run(run, reason, database_url)


@app.command()
def why(
    run: Run,
    task: Annotated[str | None, typer.Argument(metavar="[TASK]", help="Only this task.")] = None,
    json: Json = False,
    database_url: DatabaseUrl = None,
) -> int:
    """Why each task of a deployed workflow's run ran, was skipped, failed or has not begun."""
    from durablectl.explaining import explain_run

    return explain_run(run, task, as_json=json, database_url=database_url)


@app.command()
def resume(run: Run, version: Version = None, database_url: DatabaseUrl = None) -> int:
    """The same as retry: a failed or cancelled run goes on from the step that failed."""
    from durablectl.acting import retry_run

    return retry_run(run, version, database_url)


@app.command()
def retry(run: Run, version: Version = None, database_url: DatabaseUrl = None) -> int:
    """Let a failed or cancelled run go on from the step that failed."""
    from durablectl.acting import retry_run

    return retry_run(run, version, database_url)


@app.command()
def fork(
    run: Run,
    step: Annotated[
        str | None, typer.Option("--from", metavar="STEP", help="Keep the records before it; else none.")
    ] = None,
    input: Input = None,
    version: Version = None,
    json: Json = False,
    database_url: DatabaseUrl = None,
) -> int:
    """Start a new run from a step of an old one, with the old input or a new one."""
    from durablectl.acting import fork_run

    return fork_run(run, step, input, version, as_json=json, database_url=database_url)


@app.command()
def decide(
    run: Run,
    step: Annotated[str, typer.Argument(metavar="STEP", help="The at-most-once step that is uncertain.")],
    ran: Annotated[str | None, typer.Option("--ran", metavar="JSON", help="It took effect, with this result.")] = None,
    again: Annotated[bool, typer.Option("--again", help="It did not take effect: run it.")] = False,
    fail: Annotated[str | None, typer.Option("--fail", metavar="WHY", help="It failed.")] = None,
    database_url: DatabaseUrl = None,
) -> int:
    """Say what became of a step that must not run twice and was cut off."""
    from durablectl.acting import Verdict, decide_step

    return decide_step(run, step, Verdict.of(ran, again, fail), database_url)
