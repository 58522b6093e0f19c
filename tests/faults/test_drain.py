"""SIGTERM drains: steps under way are recorded, everything else is given back at once, and nothing is charged."""

from __future__ import annotations

import signal

from tests.faults import workload
from tests.faults.fleet import eventually
from tests.faults.scene import Scene

LINGERING = "select count(*) from effect where step = 'linger'"


def test_a_drained_worker_gives_everything_back_uncharged(scene: Scene) -> None:
    """Another worker goes on at once; the step that was under way was recorded and does not run again."""
    first = scene.fleet.start(lease=30)
    scene.begin(first)
    for _ in range(4):
        scene.start(workload.long_step, 1.0, result=0.0)
    scene.start_mixture("drain", 2)
    eventually(lambda: scene.value(LINGERING) == 4, "the long steps are under way")
    first.send(signal.SIGTERM)
    assert first.await_end(15) == 0
    assert scene.count("durable.held") == 0
    scene.check_store()
    scene.fleet.start(lease=30)
    scene.finish()
    assert scene.rows("select task_id from durable.task where lost > 0") == []
    assert scene.rows("select task_id, step, attempt from effect group by 1, 2, 3 having count(*) > 1") == []


def test_a_second_sigterm_does_not_wait_for_steps(scene: Scene) -> None:
    """A step that would take an hour is left behind; its task is given back and charged to nobody."""
    first = scene.fleet.start(lease=30, drain_seconds=3600)
    scene.begin(first)
    run = scene.client.start(workload.long_step, 3600.0)
    eventually(lambda: scene.value(LINGERING) == 1, "the long step is under way")
    first.send(signal.SIGTERM)
    eventually(lambda: first.says("draining"), "it drains")
    first.send(signal.SIGTERM)
    assert first.await_end(15) == 0
    assert scene.rows("select state::text, lost from durable.task where task_id = %s", (run,)) == [("active", 0)]
    assert scene.count("durable.ready") == 1


def test_a_drain_ends_in_bounded_time(scene: Scene) -> None:
    """A step that outlives the time it is given is left behind."""
    first = scene.fleet.start(lease=30, drain_seconds=0.5)
    scene.begin(first)
    scene.client.start(workload.long_step, 3600.0)
    eventually(lambda: scene.value(LINGERING) == 1, "the long step is under way")
    first.send(signal.SIGTERM)
    assert first.await_end(15) == 0
    assert scene.count("durable.ready") == 1
    scene.check_store()
