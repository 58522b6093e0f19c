"""Law 6: a cancelled run starts no further step."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from durable import Start
from tests.faults import workload
from tests.faults.fleet import eventually
from tests.faults.scene import Scene

STEPS = "select count(*) from effect where run_id = %s"


def test_a_cancelled_run_starts_no_further_step_in_any_branch(scene: Scene) -> None:
    """A branch that is in the middle of its steps when its run is cancelled ends with it."""
    scene.begin(scene.fleet.start())
    run = scene.start(workload.orphaned, 0, state="cancelled")
    eventually(lambda: scene.value(STEPS, (run,)) > 5, "it takes steps")
    scene.client.cancel(run)
    eventually(lambda: scene.client.state(run) == "cancelled", "it is cancelled")
    # Whatever would go on beside the end goes on while these runs do.
    for n in range(5):
        scene.start(workload.sleeper, n, result=n + 3)
    scene.finish()
    late = scene.value("select count(*) from effect where run_id = %s and final", (run,))
    assert late <= 1, "only the step that was under way may still show"


@pytest.mark.parametrize("point", ["pass.sent", "pass.after", "flush.sent", "end.before"])
def test_a_cancel_survives_the_worker_that_applies_it(scene: Scene, point: str) -> None:
    """Killed anywhere between the cancel and the end: the run, its child and its cleanup come to their end once."""
    scene.begin(scene.fleet.start())
    runs = [scene.start(workload.endless, n, state="cancelled") for n in range(3)]
    eventually(lambda: all(scene.value(STEPS, (run,)) > 3 for run in runs), "they take steps")
    scene.fleet.workers[0].kill()
    for run in runs:
        scene.client.cancel(run)
    assert scene.fleet.start(f"{point}:1").await_end(20) == -9
    scene.fleet.start()
    scene.finish()
    for run in runs:
        cleaned = [row[0] for row in scene.rows("select step from effect where task_id = %s", (run,))]
        assert {"cleanup/tidy", "cleanup/tidy#2"} <= set(cleaned)
    assert scene.value("select count(*) from durable.task where state <> 'cancelled'") == 0


def test_waiting_runs_are_cancelled_wherever_they_wait(scene: Scene) -> None:
    """Delayed, queued for a slot, parked for an event, a child or a time, running: each ends, and frees its slot."""
    scene.begin(scene.fleet.start(), scene.fleet.start())
    later = Start(start_at=datetime.now(UTC) + timedelta(hours=1))
    runs = [
        scene.start(workload.chain, 1, state="cancelled", options=later),
        scene.start(workload.listens, "never", 1, state="cancelled"),
        scene.start(workload.sleeper, 1, 3600.0, state="cancelled"),
        scene.start(workload.long_step, 0.5, state="cancelled"),
    ]
    runs += [scene.start(workload.hoards, 1, state="cancelled") for _ in range(5)]
    eventually(lambda: scene.count("effect") >= 4, "what can run does")
    for run in runs:
        scene.client.cancel(run)
    scene.start(workload.hoards, 0, result=0)
    scene.finish()
