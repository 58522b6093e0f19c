"""A step that must never run twice does not, however often its worker dies in it."""

from __future__ import annotations

import pytest

from tests.faults import workload
from tests.faults.scene import Scene

PAID = "select count(*) from effect where step = 'pay'"


@pytest.mark.parametrize(
    ("second", "paid"),
    [
        pytest.param("step.before:2", 0, id="before it took effect"),
        pytest.param("step.after:2", 1, id="after it took effect"),
    ],
)
def test_each_try_is_confirmed_anew(scene: Scene, second: str, paid: int) -> None:
    """Killed with the intent recorded, confirmed as not run, and killed again in the second try: what was confirmed
    about the first try says nothing about the second."""
    scene.start(workload.careful, 5, result=8)
    assert scene.fleet.start("step.before:2").await_end(20) == -9
    assert scene.value(PAID) == 0
    assert scene.fleet.start(second).await_end(20) == -9
    assert scene.value(PAID) == paid
    scene.fleet.start()
    scene.finish()
    assert scene.value(PAID) == 1
