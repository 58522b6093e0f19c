"""`durable worker`: one process, or a parent with several."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import ExitStack
from typing import NamedTuple

import structlog

from durable import Catalogue
from durable.embedded import EmbeddedPostgres
from durable.migrate import migrate
from durable.store import check_store
from durablectl import database, exits, logs
from durablectl.ending import leave
from durablectl.exits import WrongUse
from durablectl.loading import workflows_of
from durablectl.scheduling import serve_schedules
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
    allow: Sequence[str] = ()


def work(order: Order) -> int:
    """Be a worker, or the parent of some, until told to stop."""
    logs.to_standard_error(with_pid=order.leash is not None)
    settings = database.settings(slots=order.slots)
    if not order.modules and not order.allow:
        raise WrongUse("name a MODULE with workflows, or serve deployed ones with --allow PACKAGE.")
    workflows = workflows_of(order.modules)
    with ExitStack() as until_end:
        url = chosen_database(order.database_url, until_end)
        service = Service.of(url, workflows, order.queues, settings, catalogue_for(url, order.allow))
        if order.leash is None:
            asyncio.run(check_store(url))
            asyncio.run(serve_schedules(url, workflows))
            announce(service, order.processes)
        if order.processes > 1:
            return supervise(service, [worker_verb(order, service)] * order.processes)
        serve(service, leash=order.leash)
    return leave(exits.OK)


def chosen_database(given: str | None, until_end: ExitStack) -> str:
    """The database to work on; an embedded one lives as long as the command."""
    return database.choose(given).url or _embedded(until_end)


def catalogue_for(url: str, allow: Sequence[str]) -> Catalogue | None:
    """What serves deployed workflows, for a worker that was told which functions they may call."""
    if not allow:
        return None
    from interpreter.deployment import Deployed
    from interpreter.secrets import Vault

    return Deployed(allow, Vault(url))


def _embedded(until_end: ExitStack) -> str:
    database.say_if_new()
    url = until_end.enter_context(EmbeddedPostgres()).dsn
    migrate(url)
    return url


def announce(service: Service, processes: int) -> None:
    log.info(
        "starting",
        database=database.where(service.url),
        workflows=", ".join(sorted(workflow.name for workflow in service.workflows)) or "deployed ones",
        queues=", ".join(service.queues),
        slots=service.settings.slots,
        processes=processes,
    )


def worker_verb(order: Order, service: Service) -> list[str]:
    """What a child is told to be one of these workers."""
    queues = [part for queue in service.queues for part in ("--queue", queue)]
    allowed = [part for prefix in order.allow for part in ("--allow", prefix)]
    return ["worker", *order.modules, *queues, *allowed]


def supervise(service: Service, verbs: Sequence[Sequence[str]]) -> int:
    """Keep a process of each verb on the service's database until told to stop."""
    # By the environment: a command line can be read by everyone on the machine.
    os.environ[database.VARIABLE] = service.url
    os.environ["DURABLE_SLOTS"] = str(service.settings.slots)
    return Supervisor(verbs, service.patience).run()
