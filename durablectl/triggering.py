"""`durable schedules triggers ...`: workflows that start on events."""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from typing import Literal, NamedTuple

from durable.errors import WrongState
from durablectl import exits
from durablectl.database import with_client
from durablectl.inputs import named_values
from durablectl.jsontext import print_json
from durablectl.page import Table, show
from durablectl.story import said
from scheduler.triggers import TriggerInfo, TriggerRun, Triggers

LIST_HEADER = ("workflow", "starts on", "events", "per", "state", "waiting")
RUN_HEADER = ("run", "made", "events", "data interval")


class Order(NamedTuple):
    """What was asked for on the command line."""

    workflow: str
    events: Sequence[str]
    mode: Literal["any", "all"]
    per: str | None
    timezone: str
    inputs: Sequence[str]
    queue: str | None
    priority: int | None
    tags: Sequence[str]


def list_triggers(workflow: str | None, *, as_json: bool, database_url: str | None) -> int:
    found = with_client(database_url, lambda client: Triggers(client.dsn).list(workflow))
    if as_json:
        print_json(found)
    elif found:
        show([Table("", [_list_row(trigger) for trigger in found], LIST_HEADER)])
    else:
        print("no workflow starts on events; let one do so with `durable schedules triggers set NAME EVENT...`")
    return exits.OK


def set_trigger(order: Order, database_url: str | None) -> int:
    inputs = named_values(order.inputs)
    changed = with_client(
        database_url,
        lambda client: Triggers(client.dsn).set(
            order.workflow,
            order.events,
            mode=order.mode,
            per=order.per,
            timezone=order.timezone,
            inputs=inputs,
            queue=order.queue,
            prio=order.priority,
            tags=order.tags,
            by=getpass.getuser(),
        ),
    )
    when = f"{order.mode} of {', '.join(order.events)}" if len(order.events) > 1 else order.events[0]
    print(f"{order.workflow} starts on {when}" if changed else f"unchanged: {order.workflow} starts on {when}")
    return exits.OK


def remove_trigger(workflow: str, database_url: str | None) -> int:
    by = getpass.getuser()
    if not with_client(database_url, lambda client: Triggers(client.dsn).remove(workflow, by=by)):
        raise WrongState(f"{workflow!r} does not start on events")
    print(f"{workflow} no longer starts on events")
    return exits.OK


def pause_trigger(workflow: str, note: str | None, database_url: str | None) -> int:
    by = getpass.getuser()
    with_client(database_url, lambda client: Triggers(client.dsn).pause(workflow, by=by, note=note))
    print(f"{workflow} starts on no event until it is unpaused")
    return exits.OK


def unpause_trigger(workflow: str, *, keep: bool, database_url: str | None) -> int:
    by = getpass.getuser()
    skipped = with_client(database_url, lambda client: Triggers(client.dsn).unpause(workflow, keep=keep, by=by))
    print(f"{workflow} starts on events again; {skipped:,} of the pause were skipped")
    return exits.OK


def list_trigger_runs(workflow: str, limit: int, *, as_json: bool, database_url: str | None) -> int:
    found = with_client(database_url, lambda client: Triggers(client.dsn).runs(workflow, limit=limit))
    if as_json:
        print_json(found)
    elif found:
        show([Table("", [_run_row(run) for run in found], RUN_HEADER)])
    else:
        print(f"no event has started {workflow!r} yet")
    return exits.OK


def _list_row(trigger: TriggerInfo) -> Sequence[str]:
    waiting = f"{trigger.waiting:,}" if trigger.waiting else ""
    state = f"paused: {trigger.pause_note}" if trigger.paused and trigger.pause_note else "active"
    events = ", ".join(trigger.events)
    return trigger.workflow, trigger.mode, events, trigger.per or "", "paused" if trigger.paused else state, waiting


def _run_row(run: TriggerRun) -> Sequence[str]:
    span = f"{said(run.interval_start)} to {said(run.interval_end)}" if run.interval_end else ""
    return str(run.run_id), said(run.made_at), str(len(run.events)), span
