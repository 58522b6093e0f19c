"""Law 5: an event is received by every waiter, whether it waited before or after, exactly once each."""

from __future__ import annotations

import random
import time

import psycopg

from tests.faults import workload
from tests.faults.fleet import eventually
from tests.faults.scene import Scene

EVENTS = 12
DELIVERED = """
    select j.task_id, j.body ->> 'event' from durable.journal j where j.kind = 'event'
    group by 1, 2 having count(*) > 1"""


def test_every_waiter_receives_every_event_once_while_workers_die(scene: Scene) -> None:
    """Events are emitted inside transactions that commit late and in any order, waiters come before, between and
    after, and workers are killed all the while."""
    chance = random.Random(5)
    everything = list(range(EVENTS))
    for _ in range(8):
        scene.start(workload.listens, "order", EVENTS, result=everything)
    worker = scene.fleet.start()
    for number in everything:
        _emit_late(scene, number, chance)
        scene.start(workload.listens, "order", EVENTS, result=everything)
        if number % 4 == 3:
            worker.kill()
            worker = scene.fleet.start()
    scene.start(workload.listens, "order", EVENTS, result=everything)
    scene.finish(60)
    assert scene.rows(DELIVERED) == []


def _emit_late(scene: Scene, number: int, chance: random.Random) -> None:
    """Emit, and commit while waits are being registered."""
    with psycopg.connect(scene.dsn) as connection:
        connection.execute("select durable.emit('order', %s::json)", (str(number),))
        time.sleep(chance.uniform(0, 0.05))


def test_events_of_a_killed_run_are_emitted_once(scene: Scene) -> None:
    """A run that emits is killed and replayed: each of its events exists once."""
    for _ in range(4):
        scene.start(workload.listens, "said", 6, result=list(range(6)))
    scene.start(workload.speaks, "said", 6, result=6)
    for reached in (1, 3, 5):
        worker = scene.fleet.start()
        eventually(
            lambda reached=reached: scene.count("durable.event") >= reached,  # type: ignore[misc]
            "events are emitted",
        )
        worker.kill()
    scene.fleet.start()
    scene.finish(60)
    assert scene.count("durable.event") == 6
