"""Tables as they are after a long life: finished, parked and ready tasks, written straight into the store.

The one place outside the runtime that writes its tables: a million runs through the front door take minutes.
"""

from __future__ import annotations

from bench.probe import Probe

FINISHED = """
insert into durable.task (task_id, run_id, line, state, prio, epoch, ready_at, created_at, started_at, finished_at,
                          input, result)
select u, u, %(line)s, 'succeeded', 5, 1, t, t, t, t, '{"number": 1}', '1'
from (select durable.uuid7() as u, now() - interval '1 day' + n * interval '1 millisecond' as t
      from generate_series(1, %(count)s) n) x
"""
PARKED = """
with x as materialized (select durable.uuid7() as u, now() as t, n from generate_series(1, %(count)s) n), t as (
  insert into durable.task (task_id, run_id, line, state, prio, epoch, ready_at, wake_at, created_at, started_at, input)
  select x.u, x.u, %(line)s, 'parked', 5, 1, x.t, x.t + interval '1 day', x.t, x.t, '{"event": "never"}' from x
), w as (
  insert into durable.wait (run_id, task_id, key, name, step, timeout_at)
  select x.u, x.u, 'event:never/' || x.n, 'never/' || x.n, x.u || '/event:never', x.t + interval '1 day' from x
)
insert into durable.timer (wake_at, task_id) select x.t + interval '1 day', x.u from x
"""
READY = """
with x as materialized (select durable.uuid7() as u, now() as t from generate_series(1, %(count)s) n), t as (
  insert into durable.task (task_id, run_id, line, state, prio, epoch, ready_at, created_at, input)
  select x.u, x.u, %(line)s, 'active', 5, 0, x.t, x.t, '{"number": 1}' from x
)
insert into durable.ready (line, prio, ready_at, task_id, epoch) select %(line)s, 5, x.t, x.u, 0 from x
"""


async def fill(probe: Probe, *, finished: int, parked: int) -> None:
    line = await _line(probe, "trivial")
    await probe.run(FINISHED, {"line": line, "count": finished})
    await probe.run(PARKED, {"line": await _line(probe, "waiting"), "count": parked})
    await settle(probe)


async def fill_ready(probe: Probe, workflow: str, count: int) -> None:
    await probe.run(READY, {"line": await _line(probe, workflow), "count": count})
    await settle(probe)


async def settle(probe: Probe) -> None:
    """What autovacuum and the checkpointer would have done by now."""
    await probe.run("vacuum (analyze) durable.task, durable.ready, durable.held, durable.timer, durable.wait")
    await probe.run("checkpoint")


async def _line(probe: Probe, workflow: str) -> int:
    return int(await probe.value("select durable.line_of('default', %s)", (workflow,)))
