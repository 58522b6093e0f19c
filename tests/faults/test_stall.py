"""Law 3: a worker without its lease changes nothing."""

from __future__ import annotations

import signal

from tests.faults import workload
from tests.faults.fleet import WorkerProcess, eventually
from tests.faults.scene import Scene

EVERYTHING = """
    select md5(string_agg(t, '|' order by t)) from (
      select t::text from durable.task t union all select j::text from durable.journal j
      union all select e::text from durable.event e union all select w::text from durable.wait w
      union all select b::text from booking b) x (t)"""
INSIDE = """
    select count(*) from pg_stat_activity where application_name = 'durable:' || %s and state = 'idle in transaction'"""


def test_a_stalled_worker_changes_nothing_and_works_again_under_a_new_id(scene: Scene) -> None:
    """Stopped past its lease in the middle of steps and transactions, and continued when others have finished its
    work: the store stays as it is, and the worker enlists anew and takes work again."""
    stalled = scene.fleet.start()
    scene.begin(stalled)
    old = _stall_in_the_middle(scene, stalled)
    rescuer = scene.fleet.start()
    scene.finish()
    assert old not in _workers(scene)

    before = scene.value(EVERYTHING)
    stalled.send(signal.SIGCONT)
    eventually(lambda: scene.worker_id(stalled) not in (None, old), "the worker has a new id")
    assert scene.value(EVERYTHING) == before
    scene.check()

    rescuer.kill()
    scene.start_mixture("later")
    scene.finish()


def _stall_in_the_middle(scene: Scene, worker: WorkerProcess) -> str:
    for n in range(3):
        scene.start(workload.slow_ledger, 0.5, result=0.5)
        scene.start(workload.long_step, 0.5, result=0.0)
        scene.start(workload.chain, n, result=n + 4)
    scene.start_mixture("stall")
    old = scene.worker_id(worker)
    assert old is not None
    eventually(lambda: scene.value(INSIDE, (old,)) == 3, "all transactions are open")
    scene.fleet.stall(worker)
    return old


def test_a_short_stall_costs_nothing(scene: Scene) -> None:
    """A worker that is stopped for less than its lease goes on under its id, and nothing runs twice."""
    worker = scene.fleet.start(lease=30)
    scene.begin(worker, scene.fleet.start(lease=30))
    before = _workers(scene)
    scene.start_mixture("short", 2)
    for reached in (5, 20, 40):
        eventually(lambda reached=reached: scene.count("effect") >= reached, "the work goes on")  # type: ignore[misc]
        worker.send(signal.SIGSTOP)
        scene.check_store()
        worker.send(signal.SIGCONT)
    scene.finish()
    assert _workers(scene) == before


def _workers(scene: Scene) -> set[str]:
    return {row[0] for row in scene.rows("select worker_id::text from durable.worker")}
