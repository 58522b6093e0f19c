"""Laws 1 and 2: a worker is killed at each marked point of the protocol, and another finishes what it began."""

from __future__ import annotations

import pytest

from durable.faults import WORKER_POINTS
from tests.faults.scene import Scene


def test_without_any_fault_the_oracle_is_content(scene: Scene) -> None:
    """The workload itself, on two workers, breaks no law: what the other tests find is due to their faults."""
    scene.begin(scene.fleet.start(), scene.fleet.start())
    scene.start_mixture("calm", 2)
    scene.finish()


@pytest.mark.parametrize("point", WORKER_POINTS)
def test_a_worker_killed_at_any_point_loses_and_repeats_nothing(scene: Scene, point: str) -> None:
    """One worker is killed when it comes to a point for the first time, the next one at the third: every run ends
    right, no recorded step runs again, no transaction step takes effect twice."""
    scene.start_mixture("kill")
    first = scene.fleet.start(f"{point}:1")
    assert first.await_end(20) == -9, "the worker never came to that point"
    scene.check_store()
    scene.fleet.start(f"{point}:3")
    scene.fleet.start()
    scene.finish()
