"""Everything at once, at random."""

from __future__ import annotations

import os
import random
import signal
import time

import psycopg

from tests.faults import workload
from tests.faults.fleet import WorkerProcess
from tests.faults.scene import Scene

SECONDS = float(os.environ.get("FAULTS_SOAK_SECONDS", "15"))
WORKERS = 3
SESSIONS = "select pid from pg_stat_activity where application_name like 'durable%:%' and datname = current_database()"


def test_random_faults_break_no_law(scene: Scene) -> None:
    """Workers are killed, stalled past their lease and cut off at random while hundreds of runs go on. The seed is
    printed; FAULTS_SEED repeats it."""
    seed = int(os.environ.get("FAULTS_SEED", random.SystemRandom().randrange(1_000_000)))
    print(f"seed {seed}")
    Soak(scene, random.Random(seed)).run()
    for worker in scene.fleet.workers:
        worker.send(signal.SIGCONT)
    scene.finish(90)


class Soak:
    """Faults of all kinds, one after the other."""

    def __init__(self, scene: Scene, chance: random.Random):
        self._scene = scene
        self._chance = chance
        self._alive: list[WorkerProcess] = []
        self._asleep: dict[WorkerProcess, float] = {}
        self._doomed: list[str] = []

    def run(self) -> None:
        deadline = time.monotonic() + SECONDS
        number = 0
        while time.monotonic() < deadline:
            self._keep_up()
            if self._scene.unfinished() < 150:
                self._scene.start_mixture(f"soak{number}", 1)
                self._doomed.append(self._scene.start(workload.endless, number, state="cancelled"))
                number += 1
            self._cancel(self._chance.randrange(2))
            self._chance.choice([self._kill, self._drain, self._stall, self._cut, self._cut, self._nothing])()
            self._wake_up()
            self._scene.check_store()
            time.sleep(self._chance.uniform(0, 0.3))
        self._cancel(len(self._doomed))

    def _keep_up(self) -> None:
        self._alive = [worker for worker in self._alive if worker.alive]
        while len(self._alive) < WORKERS:
            self._alive.append(self._scene.fleet.start(lease=1.5, slots=self._chance.choice([1, 50])))

    def _cancel(self, some: int) -> None:
        for _ in range(min(some, len(self._doomed))):
            self._scene.client.cancel(self._doomed.pop(0))

    def _kill(self) -> None:
        if self._chance.random() < 0.4:
            self._chance.choice(self._alive).kill()

    def _drain(self) -> None:
        if self._chance.random() < 0.3:
            self._chance.choice(self._alive).send(signal.SIGTERM)

    def _stall(self) -> None:
        awake = [worker for worker in self._alive if worker not in self._asleep]
        if len(awake) > 1:
            worker = self._chance.choice(awake)
            self._scene.fleet.stall(worker)
            self._asleep[worker] = time.monotonic() + self._chance.uniform(0.1, 4)

    def _cut(self) -> None:
        with psycopg.connect(self._scene.dsn, autocommit=True) as admin:
            pids = [row[0] for row in admin.execute(SESSIONS)]
            for pid in self._chance.sample(pids, min(3, len(pids))):
                admin.execute("select pg_terminate_backend(%s)", (pid,))

    def _nothing(self) -> None:
        """Let them work."""

    def _wake_up(self) -> None:
        for worker, until in list(self._asleep.items()):
            if time.monotonic() > until:
                worker.send(signal.SIGCONT)
                del self._asleep[worker]
