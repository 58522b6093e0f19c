"""Random Highway workflows that run: what each task comes to is drawn with them."""

from __future__ import annotations

import random
from typing import Any

from highway_dsl import Workflow, WorkflowBuilder

KINDS = ("task", "task", "task", "condition", "switch", "parallel", "foreach", "while", "wait", "emit", "caught")


class Flow:
    """One random workflow. Every task calls `f`; `fails` are the ids of those that fail."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._count = 0
        self.fails: set[str] = set()
        self._handlers: list[tuple[str, str]] = []
        builder = WorkflowBuilder("random_flow")
        self._fill(builder, depth=0, length=self._chance.randint(3, 6))
        for owner, handler in self._handlers:
            builder.task(handler, "f")
            self._owner(builder, owner).on_failure_task_id = handler
        self.workflow: Workflow = builder.build()

    def _owner(self, builder: WorkflowBuilder, task_id: str) -> Any:
        return builder.workflow.tasks[task_id]

    def _id(self) -> str:
        self._count += 1
        return f"t{self._count}"

    def _fill(self, builder: WorkflowBuilder, depth: int, length: int) -> WorkflowBuilder:
        for _ in range(length):
            kind = self._chance.choice(KINDS if depth < 2 else KINDS[:3])
            getattr(self, f"_{kind}")(builder, self._id(), depth)
        return builder

    def _inner(self, depth: int) -> Any:
        return lambda b: self._fill(b, depth + 1, self._chance.randint(1, 2))

    def _task(self, builder: WorkflowBuilder, id: str, depth: int) -> None:
        builder.task(id, "f")
        if self._chance.random() < 0.05:
            self.fails.add(id)

    def _caught(self, builder: WorkflowBuilder, id: str, depth: int) -> None:
        builder.task(id, "f")
        if depth == 0:
            self._handlers.append((id, self._id()))
        if self._chance.random() < 0.25:
            self.fails.add(id)

    def _condition(self, builder: WorkflowBuilder, id: str, depth: int) -> None:
        said = self._chance.choice(["true", "false", "{{run.status}} == 'running'"])
        builder.condition(id, condition=said, if_true=self._inner(depth), if_false=self._inner(depth))

    def _switch(self, builder: WorkflowBuilder, id: str, depth: int) -> None:
        if depth:
            self._task(builder, id, depth)
            return
        first, second = self._id(), self._id()
        builder.switch(id, switch_on=self._chance.choice(["a", "b", "c"]), cases={"a": first, "b": second})
        builder.task(first, "f", dependencies=[id]).task(second, "f", dependencies=[id])
        builder.task(self._id(), "f", dependencies=[first, second])

    def _parallel(self, builder: WorkflowBuilder, id: str, depth: int) -> None:
        spawn = self._chance.choice(["never", "never", "always"])
        branches = {name: self._inner(depth) for name in ("a", "b", "c")[: self._chance.randint(1, 3)]}
        builder.parallel(id, branches=branches, metadata={"spawn": spawn})

    def _foreach(self, builder: WorkflowBuilder, id: str, depth: int) -> None:
        more: dict[str, Any] = {}
        if self._chance.random() < 0.5:
            more = {"parallel": True, "metadata": {"spawn": self._chance.choice(["never", "always"])}}
        count = self._chance.randint(0, 3)
        builder.foreach(id, items=f"{{{{range({count})}}}}", loop_body=self._inner(depth), **more)

    def _while(self, builder: WorkflowBuilder, id: str, depth: int) -> None:
        flag, body = self._id(), self._inner(depth)
        builder.task(flag, "f")
        builder.while_loop(
            id,
            condition=f"{{{{{flag}}}}} < 2",
            loop_body=lambda b: body(b).task(f"{flag}_next", "count", result_key=flag),
        )

    def _wait(self, builder: WorkflowBuilder, id: str, depth: int) -> None:
        builder.wait(id, wait_for="PT5S")

    def _emit(self, builder: WorkflowBuilder, id: str, depth: int) -> None:
        builder.emit_event(id, event_name=f"event_{id}").wait_for_event(f"{id}_ear", event_name=f"event_{id}")
