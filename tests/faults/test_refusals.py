"""Law 7: bad input is refused with a message that says where and what to do, before anything is written."""

from __future__ import annotations

import math
from typing import Any

import psycopg
import pytest

from durable import Refused
from tests.faults import workload
from tests.faults.scene import Scene

TABLES = ("task", "ready", "journal", "event", "signal", "once", "timer", "value", "wait", "cap_queue")


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda c: c.start("nowhere", n=1), "unknown workflow 'nowhere'"),
        (lambda c: c.start(workload.chain), "missing a required argument: 'n'"),
        (lambda c: c.start(workload.chain, 1, m=2), "'m'"),
        (lambda c: c.start(workload.chain, math.nan), r"\$\.n"),
        (lambda c: c.start_many(workload.chain, [{"n": 1}, {"n": {"a": [1, object()]}}]), r"\$\.n\.a\[1\]"),
        (lambda c: c.emit("order", {"text": "nul \x00"}), r"\$\.text"),
        (lambda c: c.cancel("0190b6c4-7e1a-7cc3-9f6e-2d1f0a3b4c5d"), "no run 0190b6c4"),
        (lambda c: c.cancel("x"), "not a run id"),
        (lambda c: c.retry("0190b6c4-7e1a-7cc3-9f6e-2d1f0a3b4c5d"), "no run 0190b6c4"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(scene: Scene, call: Any, says: str) -> None:
    """The message names the place; the store is as it was."""
    before = _counts(scene)
    with pytest.raises(Refused, match=says):
        call(scene.client)
    assert _counts(scene) == before


def test_bad_input_in_sql_leaves_the_callers_transaction_to_the_caller(scene: Scene) -> None:
    """A refusal inside a business transaction has our own code; rolled back, neither of the two has happened."""
    with psycopg.connect(scene.dsn) as connection:
        connection.execute("create table business (id int)")
        connection.commit()
        connection.execute("insert into business values (1)")
        with pytest.raises(psycopg.Error, match="missing 'n'") as refused:
            connection.execute("select durable.spawn('chain', '{}')")
        assert refused.value.sqlstate == "DU013"
        connection.rollback()
    assert scene.count("business") == 0
    assert scene.count("durable.task") == 0


def _counts(scene: Scene) -> dict[str, int]:
    return {table: scene.count(f"durable.{table}") for table in TABLES}
