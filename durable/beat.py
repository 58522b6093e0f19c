"""The beat: a worker's lease, renewed from a thread of its own, and the watch over everyone else's.

Another worker is declared dead only after this one has seen the same beat for a full lease on its own monotonic
clock, over a connection that worked all the time. A restarted database or a jumping clock kills nobody.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import psycopg
import structlog

from durable.gate import Gate
from durable.link import CONNECT

log = structlog.get_logger("durable.beat")

TERMINATE = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = %s"


class Watch:
    """How long each other worker has been silent, as far as this one can know. Pure: it is given the time."""

    def __init__(self, lease: float):
        self._lease = lease
        self._seen: dict[str, tuple[int, float]] = {}
        self._last = float("-inf")

    def silent(self, beats: dict[str, int], now: float) -> list[tuple[str, int]]:
        """Workers whose beat has not moved for a whole lease of uninterrupted watching."""
        if now - self._last > self._lease / 2:
            # We were away (stalled, or cut off): what we saw before says nothing.
            self._seen.clear()
        self._last = now
        fresh = {}
        for worker, beat in beats.items():
            known = self._seen.get(worker)
            fresh[worker] = known if known is not None and known[0] == beat else (beat, now)
        self._seen = fresh
        return [(worker, beat) for worker, (beat, since) in fresh.items() if now - since >= self._lease]


class Beat:
    """Renews one worker's lease until told to stop."""

    def __init__(
        self, dsn: str, worker_id: str, lease: float, quarantine: int, gate: Gate, lost: Callable[[str], None]
    ):
        self._dsn = dsn
        self._worker_id = worker_id
        self._every = lease / 5
        self._quarantine = quarantine
        self._gate = gate
        self._lost = lost
        self._watch = Watch(lease)
        self._stopped = threading.Event()
        self._connection: psycopg.Connection | None = None
        self._thread = threading.Thread(target=self._run, name="durable-beat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(timeout=10)
        if self._connection is not None:
            self._connection.close()

    def run_once(self) -> None:
        """Renew, look at the others, bury who is silent."""
        began = time.monotonic()
        session = self._session()
        rows = session.execute("select worker_id::text, beat from durable.renew(%s)", (self._worker_id,)).fetchall()
        self._gate.renewed(began)
        for worker, beat in self._watch.silent(dict(rows), time.monotonic()):
            self._bury(session, worker, beat)

    def _run(self) -> None:
        while not self._stopped.wait(self._every):
            try:
                self.run_once()
            except psycopg.Error as exc:
                if exc.sqlstate == "DU001":
                    self._lost(f"worker {self._worker_id} lost its lease; its tasks were given to others")
                    return
                log.warning("the lease could not be renewed, trying again", error=str(exc).strip())
                self._connection = None

    def _session(self) -> psycopg.Connection:
        if self._connection is None or self._connection.closed:
            # Its own name: ending a dead worker's sessions by name must not hit the reaper of a live one.
            name = f"durable-beat:{self._worker_id}"
            self._connection = psycopg.connect(self._dsn, autocommit=True, application_name=name, **CONNECT)
        return self._connection

    def _bury(self, session: psycopg.Connection, worker: str, beat: int) -> None:
        try:
            row = session.execute("select durable.bury(%s, %s, %s)", (worker, beat, self._quarantine)).fetchone()
        except psycopg.errors.LockNotAvailable:
            # One of its writes hangs in the middle: end its sessions and come back at the next beat.
            session.execute(TERMINATE, (f"durable:{worker}",))
            return
        tasks = row[0] if row else None
        if tasks is None:
            return  # it has beaten after all, or somebody else was faster
        log.warning("a worker was silent for a whole lease and was declared dead", worker=worker, tasks=tasks)
        # Its sessions may still hold locks on users' rows.
        session.execute(TERMINATE, (f"durable:{worker}",))
        session.execute("select pg_notify('durable_work', 'a')")
