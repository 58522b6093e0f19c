"""`durable runs list|show|watch`: reads, which change nothing."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import NamedTuple

from durable import Durable
from durable.runs import RunInfo
from durablectl import exits
from durablectl.database import with_client
from durablectl.inputs import moment_or_age
from durablectl.jsontext import print_json
from durablectl.page import LIST_HEADER, Table, list_row, show, story_page
from durablectl.story import Story, read_story
from durablectl.watching import watch


class Filter(NamedTuple):
    """Which runs to list."""

    state: str | None
    workflow: str | None
    tag: str | None
    since: str | None
    limit: int


def list_runs(only: Filter, *, as_json: bool, database_url: str | None) -> int:
    since = moment_or_age(only.since, "--since") if only.since else None

    async def act(client: Durable) -> list[RunInfo]:
        return await client.runs(state=only.state, workflow=only.workflow, tag=only.tag, since=since, limit=only.limit)

    found = with_client(database_url, act)
    if as_json:
        print_json(found)
    else:
        _print_list(found)
    return exits.OK


def _print_list(found: list[RunInfo]) -> None:
    if not sys.stdout.isatty():
        for row in [LIST_HEADER, *map(list_row, found)]:
            print("\t".join(row))
    elif found:
        now = datetime.now(UTC)
        show([Table("", [list_row(run, now) for run in found], LIST_HEADER)])
    else:
        print("no runs; start one with `durable start NAME`")


def show_run(run_id: str, *, as_json: bool, database_url: str | None) -> int:
    story = with_client(database_url, lambda client: read_story(client, run_id))
    if as_json:
        print_json(story)
    else:
        show(story_page(story))
    return exits.OK


def watch_run(run_id: str, *, as_json: bool, database_url: str | None) -> int:
    # The document is alone on standard output; a person may still want to see something happen.
    to = sys.stderr if as_json else sys.stdout
    story = with_client(database_url, lambda client: watch(client, run_id, to))
    if as_json:
        print_json(story)
    return outcome(story)


def outcome(story: Story) -> int:
    """How a run's end ends the command."""
    return exits.OK if story.run.state == "succeeded" else exits.FAILED
