"""What the driver costs, counted on a context that keeps nothing: no database, no clock."""

from __future__ import annotations

import gc
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from interpreter.driver.forks import Forks
from interpreter.driver.workflow import plan_workflow
from interpreter.expressions import Templates
from interpreter.plan import Call, Edge, Graph, Plan
from interpreter.walker.commands import Spawn, Unit
from interpreter.walker.frame import Frame


class Context:
    """Steps are calls, and whoever asks is told of a stop."""

    run_id = task_id = "019a8f00-0000-7000-8000-000000000000"
    snapshot = None
    replaying = False
    weight = 0
    positions: dict[str, list[int]] | None = None
    told: Callable[[str], None] | None = None

    async def step(self, name: str, fn: Any, *args: Any, retry: Any = None) -> Any:
        return await fn(*args)

    def on_stop(self, call: Callable[[str], None]) -> None:
        self.told = call


class Adding:
    async def add_one(self, number: int) -> int:
        return number + 1

    def resolve(self, name: str) -> Any:
        return self.add_one


def chain(length: int) -> Plan:
    ids = [f"n{i}" for i in range(length)]
    before = ["inputs.number", *ids]
    nodes = tuple(
        Call(id=id, target="add", args={"args": [f"{{{{ {last} }}}}"]}, bind=(id,))
        for id, last in zip(ids, before, strict=False)
    )
    edges = tuple(Edge(source=a, target=b) for a, b in pairwise(ids))
    return Plan(name="chain", graphs={"main": Graph(nodes=nodes, edges=edges, result=(ids[-1],))})


def frames() -> int:
    return sum(isinstance(it, Frame) for it in gc.get_objects())


async def test_a_walk_that_has_ended_is_free_at_once() -> None:
    """Nothing of a run waits for the collector: a worker that makes garbage works on cold memory all the time."""
    flow, ctx = plan_workflow(chain(3), Adding(), Templates()), Context()
    gc.collect()
    before = frames()
    gc.disable()
    try:
        assert await flow.fn(ctx, number=4) == 7  # type: ignore[arg-type]
        assert frames() == before
    finally:
        gc.enable()
    assert ctx.told is not None
    ctx.told("a stop after the end concerns nobody")


class Looked(Unit):
    """A unit that counts how often its path was asked for."""

    looks = 0

    def __getattribute__(self, name: str) -> Any:
        if name == "path":
            Looked.looks += 1
        return super().__getattribute__(name)


def test_stopping_a_fork_looks_at_each_of_its_units_once() -> None:
    """Units that wait for their cap are taken out one by one, and none of the others is looked at for it."""
    forks = Forks("f")
    units: list[Unit] = [Looked(f"e[{i}]", "", "main", "e", i, i + 1, 500, "e", None, {}) for i in range(500)]
    assert forks.admit(Spawn("e", units, cap=1)).units == units[:1]
    Looked.looks = 0
    assert not any(forks.stop(f"e[{i}]") for i in range(1, 500))
    assert forks.gone("e[0]") == []
    assert Looked.looks == 0
