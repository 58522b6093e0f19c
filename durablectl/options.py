"""Options that several verbs share, each described once."""

from __future__ import annotations

from typing import Annotated

import typer

DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        "--database-url",
        metavar="URL",
        help="The store; else DURABLE_DATABASE_URL, else the embedded server in ./.durable/pg.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Run = Annotated[str, typer.Argument(metavar="RUN", help="The id of a run.")]
Input = Annotated[
    list[str] | None,
    typer.Option("--input", metavar="NAME=VALUE", help="An argument; also a JSON object, or @file.json. Repeatable."),
]
Modules = Annotated[
    list[str] | None,
    typer.Argument(metavar="[MODULE...]", help="package.module, package.module:name or path/to/file.py"),
]
Queues = Annotated[
    list[str] | None,
    typer.Option("--queue", metavar="QUEUE", help="Serve this queue; by default those of the workflows. Repeatable."),
]
Allow = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        metavar="PACKAGE.",
        help="Deployed workflows may call functions below this; tools.* always, tools.shell and tools.sql if named.",
    ),
]
Slots = Annotated[int | None, typer.Option("--slots", min=1, help="Tasks that one process runs at once.")]
WorkflowName = Annotated[str, typer.Argument(metavar="NAME", help="The name of a workflow.")]
Note = Annotated[str | None, typer.Option("--note", metavar="TEXT", help="Why; it stands in the history.")]
Version = Annotated[
    str | None,
    typer.Option(
        "--version", metavar="HASH|current", help="Go on as this version of a deployed workflow; else as its own."
    ),
]
