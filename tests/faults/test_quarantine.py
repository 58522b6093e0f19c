"""A task that kills its worker is stopped for good, and its neighbours are not blamed."""

from __future__ import annotations

from tests.faults import workload
from tests.faults.fleet import WorkerProcess, eventually
from tests.faults.scene import Scene

NEIGHBOURS = 200
LEASE = 1.0


def test_a_killer_is_quarantined_and_its_neighbours_finish(scene: Scene) -> None:
    """It takes down workers full of others twice, and three more while it runs alone; then it fails as quarantined.
    Hundreds of neighbours all finish, and none of them is charged with a death."""
    for n in range(NEIGHBOURS):
        scene.start(workload.sleeper, n, result=n + 3)
        if n == NEIGHBOURS // 2:
            killer = scene.start(workload.killer, 0, state="failed")
    alive: list[WorkerProcess] = []
    eventually(lambda: _supervise(scene, alive), "every run is final", 90)
    scene.finish()
    assert scene.client.run(killer).error["type"] == "Quarantined"
    assert scene.rows("select lost_alone from durable.task where task_id = %s", (killer,)) == [(3,)]
    assert scene.rows("select task_id from durable.task where lost_alone > 0 and task_id <> %s", (killer,)) == []
    deaths = sum(not worker.alive for worker in scene.fleet.workers)
    assert deaths == 5


def _supervise(scene: Scene, alive: list[WorkerProcess]) -> bool:
    """Keep two workers up, as a supervisor would; true when nothing is left to do."""
    alive[:] = [worker for worker in alive if worker.alive]
    while len(alive) < 2:
        alive.append(scene.fleet.start(lease=LEASE))
    return scene.unfinished() == 0
