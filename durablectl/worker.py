"""`durable worker`: one process, or a parent with several."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import NamedTuple

import structlog

from durable.embedded import EmbeddedPostgres
from durable.migrate import migrate
from durable.store import check_store
from durablectl import database, exits, logs
from durablectl.ending import leave
from durablectl.loading import workflows_of
from durablectl.serving import Service, serve
from durablectl.supervisor import Supervisor

log = structlog.get_logger("durable.worker")


class Order(NamedTuple):
    """What was asked for on the command line."""

    modules: Sequence[str]
    queues: Sequence[str] | None
    slots: int | None
    processes: int
    database_url: str | None
    leash: int | None


def work(order: Order) -> int:
    """Be a worker, or the parent of some, until told to stop."""
    logs.to_standard_error(with_pid=order.leash is not None)
    settings = database.settings(slots=order.slots)
    workflows = workflows_of(order.modules)
    with ExitStack() as until_end:
        url = database.choose(order.database_url).url or _embedded(until_end)
        service = Service.of(url, workflows, order.queues, settings)
        if order.leash is None:
            asyncio.run(check_store(url))
            _announce(service, order.processes)
        if order.processes > 1:
            return _supervise(order, service)
        serve(service, leash=order.leash)
    return leave(exits.OK)


def _embedded(until_end: ExitStack) -> str:
    database.say_if_new()
    url = until_end.enter_context(EmbeddedPostgres()).dsn
    migrate(url)
    return url


def _announce(service: Service, processes: int) -> None:
    log.info(
        "starting",
        database=database.where(service.url),
        workflows=", ".join(sorted(workflow.name for workflow in service.workflows)),
        queues=", ".join(service.queues),
        slots=service.settings.slots,
        processes=processes,
    )


def _supervise(order: Order, service: Service) -> int:
    # By the environment: a command line can be read by everyone on the machine.
    os.environ[database.VARIABLE] = service.url
    os.environ["DURABLE_SLOTS"] = str(service.settings.slots)
    queues = [part for queue in service.queues for part in ("--queue", queue)]
    command = [sys.executable, "-m", "durablectl", "worker", *order.modules, *queues]
    return Supervisor(command, order.processes, service.patience).run()
