"""`durable dev`: a database, a worker, a scheduler and a few lines about them, in one process that leaves nothing."""

from __future__ import annotations

import asyncio
import os
import shlex
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import NamedTuple

from durable import Durable, Worker
from durable.embedded import EmbeddedPostgres
from durable.migrate import migrate
from durable.store import check_store
from durablectl import database, exits, logs
from durablectl.ending import leave
from durablectl.exits import WrongUse
from durablectl.inputs import named_values
from durablectl.loading import workflows_of
from durablectl.looking import outcome
from durablectl.page import short
from durablectl.scheduler import scheduling
from durablectl.scheduling import serve_schedules
from durablectl.serving import Service, serve
from durablectl.story import said
from durablectl.watching import watch
from durablectl.worker import catalogue_for
from scheduler.schedules import Schedules


class Order(NamedTuple):
    """What was asked for on the command line."""

    modules: Sequence[str]
    run: str | None
    input: Sequence[str]
    queues: Sequence[str] | None
    database_url: str | None
    allow: Sequence[str] = ()


def develop(order: Order) -> int:
    """Start everything, say what to try, and end with it."""
    if order.input and not order.run:
        raise WrongUse("--input belongs to --run NAME")
    given = named_values(order.input)
    logs.to_standard_error()
    settings = database.settings()
    with ExitStack() as until_end:
        url = _database(order, until_end)
        service = Service.of(url, workflows_of(order.modules), order.queues, settings, catalogue_for(url, order.allow))
        _say("worker", _serving(service))
        if order.run is None:
            _say("scheduler", asyncio.run(_scheduled(service)))
        session = Session(service, order.run, given)
        serve(service, meanwhile=session.meanwhile)
        _say("stopping", "the worker has ended")
    return leave(session.code)


def _database(order: Order, until_end: ExitStack) -> str:
    choice = database.choose(order.database_url)
    if choice.url is not None:
        asyncio.run(check_store(choice.url))
        _say("database", f"{database.where(choice.url)} (from {choice.source})")
        return choice.url
    began = time.monotonic()
    server = until_end.enter_context(EmbeddedPostgres())
    migrate(server.dsn)
    place = os.path.relpath(server.data_dir)
    _say("database", f"PostgreSQL {server.server_version} in {place}, {time.monotonic() - began:.1f} s")
    return server.dsn


def _serving(service: Service) -> str:
    deployed = ["whatever is deployed"] if service.catalogue is not None else []
    names = ", ".join([*(workflow.name for workflow in service.workflows), *deployed])
    return f"{names or 'no workflows: name a module, like `durable dev my_module`'} (queue {', '.join(service.queues)})"


async def _scheduled(service: Service) -> str:
    """Set the schedules of the modules; what there is now, theirs and others."""
    await serve_schedules(service.url, service.workflows)
    found = await Schedules(service.url).list()
    ahead = [(each.next_tick, each.workflow) for each in found if each.next_tick and not each.paused]
    if (coming := min(ahead, default=None)) is None:
        return f"{len(found)} schedules" if found else "no schedules"
    return f"{len(found)} schedule{'s' * (len(found) > 1)}, next {coming[1]} at {said(coming[0])}"


def _say(topic: str, text: str) -> None:
    print(f"{topic:<10}{text}", flush=True)


class Session:
    """What happens beside the worker: one run and its end, or an invitation and patience."""

    def __init__(self, service: Service, run: str | None, given: dict[str, object]):
        self._service = service
        self._run = run
        self._given = given
        # Until the run has ended; an invitation is over whenever its guest leaves.
        self.code = exits.OK if run is None else exits.INTERRUPTED

    async def meanwhile(self, worker: Worker) -> None:
        if self._run is None:
            async with scheduling(self._service.url):
                _invite(self._service)
                await asyncio.Event().wait()
        await self._once(self._run or "")
        worker.stop()

    async def _once(self, name: str) -> None:
        async with Durable(self._service.url, settings=self._service.settings) as client:
            (run_id,) = await client.start_many(name, [self._given])
            _say("run", f"{name} {run_id}")
            story = await watch(client, run_id)
        self.code = outcome(story)
        if story.run.state == "succeeded":
            _say("result", short(story.run.result))


def _invite(service: Service) -> None:
    _say("ready", "try in another terminal, in this directory:\n")
    for command in _commands(service):
        print(f"    {command}")
    print("\nCtrl-C ends everything.", flush=True)


def _commands(service: Service) -> list[str]:
    if not service.workflows and service.catalogue is not None:
        return ["durable deploy FILE...", "durable run NAME --wait", "durable runs list"]
    if not service.workflows:
        return ["durable worker my_module", "durable runs list"]
    first = service.workflows[0]
    wanted = " ".join(f"--input {shlex.quote(f'{name}=...')}" for name in first.params.required)
    return [f"durable start {shlex.quote(first.name)} {wanted} --wait".replace("  ", " "), "durable runs list"]
