"""The `durable` command: its verbs and how they end. What a verb does is imported when it is called."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from durablectl import deploy, exits
from durablectl.db_verbs import app as db
from durablectl.options import Allow, DatabaseUrl, Input, Json, Modules, Queues, Slots
from durablectl.runs_verbs import app as runs
from durablectl.schedules_verbs import app as schedules
from durablectl.secrets_verbs import app as secrets

app = typer.Typer(
    name="durable",
    help="Workflows on PostgreSQL that run to their end, whatever dies on the way.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(runs, name="runs")
app.add_typer(schedules, name="schedules")
app.add_typer(db, name="db")
app.add_typer(secrets, name="secrets")
deploy.register(app)

# Every error of the parser is one of these; the parser's own package is not ours to import.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and end the process with its exit code."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """Run the command; its exit code."""
    try:
        code = app(list(arguments), prog_name="durable", standalone_mode=False)
    except _UsageError as exc:
        return _misused(exc)
    except typer.Abort:
        return exits.INTERRUPTED
    except Exception as exc:
        # The one place where every error of every verb becomes a message and an exit code.
        return exits.complain(exc)
    return code if isinstance(code, int) else exits.OK


def _misused(error: Exception) -> int:
    context = getattr(error, "ctx", None)
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    if context is not None and not message:
        print(context.get_help())
        return exits.USAGE
    path = context.command_path if context is not None else "durable"
    print(f"durable: {message}\nSee `{path} --help`.", file=sys.stderr)
    return exits.USAGE


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(version("durable"))
        raise typer.Exit


@app.callback()
def durable(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    """Workflows on PostgreSQL that run to their end, whatever dies on the way."""


@app.command()
def dev(
    modules: Annotated[list[str] | None, typer.Argument(metavar="[MODULE...]", help="Where workflows are.")] = None,
    run: Annotated[str | None, typer.Option("--run", metavar="NAME", help="Run this workflow, then end.")] = None,
    input: Input = None,
    allow: Allow = None,
    queue: Queues = None,
    database_url: DatabaseUrl = None,
) -> int:
    """Start everything here: a database, a worker, and what to try next. Ctrl-C ends it all."""
    from durablectl.dev import Order, develop

    return develop(Order(modules or [], run, input or [], queue, database_url, allow or []))


@app.command()
def worker(
    modules: Modules = None,
    allow: Allow = None,
    queue: Queues = None,
    slots: Slots = None,
    processes: Annotated[int, typer.Option("--processes", min=1, max=256, help="Worker processes.")] = 1,
    database_url: DatabaseUrl = None,
    leash: Annotated[int | None, typer.Option("--leash", hidden=True)] = None,
) -> int:
    """Run workflows of modules, and deployed ones with --allow, until SIGTERM or Ctrl-C; a second one hurries."""
    from durablectl.worker import Order, work

    return work(Order(modules or [], queue, slots, processes, database_url, leash, allow or []))


@app.command()
def scheduler(
    database_url: DatabaseUrl = None,
    leash: Annotated[int | None, typer.Option("--leash", hidden=True)] = None,
) -> int:
    """Make the runs of schedules, backfills and event triggers, until SIGTERM or Ctrl-C. As many as you like."""
    from durablectl.scheduler import schedule

    return schedule(database_url, leash)


@app.command()
def up(
    modules: Modules = None,
    allow: Allow = None,
    queue: Queues = None,
    slots: Slots = None,
    processes: Annotated[int, typer.Option("--processes", min=1, max=256, help="Worker processes.")] = 1,
    database_url: DatabaseUrl = None,
) -> int:
    """Run workers and a scheduler, each a process that is started again when it ends, until SIGTERM or Ctrl-C."""
    from durablectl.up import run_all
    from durablectl.worker import Order

    return run_all(Order(modules or [], queue, slots, processes, database_url, None, allow or []))


@app.command()
def start(
    workflow: Annotated[str, typer.Argument(metavar="NAME", help="The name of a workflow.")],
    input: Input = None,
    key: Annotated[str | None, typer.Option("--key", help="The same key is the same run.")] = None,
    queue: Annotated[str | None, typer.Option("--queue", help="The workflow's own by default.")] = None,
    priority: Annotated[int | None, typer.Option("--priority", help="0 (first) to 9; 5 by default.")] = None,
    at: Annotated[str | None, typer.Option("--at", metavar="TIME", help="Not before, like 2026-01-31T09:00Z.")] = None,
    tag: Annotated[list[str] | None, typer.Option("--tag", help="Find it by this later. Repeatable.")] = None,
    cap_key: Annotated[str | None, typer.Option("--cap-key", help="What per-key caps count by.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end and print the result.")] = False,
    json: Json = False,
    database_url: DatabaseUrl = None,
) -> int:
    """Start a run and print its id."""
    from durablectl.starting import Order, start_run

    order = Order(workflow, input or [], key, queue, priority, at, tag or [], cap_key)
    return start_run(order, wait=wait, as_json=json, database_url=database_url)


@app.command()
def emit(
    event: Annotated[str, typer.Argument(metavar="EVENT", help="The name that runs wait for.")],
    payload: Annotated[str, typer.Option("--payload", metavar="JSON", help="JSON, or @file.json.")] = "null",
    key: Annotated[str | None, typer.Option("--key", help="The same key emits once.")] = None,
    json: Json = False,
    database_url: DatabaseUrl = None,
) -> int:
    """Emit an event to every run that waits for it, now or later."""
    from durablectl.starting import emit_event

    return emit_event(event, payload, key, as_json=json, database_url=database_url)
