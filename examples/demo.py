"""What `make demo` runs: an order, a worker that is killed half-way, and another that finishes its work.

Everything is real: a PostgreSQL server, worker processes, a SIGKILL. It ends with 0 only if the run succeeded and
no recorded step ran twice.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import psycopg

from durable import Durable
from durable.embedded import EmbeddedPostgres
from durable.migrate import migrate
from durablectl.page import Table, show
from durablectl.story import Story
from durablectl.watching import Watch

HOME = Path(".durable/demo")
ITEMS = ["tea", "cup", "kettle", "biscuits"]
LEASE_SECONDS = 2
PATIENCE = 60.0


def main() -> int:
    print("An order will be reserved, priced, paid, charged, packed and shipped. Its worker is killed on the way.\n")
    os.environ["DURABLE_HOME"] = str(HOME)
    with EmbeddedPostgres() as server:
        migrate(server.dsn)
        print(f"PostgreSQL {server.server_version} runs in {HOME}, and the store is in it.")
        os.environ["DURABLE_DATABASE_URL"] = server.dsn
        try:
            return asyncio.run(asyncio.wait_for(demonstrate(server.dsn), PATIENCE))
        except TimeoutError:
            print(f"\nNot done after {PATIENCE:g} s; what the workers said is in {HOME}/worker-*.log.")
            return 1


async def demonstrate(dsn: str) -> int:
    number = f"{time.time():.0f}"
    with WorkerProcess("A") as first, WorkerProcess("B") as second:
        first.start()
        async with Durable(dsn) as durable:
            run_id = await durable.start("order", order_id=number, items=ITEMS)
            with Watch(durable, run_id, every=0.1) as watching:
                await half_way(durable, watching, number)
                recorded = await cut_off(durable, watching, first, run_id, number)
                second.start()
                watching.say(f"Worker B (process {second.pid}) takes over once A's lease of {LEASE_SECONDS} s is over.")
                story = await watching.until(lambda story: story.run.final)
    return report(dsn, Evidence(story, recorded, number, first.pid, second.pid))


async def half_way(durable: Durable, watching: Watch, number: str) -> None:
    """Until some parcels are packed and others are not; the payment comes when it is waited for."""
    await watching.until(lambda story: any("payment" in what for what in story.waiting_for))
    watching.say("The customer pays.")
    await durable.emit(f"payment/{number}", {"paid": True})
    await watching.until(lambda story: len(packed(story)) >= 2)


def packed(story: Story) -> set[str]:
    return {step.name for step in story.steps if step.state == "done" and step.name.startswith("pack ")}


async def cut_off(durable: Durable, watching: Watch, worker: WorkerProcess, run_id: str, number: str) -> Counter[str]:
    """Kill the worker; how often each step had run that was recorded by then."""
    worker.kill()
    watching.say(f"\nWorker A (process {worker.pid}) was killed with SIGKILL, in the middle of packing.")
    story = await watching.until(lambda story: True)
    done = {step.name for step in story.steps if step.state == "done"}
    ran = Counter(step for step, _ in ledger(durable.dsn, number))
    return Counter({step: count for step, count in ran.items() if step in done})


# ---------------------------------------------------------------- workers


class WorkerProcess:
    """`durable worker` as a process of its own, which ends with the demo."""

    def __init__(self, name: str):
        self._log = HOME / f"worker-{name}.log"
        self._leash, self._held = os.pipe()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        environment = {**os.environ, "DURABLE_LEASE_SECONDS": str(LEASE_SECONDS)}
        # The leash: should the demo itself be killed, its workers end too.
        command = [sys.executable, "-m", "durablectl", "worker", "examples.orders", "--leash", str(self._leash)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, pass_fds=[self._leash])
        self._await_ready()

    def _await_ready(self) -> None:
        assert self._process is not None
        while b"the worker is ready" not in self._log.read_bytes():
            if self._process.poll() is not None:
                raise SystemExit(f"the worker did not start: {self._log.read_text()}")
            time.sleep(0.05)

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()


# ---------------------------------------------------------------- evidence


class Evidence(NamedTuple):
    """What is left to judge by."""

    story: Story
    recorded: Counter[str]
    number: str
    first: int
    second: int


def ledger(dsn: str, number: str) -> list[tuple[str, int]]:
    """Every step that really ran, in order, and the process that ran it."""
    with psycopg.connect(dsn) as shop:
        query = "select step, worker from shop.ledger where order_id = %s order by at"
        return [(str(step), int(worker)) for step, worker in shop.execute(query, (number,))]


def reservations(dsn: str, number: str) -> int:
    with psycopg.connect(dsn) as shop:
        row = shop.execute("select count(*) from shop.reservation where order_id = %s", (number,)).fetchone()
        return int(row[0]) if row else 0


def report(dsn: str, seen: Evidence) -> int:
    """Show what ran where, say what it means, and judge."""
    ran = ledger(dsn, seen.number)
    print()
    show([Table("What really ran, as the shop's own ledger has it", rows(ran, seen), HEADER)])
    faults = judged(ran, seen, reservations(dsn, seen.number))
    print("\n" + "\n".join(f"BROKEN: {fault}" for fault in faults) if faults else summary(ran, seen))
    print(f"\nTry next:\n{next_commands(seen)}")
    return 1 if faults else 0


HEADER = ("step", "ran", "on A", "on B", "")


def rows(ran: list[tuple[str, int]], seen: Evidence) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for step in dict.fromkeys(step for step, _ in ran):
        on = Counter(worker for name, worker in ran if name == step)
        a, b = on[seen.first], on[seen.second]
        found.append((step, str(a + b), str(a or ""), str(b or ""), remark(step, a, b, seen)))
    return found


def remark(step: str, a: int, b: int, seen: Evidence) -> str:
    if step in seen.recorded:
        return "failed twice and was tried again" if step == "quote" else "recorded before the kill"
    return "was cut off, so B ran it again" if a and b else "after the kill"


def judged(ran: list[tuple[str, int]], seen: Evidence, reserved: int) -> list[str]:
    """Every way in which the promise was broken; none is what we want."""
    faults = []
    if seen.story.run.state != "succeeded":
        faults.append(f"the run has {seen.story.run.state}: {seen.story.run.error}")
    again = sorted({step for step, worker in ran if worker == seen.second and step in seen.recorded})
    if again:
        faults.append(f"recorded steps ran again: {', '.join(again)}")
    if (charged := sum(step == "charge" for step, _ in ran)) != 1:
        faults.append(f"the customer was charged {charged} times")
    if reserved != len(ITEMS):
        faults.append(f"{reserved} reservations were made for {len(ITEMS)} items")
    if seen.recorded.keys() >= {step for step, _ in ran}:
        faults.append("the kill came after the last step, so nothing was shown; try again")
    return faults


def summary(ran: list[tuple[str, int]], seen: Evidence) -> str:
    cut = {step for step, worker in ran if worker == seen.first} - seen.recorded.keys()
    return (
        f"\nWorker A died with {len(seen.recorded)} steps recorded and {len(cut)} under way. Worker B read the"
        f" journal, repeated none of\nthe {len(seen.recorded)}, ran the {len(cut)} again, and finished the order:"
        f" charged once, {len(ITEMS)} items reserved for {len(ITEMS)} ordered."
    )


def next_commands(seen: Evidence) -> str:
    script = Path(sys.executable).with_name("durable")
    durable = os.path.relpath(script) if script.exists() else f"{shlex.quote(sys.executable)} -m durablectl"
    return "\n".join(
        [
            f"    DURABLE_HOME={HOME} {durable} runs show {seen.story.run.run_id}",
            f"    {durable} dev examples.hello --run hello --input who=you",
            f"    {durable} dev examples.orders",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
