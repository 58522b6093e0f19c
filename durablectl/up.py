"""`durable up`: workers and a scheduler under one parent, on the configured database or an embedded one."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

from durable.store import check_store
from durablectl import database, logs
from durablectl.exits import WrongUse
from durablectl.loading import workflows_of
from durablectl.scheduling import serve_schedules
from durablectl.serving import Service
from durablectl.worker import Order, announce, catalogue_for, chosen_database, supervise, worker_verb


def run_all(order: Order) -> int:
    """Supervise until told to stop."""
    logs.to_standard_error()
    if not order.modules and not order.allow:
        raise WrongUse("name a MODULE with workflows, or serve deployed ones with --allow PACKAGE.")
    workflows = workflows_of(order.modules)
    with ExitStack() as until_end:
        url = chosen_database(order.database_url, until_end)
        settings = database.settings(slots=order.slots)
        service = Service.of(url, workflows, order.queues, settings, catalogue_for(url, order.allow))
        asyncio.run(check_store(url))
        asyncio.run(serve_schedules(url, workflows))
        announce(service, order.processes)
        return supervise(service, [["scheduler"], *[worker_verb(order, service)] * order.processes])
