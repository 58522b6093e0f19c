"""Other workflows as runs of their own: started together, waited for, stopped with the operation that started them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from durable import Start, StepFailed
from interpreter.driver.failure import seen_by_walker, voids_of
from interpreter.driver.flight import Flight
from interpreter.walker import next_try
from interpreter.walker.commands import RunCall
from interpreter.walker.records import Record, Settled

if TYPE_CHECKING:
    from interpreter.driver.drive import Drive


async def call_workflows(drive: Drive, command: RunCall) -> Record:
    """All are started with one record and waited for; a failure is tried again with new runs, as the policy says."""
    flight, name = drive.flights[command.path], command.path
    attempt, used = 1, dict[str, int]()
    while True:
        try:
            return Settled(command.path, value=await _attempt(drive, flight, command, name))
        except StepFailed as exc:
            error, voids = seen_by_walker(exc), voids_of(drive.ctx, exc)
        again = None if flight.stopping else next_try(command.retry, used, error)
        if again is None:
            return Settled(command.path, "cancelled" if flight.stopping else "failed", error=error, voids=voids)
        attempt, (rest, used) = attempt + 1, again
        name = f"{command.path}~{attempt}"
        # Between two attempts nothing of it runs.
        flight.children = None
        await drive.ctx.sleep(rest, name=f"{name}:rest")
        flight.children = []


async def _attempt(drive: Drive, flight: Flight, command: RunCall, name: str) -> dict[str, Any]:
    calls = [(asked["workflow"], asked.get("inputs") or {}) for asked in command.args.values()]
    options = Start(name=f"{name}:start", deadline=command.timeout)
    flight.children = await drive.ctx.start_many(calls, options=options)
    if flight.stopping:
        drive.stop_children(flight)
    results = await drive.ctx.wait_for(flight.children, mode="all", name=name)
    return dict(zip(command.args, results, strict=True))
