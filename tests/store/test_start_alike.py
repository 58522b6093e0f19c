"""Runs that differ in nothing but their inputs: the short way into the store makes what the long one does."""

import json

import psycopg
import pytest

from durable.ids import child_ids, group_start
from durable.testing.protocol import Store

INPUTS = [{"item": 1}, {"item": "null", "note": None}, {"z": [1, {"a": 2}]}]
# Everything about a run but its id and the moment it was made.
ROWS = """
select to_jsonb(t) - array['task_id', 'run_id', 'created_at', 'ready_at'], t.run_id = t.task_id, t.input::text,
       t.ready_at = t.created_at, r.line, r.prio, r.epoch
from durable.task t left join durable.ready r on r.task_id = t.task_id and r.ready_at = t.ready_at
order by t.input::text
"""


def start_alike(store: Store, prio: int = 5) -> list[str]:
    ids = child_ids(group_start(), len(INPUTS))
    store.run("select durable.start_alike(%s, %s, %s::uuid[], %s::json)", store.lines[0], prio, ids, json.dumps(INPUTS))
    return ids


def start_one_by_one(store: Store, prio: int) -> None:
    for given in INPUTS:
        store.start("order", input=given, prio=prio)


@pytest.mark.parametrize("options", [{}, {"max_active_runs": 2}, {"max_running": 1}])
def test_the_short_way_makes_what_the_long_way_makes(store: Store, options: dict[str, int]) -> None:
    """Row for row, ready or queued for a slot, with the inputs as they were given."""
    store.register("order", **options)
    start_alike(store, prio=3)
    short = store.rows(ROWS)
    store.run("truncate durable.task, durable.ready, durable.cap_queue, durable.signal")
    start_one_by_one(store, prio=3)
    assert store.rows(ROWS) == short
    assert len(short) == len(INPUTS)


def test_each_input_belongs_to_its_id(store: Store) -> None:
    """The first id has the first input, and so on."""
    ids = start_alike(store)
    rows = store.rows("select task_id::text, input from durable.task order by task_id")
    assert rows == list(zip(ids, INPUTS, strict=True))


def test_a_workflow_that_was_undeployed_is_refused(store: Store) -> None:
    """As by the long way, and nothing is written."""
    store.run("update durable.workflow set version = ''")
    with pytest.raises(psycopg.Error, match="unknown workflow 'order'") as caught:
        start_alike(store)
    assert (caught.value.sqlstate, store.value("select count(*) from durable.task")) == ("DU010", 0)
