"""One workflow per kind of operator, and what each comes to. Their functions leave a row behind for every call."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

import psycopg

from durable import current_step
from highway_dsl import ChildWorkflowOperator, RetryPolicy, TaskOperator, Workflow, WorkflowBuilder

TABLE = """
create table effect (task_id uuid, step text, attempt int, pid int, recorded boolean);
create table booking (task_id uuid, step text);
"""
HAPPEN = """
insert into effect select %(task)s, %(step)s, %(attempt)s, %(pid)s,
  exists (select from durable.journal j where j.run_id = %(run)s and j.task_id = %(task)s
          and j.name = %(step)s and j.kind in ('step', 'failed'))
"""


QUEUE = "far"
BOOK = "insert into booking values (%s, %s)"


async def book(connection: Any, value: int = 0) -> int:
    """Adds one in the transaction of its step."""
    info = current_step()
    await connection.execute(BOOK, (info.task_id, info.name))
    return value + 1


def book_plainly(connection: Any, value: int = 0) -> int:
    info = current_step()
    connection.execute(BOOK, (info.task_id, info.name))
    return value + 1


BOOKS: dict[str, Any] = {"book": book, "book_plainly": book_plainly}
for _function in BOOKS.values():
    _function.__durable_transaction__ = True


class Functions:
    """Adds one to its first argument, and says so to the database. `stumble` fails the first time."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    def resolve(self, name: str) -> Callable[..., Any]:
        if name in BOOKS:
            return cast("Callable[..., Any]", BOOKS[name])

        async def add(value: int = 0, *rest: Any) -> int:
            info = current_step()
            row = {"task": info.task_id, "run": info.run_id, "step": info.name, "attempt": info.attempt}
            async with await psycopg.AsyncConnection.connect(self._dsn, autocommit=True) as connection:
                await connection.execute(HAPPEN, {**row, "pid": os.getpid()})
            if name == "fail" or (name == "stumble" and info.attempt == 1):
                raise RuntimeError(f"{info.name} fails")
            return value + 1

        return add


def _body(prefix: str) -> Any:
    return lambda b: b.task(f"{prefix}1", "add", args=[1]).task(f"{prefix}2", "add", args=[f"{{{{{prefix}1}}}}"])


def task() -> Workflow:
    builder = WorkflowBuilder("kill_task").task("a", "add")
    builder.task(
        "b", "stumble", args=["{{a}}"], retry_policy=RetryPolicy(max_retries=2, delay=timedelta(milliseconds=30))
    )
    return builder.task("c", "add", args=["{{b}}"]).build()


def condition() -> Workflow:
    builder = WorkflowBuilder("kill_condition").task("a", "add")
    builder.condition("c", condition="{{a}} == 1", if_true=_body("t"), if_false=_body("f"))
    return builder.task("last", "add", args=["{{t2}}"]).build()


def switch() -> Workflow:
    builder = WorkflowBuilder("kill_switch").task("a", "add")
    builder.switch("s", switch_on="{{a}}", cases={"1": "one", "2": "two"})
    builder.task("one", "add", args=[5], dependencies=["s"]).task("two", "add", dependencies=["s"])
    return builder.task("last", "add", args=["{{one}}"], dependencies=["one", "two"]).build()


def parallel(spawn: bool = False) -> Workflow:
    builder = WorkflowBuilder("kill_parallel" + "_spawned" * spawn)
    builder.parallel("p", branches={"a": _body("x"), "b": _body("y")}, timeout=600, metadata={"spawn": spawn})
    return builder.task("last", "add", args=["{{x2 + y2}}"]).build()


def foreach() -> Workflow:
    builder = WorkflowBuilder("kill_foreach")
    builder.foreach("e", items="{{[1, 2]}}", loop_body=lambda b: b.task("t", "add", args=["{{item}}"]))
    return builder.task("last", "add", args=["{{e | sum}}"]).build()


def foreach_spawned() -> Workflow:
    builder = WorkflowBuilder("kill_foreach_spawned")
    builder.foreach(
        "e",
        items="{{[1, 2, 3]}}",
        loop_body=lambda b: b.task("t", "add", args=["{{item}}"]),
        parallel=True,
        max_parallel=2,
        metadata={"spawn": True},
    )
    return builder.task("last", "add", args=["{{e | sum}}"]).build()


def while_loop() -> Workflow:
    builder = WorkflowBuilder("kill_while").task("a", "add", result_key="n")
    builder.while_loop(
        "w", condition="{{n}} < 4", loop_body=lambda b: b.task("t", "add", args=["{{n}}"], result_key="n")
    )
    return builder.task("last", "add", args=["{{n}}"]).build()


def wait() -> Workflow:
    builder = WorkflowBuilder("kill_wait").task("a", "add").wait("w", wait_for=timedelta(milliseconds=80))
    return builder.task("last", "add", args=["{{a}}"]).build()


def events() -> Workflow:
    builder = WorkflowBuilder("kill_events").task("a", "add")
    builder.emit_event("say", event_name="kill_{{run.id}}", payload={"n": "{{a}}"})
    builder.wait_for_event("hear", event_name="kill_{{run.id}}", timeout_seconds=600)
    return builder.task("last", "add", args=["{{hear.payload.n}}"]).build()


def callbacks() -> Workflow:
    workflow = WorkflowBuilder("kill_callbacks").task("bad", "fail").task("good", "add", dependencies=[]).build()
    for owner, hook in (("bad", "on_failure_task_id"), ("good", "on_success_task_id")):
        workflow.add_task(TaskOperator(task_id=f"after_{owner}", function="add"))
        setattr(workflow.tasks[owner], hook, f"after_{owner}")
    return workflow


def child() -> Workflow:
    workflow = Workflow(name="kill_child")
    kids = {name: {"workflow_name": "kill_wait", "inputs": {}} for name in ("x", "y")}
    workflow.add_task(ChildWorkflowOperator(task_id="kids", children=kids))
    return workflow.add_task(
        TaskOperator(task_id="last", function="add", args=["{{kids.x + kids.y}}"], dependencies=["kids"])
    )


def activity() -> Workflow:
    retried = RetryPolicy(max_retries=2, delay=timedelta(milliseconds=30))
    builder = WorkflowBuilder("kill_activity").task("a", "add")
    builder.activity("b", "stumble", args=["{{a}}"], retry_policy=retried, queue=QUEUE)
    builder.activity("c", "add", args=["{{b}}"], queue=QUEUE)
    return builder.task("last", "add", args=["{{c}}"]).build()


def transaction() -> Workflow:
    builder = WorkflowBuilder("kill_transaction").task("a", "book")
    builder.foreach("e", items="{{[1, 2]}}", loop_body=lambda b: b.task("t", "book_plainly", args=["{{item}}"]))
    return builder.wait("w", wait_for=timedelta(milliseconds=50)).task("last", "book", args=["{{e | sum}}"]).build()


# The result of each, or None where the run fails.
FLOWS: dict[str, tuple[Workflow, Any]] = {
    "task": (task(), 3),
    "condition": (condition(), 4),
    "switch": (switch(), 7),
    "parallel": (parallel(), 7),
    "parallel spawned": (parallel(spawn=True), 7),
    "foreach": (foreach(), 6),
    "foreach spawned": (foreach_spawned(), 10),
    "while": (while_loop(), 5),
    "wait": (wait(), 2),
    "events": (events(), 2),
    "callbacks": (callbacks(), None),
    "child workflow": (child(), 5),
    "activity": (activity(), 4),
    "transaction": (transaction(), 6),
}
