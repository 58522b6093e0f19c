"""`durable start` and `durable emit`: what brings something new into the store."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NamedTuple

from durable import Durable, RunFailed, Start
from durable.runs import RunInfo
from durablectl import exits
from durablectl.database import with_client
from durablectl.inputs import json_value, moment, named_values
from durablectl.jsontext import print_json
from durablectl.page import short


class Order(NamedTuple):
    """A run as asked for on the command line."""

    workflow: str
    input: Sequence[str]
    key: str | None = None
    queue: str | None = None
    priority: int | None = None
    at: str | None = None
    tags: Sequence[str] = ()
    cap_key: str | None = None

    def options(self) -> Start:
        return Start(
            key=self.key,
            queue=self.queue,
            priority=self.priority,
            start_at=moment(self.at, "--at") if self.at else None,
            tags=tuple(self.tags),
            cap_key=self.cap_key,
        )


def start_run(order: Order, *, wait: bool, as_json: bool, database_url: str | None) -> int:
    given, options = named_values(order.input), order.options()

    async def act(client: Durable) -> RunInfo:
        # By object: arguments may have any name, also one of our own.
        (run_id,) = await client.start_many(order.workflow, [given], options=options)
        if wait:
            _say_started(order.workflow, run_id, hint=False)
            await ended(client, run_id)
        return await client.run(run_id)

    run = with_client(database_url, act)
    return ended_as(run, as_json) if wait else started(run, as_json)


async def ended(client: Durable, run_id: str) -> None:
    """Wait for the end of a run, whatever it is."""
    try:
        await client.result(run_id)
    except RunFailed:
        return


def started(run: RunInfo, as_json: bool) -> int:
    """Say what was started."""
    if as_json:
        print_json(run)
    else:
        print(run.run_id)
        _say_started(run.workflow, str(run.run_id), hint=True)
    return exits.OK


def ended_as(run: RunInfo, as_json: bool) -> int:
    """Print the result of a run, or complain; the exit code."""
    if as_json:
        print_json(run)
    elif run.state == "succeeded":
        print(short(run.result, sys.maxsize))
    if run.state != "succeeded":
        return exits.complain(RunFailed(str(run.run_id), run.error or {}))
    return exits.OK


def _say_started(workflow: str, run_id: str, *, hint: bool) -> None:
    """For people only: a script reads the id from standard output."""
    if sys.stderr.isatty():
        tail = f"; follow it with `durable runs watch {run_id}`" if hint else f" as {run_id}"
        print(f"started {workflow}{tail}", file=sys.stderr)


def emit_event(event: str, payload: str, key: str | None, *, as_json: bool, database_url: str | None) -> int:
    value = json_value(payload, "--payload")
    event_id = with_client(database_url, lambda client: client.emit(event, value, key=key))
    if as_json:
        print_json({"event": event, "event_id": event_id})
    else:
        print(event_id)
    return exits.OK
