"""The verbs for workflow files, from check to undeploy. What a verb does is imported when it is called."""

from __future__ import annotations

from typing import Annotated

import typer

from durablectl.options import Allow, DatabaseUrl, Input, Json, WorkflowName

Files = Annotated[list[str], typer.Argument(metavar="FILE...", help="YAML, JSON, or a Python file that builds one.")]
File = Annotated[str, typer.Argument(metavar="FILE", help="YAML, JSON, or a Python file that builds one.")]


def register(app: typer.Typer) -> None:
    """Add the verbs to the command."""
    for verb in (check, deploy, undeploy, run, graph, simulate):
        app.command()(verb)


def check(files: Files, json: Json = False) -> int:
    """Find everything that is wrong with workflow files, without a database."""
    from durablectl.documents import check_files

    return check_files(files, as_json=json)


def deploy(files: Files, json: Json = False, database_url: DatabaseUrl = None) -> int:
    """Make the workflows of files the versions that new runs get. Runs that have begun keep theirs."""
    from durablectl.documents import deploy_files

    return deploy_files(files, as_json=json, database_url=database_url)


def undeploy(
    workflow: WorkflowName,
    cancel_running: Annotated[
        bool, typer.Option("--cancel-running", help="Cancel its unfinished runs and wait for their end.")
    ] = False,
    database_url: DatabaseUrl = None,
) -> int:
    """Take a deployed workflow away, with its schedule and triggers. Its runs and versions stay to be read."""
    from durablectl.undeploying import undeploy_workflow

    return undeploy_workflow(workflow, cancel_running=cancel_running, database_url=database_url)


def run(
    target: Annotated[
        str, typer.Argument(metavar="FILE[:NAME]|NAME", help="A workflow file, or a workflow by its name.")
    ],
    input: Input = None,
    allow: Allow = None,
    key: Annotated[str | None, typer.Option("--key", help="The same key is the same run.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end and print only the result.")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Show its steps until its end.")] = False,
    json: Json = False,
    database_url: DatabaseUrl = None,
) -> int:
    """Run a file here, with a worker of its own, or start a deployed workflow by name. Exits as the run ends."""
    from durablectl.running import Order, run_target

    return run_target(Order(target, input or [], allow or [], key, wait, follow, json, database_url))


def graph(
    file: File,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="As a Mermaid flowchart (the default).")] = False,
    svg: Annotated[bool, typer.Option("--svg", help="As an SVG picture.")] = False,
) -> int:
    """Draw the workflows of a file."""
    from durablectl.drawing import draw_file

    return draw_file(file, mermaid=mermaid, svg=svg)


def simulate(
    file: File,
    outcome: Annotated[
        list[str] | None, typer.Option("--outcome", metavar="TASK=fail", help="A task that fails. Repeatable.")
    ] = None,
    value: Annotated[
        list[str] | None, typer.Option("--value", metavar="TASK=JSON", help="What a task returns. Repeatable.")
    ] = None,
    input: Input = None,
    json: Json = False,
) -> int:
    """Walk the plan of a file without a database: what would run, be skipped, and why."""
    from durablectl.simulating import simulate_file

    return simulate_file(file, outcome or [], value or [], input or [], as_json=json)
