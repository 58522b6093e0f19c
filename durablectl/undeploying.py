"""`durable undeploy`: the end of a deployed workflow, not of the runs that it has in flight."""

from __future__ import annotations

import asyncio
import getpass

from durable import Durable
from durable.errors import WrongState
from durablectl import exits
from durablectl.database import with_client
from durablectl.starting import ended
from scheduler.session import Session

# Runs end before their next step; one that takes longer is waited for by a person.
PATIENCE = 60.0


def undeploy_workflow(workflow: str, *, cancel_running: bool, database_url: str | None) -> int:
    async def act(client: Durable) -> int:
        cancelled = await _cancel(client, workflow) if cancel_running else 0
        await client.undeploy(workflow)
        return cancelled

    cancelled = with_client(database_url, act)
    tail = f"; {cancelled} runs were cancelled" if cancelled else ""
    print(f"undeployed {workflow}{tail}; its runs and versions stay to be read")
    return exits.OK


async def _cancel(client: Durable, workflow: str) -> int:
    """Let nothing start the workflow any more, end what runs, and wait for that."""
    await client.version(workflow)
    session = Session(client.dsn)
    await session.value("select durable.silence(%s, %s)", (workflow, getpass.getuser()))
    rows = await session.rows("select durable.unfinished_runs(%s)::text as run", (workflow,))
    runs = [str(row["run"]) for row in rows]
    for run in runs:
        await client.cancel(run, f"{workflow} was undeployed")
    try:
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*(ended(client, run) for run in runs))
    except TimeoutError:
        raise WrongState(
            f"the runs of {workflow!r} were cancelled and have not all ended; is a worker running? Try again later."
        ) from None
    return len(runs)
