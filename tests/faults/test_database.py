"""The database itself is killed, and comes back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from durable.embedded import EmbeddedPostgres
from tests.faults import workload
from tests.faults.fleet import eventually
from tests.faults.scene import Scene


def test_a_killed_database_costs_no_run_and_repeats_no_step(
    mortal_scene: Scene, mortal_server: EmbeddedPostgres
) -> None:
    """-9 to the postmaster under load, three times: every run ends right, nothing recorded runs again, nobody loses a
    lease because the database was away, and a client that waits for a result gets it."""
    scene = mortal_scene
    scene.begin(scene.fleet.start(lease=30), scene.fleet.start(lease=30))
    workers = scene.rows("select worker_id from durable.worker order by 1")
    scene.start_mixture("crash", 4)
    waited = scene.start(workload.sleeper, 1, 1.0, result=4)
    with ThreadPoolExecutor(1) as waiting:
        result = waiting.submit(scene.client.result, waited, timeout=60)
        for reached in (30, 80, 130):
            eventually(lambda reached=reached: scene.count("effect") >= reached, "the work goes on")  # type: ignore[misc]
            mortal_server.crash()
            mortal_server.start()
        scene.finish(60)
        assert result.result(60) == 4
    assert scene.rows("select worker_id from durable.worker order by 1") == workers


def test_a_worker_dies_while_the_database_is_away(mortal_scene: Scene, mortal_server: EmbeddedPostgres) -> None:
    """Database and worker are killed together: another worker finds everything that was accepted."""
    scene = mortal_scene
    scene.start_mixture("both", 2)
    doomed = scene.fleet.start()
    eventually(lambda: scene.count("effect") >= 20, "the work goes on")
    mortal_server.crash()
    doomed.kill()
    mortal_server.start()
    scene.fleet.start()
    scene.finish(60)
