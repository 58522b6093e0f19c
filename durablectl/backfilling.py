"""`durable schedules backfill ...`: plan, begin, look at and end backfills."""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple, cast
from uuid import UUID

from durable import Durable
from durable.errors import NoSuchRun
from durablectl import exits
from durablectl.database import with_client
from durablectl.exits import WrongUse
from durablectl.jsontext import print_json
from durablectl.page import Table, show
from durablectl.story import said
from scheduler.backfilling import Planned, Reprocess
from scheduler.backfills import BackfillInfo, BackfillRun, Backfills, Plan

KINDS = ("none", "failed", "completed")
LIST_HEADER = ("backfill", "workflow", "from", "to", "state", "made", "left out", "left", "open", "failed")


class Order(NamedTuple):
    """What was asked for on the command line."""

    workflow: str
    first: str
    last: str
    limit: int
    reprocess: str
    newest_first: bool
    note: str | None

    def arguments(self) -> tuple[tuple[str, datetime, datetime], dict[str, Any]]:
        if self.reprocess not in KINDS:
            raise WrongUse(f"--reprocess {self.reprocess!r} is none of {', '.join(KINDS)}")
        chosen = {"reprocess": cast(Reprocess, self.reprocess), "newest_first": self.newest_first}
        return (self.workflow, _day(self.first, "--from"), _day(self.last, "--to")), chosen


def create_backfill(order: Order, *, dry_run: bool, as_json: bool, database_url: str | None) -> int:
    which, chosen = order.arguments()
    if dry_run:
        return _planned(with_client(database_url, lambda client: Backfills(client.dsn).plan(*which, **chosen)), as_json)

    async def act(client: Durable) -> BackfillInfo:
        backfills, by = Backfills(client.dsn), getpass.getuser()
        return await backfills.show(await backfills.create(*which, limit=order.limit, by=by, note=order.note, **chosen))

    made = with_client(database_url, act)
    if as_json:
        print_json(made)
    else:
        print(made.id)
    return exits.OK


def _planned(plan: Plan, as_json: bool) -> int:
    if as_json:
        print_json({**plan.model_dump(mode="json"), "made": len(plan.made)})
        return exits.OK
    show([Table("", [_planned_row(planned) for planned in plan.ticks], ("tick", "data interval from", "becomes"))])
    print(f"\n{len(plan.made):,} runs of {plan.workflow} would be made, {len(plan.ticks) - len(plan.made):,} left out")
    if plan.owed:
        print(f"{plan.owed:,} more ticks of this range are the schedule's own to make")
    return exits.OK


def _planned_row(planned: Planned) -> Sequence[str]:
    attempt = f"a run, attempt {planned.attempt + 1}" if planned.attempt else "a run"
    return said(planned.tick), said(planned.start), attempt if planned.made else f"nothing: {planned.left_out}"


def list_backfills(workflow: str | None, *, as_json: bool, database_url: str | None) -> int:
    found = with_client(database_url, lambda client: Backfills(client.dsn).list(workflow))
    if as_json:
        print_json(found)
    elif found:
        show([Table("", [_list_row(backfill) for backfill in found], LIST_HEADER)])
    else:
        print("no backfills; begin one with `durable schedules backfill create NAME --from TIME --to TIME`")
    return exits.OK


def show_backfill(backfill: str, *, as_json: bool, database_url: str | None) -> int:
    async def act(client: Durable) -> tuple[BackfillInfo, Sequence[BackfillRun]]:
        backfills = Backfills(client.dsn)
        return await backfills.show(_id(backfill)), await backfills.runs(_id(backfill))

    found, runs = with_client(database_url, act)
    if as_json:
        print_json({**found.model_dump(mode="json"), "ticks": [run.model_dump(mode="json") for run in runs]})
    else:
        rows = [(said(run.tick), str(run.run_id), run.state) for run in runs]
        show([Table("", _page(found)), Table("runs", rows, ("tick", "run", "state"))])
    return exits.OK


def switch_backfill(
    how: Literal["pause", "resume", "cancel"], backfill: str, note: str | None, database_url: str | None
) -> int:
    async def act(client: Durable) -> BackfillInfo:
        backfills = Backfills(client.dsn)
        await getattr(backfills, how)(_id(backfill), by=getpass.getuser(), note=note)
        return await backfills.show(_id(backfill))

    found = with_client(database_url, act)
    print(f"backfill {found.id} is {found.state}: {_progress(found)}")
    return exits.OK


def _list_row(found: BackfillInfo) -> Sequence[str]:
    counts = (found.made, found.skipped, found.left, found.runs.get("open", 0), found.runs.get("failed", 0))
    head = (str(found.id), found.workflow, said(found.first), said(found.last), found.state)
    return *head, *(f"{count:,}" for count in counts)


def _page(found: BackfillInfo) -> list[Sequence[str]]:
    order = "newest first" if found.newest_first else "oldest first"
    rows = [
        ("backfill", str(found.id)),
        ("workflow", found.workflow),
        ("range", f"{said(found.first)} to {said(found.last)}, {order}"),
        ("state", found.state),
        ("progress", _progress(found)),
        ("waits", found.waiting or ""),
        ("limit", f"{found.max_active} unfinished runs at a time"),
        ("reprocess", found.reprocess),
        ("created", f"{said(found.created_at)} by {found.by or '?'}"),
        ("ended", said(found.ended_at)),
        ("note", found.note or ""),
    ]
    return [row for row in rows if row[1] not in ("", "-")]


def _progress(found: BackfillInfo) -> str:
    states = ", ".join(f"{count:,} {state}" for state, count in sorted(found.runs.items()) if count)
    made = f"{found.made:,} of {found.total:,} ticks made" + (f" ({states})" if states else "")
    return f"{made}, {found.skipped:,} left out, {found.left:,} to come"


def _day(text: str, option: str) -> datetime:
    """A time, whose zone the schedule gives when it has none."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise WrongUse(f"{option} {text!r} is not a time; write it like 2026-01-31 or 2026-01-31T09:00:00Z") from None


def _id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise NoSuchRun(f"{text!r} is not the id of a backfill; see `durable schedules backfill list`") from None
