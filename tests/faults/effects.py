"""What steps do to the world: one row per effect, in a table of its own that the runtime knows nothing of.

The one rule: a row also says what the store had already committed when the step took effect. A step that runs after
its own record was committed, or after its run was final, convicts itself.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

import psycopg

from durable import current_step
from durable.ids import uuid7

TABLES = """
create table effect (
  effect_id uuid primary key,
  run_id    uuid not null,
  task_id   uuid not null,
  step      text not null,
  attempt   int not null,
  pid       int not null,
  recorded  boolean not null,
  final     boolean not null,
  at        timestamptz not null default clock_timestamp()
);
create index effect_of on effect (task_id, step);
create table booking (task_id uuid not null, step text not null, pid int not null);
"""

HAPPEN = """
insert into effect (effect_id, run_id, task_id, step, attempt, pid, recorded, final)
select %(id)s, %(run)s, %(task)s, %(step)s, %(attempt)s, %(pid)s,
       exists (select from durable.journal j where j.run_id = %(run)s and j.task_id = %(task)s
               and j.name = %(step)s and j.kind in ('step', 'failed')),
       exists (select from durable.task t where t.task_id = %(task)s and t.finished_at is not null)
on conflict do nothing
"""

HAPPENED = "select 1 from effect where task_id = %s and step = %s"


class World:
    """This process's way to the table: one session, replaced when it breaks. An effect is written once per call."""

    def __init__(self) -> None:
        self._session: psycopg.AsyncConnection | None = None
        self._turn = asyncio.Lock()

    async def happen(self) -> None:
        """The effect of the step that is running now."""
        info = current_step()
        row = {
            "id": uuid7(), "run": info.run_id, "task": info.task_id, "step": info.name,
            "attempt": info.attempt, "pid": os.getpid(),
        }  # fmt: skip
        await self._execute(HAPPEN, row)

    async def happened(self, task_id: str, step: str) -> bool:
        return bool(await self._execute(HAPPENED, (task_id, step)))

    async def _execute(self, sql: str, params: Any) -> int:
        async with self._turn:
            while True:
                try:
                    if self._session is None:
                        dsn = os.environ["FAULTS_WORLD"]
                        self._session = await psycopg.AsyncConnection.connect(dsn, autocommit=True)
                    return (await self._session.execute(sql, params)).rowcount
                except psycopg.OperationalError:
                    self._session = None
                    await asyncio.sleep(0.05)


_world: World | None = None


def world() -> World:
    global _world
    if _world is None:
        _world = World()
    return _world
