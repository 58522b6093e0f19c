"""What holds in every snapshot of the store, whoever has died: each query finds rows that must not exist.

Every transition is one transaction, so these are true at any moment, not only when all is quiet.
"""

from __future__ import annotations

import psycopg

ALWAYS = {
    "an active task that is neither ready nor held": """
        select t.task_id from durable.task t where t.state = 'active'
        and not exists (select from durable.ready r where r.task_id = t.task_id)
        and not exists (select from durable.held h where h.task_id = t.task_id)""",
    "a task that is ready and held": "select r.task_id from durable.ready r join durable.held h using (task_id)",
    "a task that is ready twice": "select task_id from durable.ready group by 1 having count(*) > 1",
    "a ready or held task that is not active": """
        select t.task_id, t.state from durable.task t
        join (select task_id from durable.ready union all select task_id from durable.held) x using (task_id)
        where t.state <> 'active'""",
    "a ready task whose epoch is not its task's": """
        select t.task_id, t.epoch, r.epoch from durable.ready r join durable.task t using (task_id)
        where r.epoch <> t.epoch""",
    "a held task whose epoch does not follow its task's": """
        select t.task_id, t.epoch, h.epoch from durable.held h join durable.task t using (task_id)
        where h.epoch <> t.epoch + 1""",
    "a record of an epoch that no claim has given": """
        select j.task_id, j.pos, j.epoch from durable.journal j join durable.task t using (task_id)
        left join durable.held h using (task_id) where j.epoch > coalesce(h.epoch, t.epoch)""",
    "a task held by an unknown worker": """
        select h.task_id from durable.held h left join durable.worker w using (worker_id) where w.worker_id is null""",
    "a fence without its worker": """
        select f.worker_id from durable.fence f left join durable.worker w using (worker_id)
        where w.worker_id is null""",
    "a timer of a task that neither sleeps nor is delayed": """
        select m.task_id, t.state from durable.timer m left join durable.task t using (task_id)
        where not m.deadline and (t.state is null or t.state not in ('parked', 'delayed') or t.wake_at <> m.wake_at)""",
    "a sleeping or delayed task without its timer": """
        select t.task_id from durable.task t where t.state in ('parked', 'delayed') and t.wake_at is not null
        and not exists (select from durable.timer m where m.task_id = t.task_id and m.wake_at = t.wake_at)""",
    "a deadline of a finished task": """
        select m.task_id from durable.timer m join durable.task t using (task_id)
        where m.deadline and t.finished_at is not null""",
    "a queued task that stands in no line": """
        select t.task_id from durable.task t where t.state = 'queued'
        and not exists (select from durable.cap_queue q where q.task_id = t.task_id)""",
    "a task in line that is not queued": """
        select q.task_id, t.state from durable.cap_queue q left join durable.task t using (task_id)
        where t.state is null or t.state not in ('queued', 'delayed')""",
    "a slot held beyond the cap": """
        select h.cap_key, count(*) from durable.hold h group by 1 having count(*) > durable.cap_limit(h.cap_key)""",
    "a running slot of a task that does not run": """
        select h.task_id, t.state from durable.hold h join durable.task t using (task_id)
        where left(h.cap_key, 1) in ('r', 'R') and t.state <> 'active'""",
    "a slot of a finished task": """
        select h.task_id from durable.hold h left join durable.task t using (task_id)
        where t.task_id is null or t.finished_at is not null""",
    "a wait of a finished task": """
        select w.task_id from durable.wait w left join durable.task t using (task_id)
        where t.task_id is null or t.finished_at is not null""",
    "an open child that is final": """
        select c.child_id from durable.open_child c join durable.task t on t.task_id = c.child_id
        where t.finished_at is not null""",
    "a task that is open, but not for its parent": """
        select t.task_id from durable.task t where t.parent_id is not null and t.finished_at is null
        and not exists (select from durable.open_child c where c.child_id = t.task_id)""",
    "two outcomes of one step": """
        select j.task_id, j.name from durable.journal j where j.kind in ('step', 'failed')
        group by 1, 2 having count(*) > 1""",
}

# Once every run is final: these tables hold work that is still to be done.
AT_REST = ("ready", "held", "timer", "signal", "open_child", "wait", "hold", "cap_queue")


def broken(connection: psycopg.Connection) -> dict[str, list[object]]:
    """The laws that one snapshot of the store breaks, with the rows that break them."""
    found = {}
    with connection.transaction():
        connection.execute("set transaction isolation level repeatable read read only")
        for law, query in ALWAYS.items():
            if rows := connection.execute(query.encode()).fetchmany(5):
                found[law] = list(rows)
    return found


def left_behind(connection: psycopg.Connection) -> dict[str, int]:
    """Rows of work that nobody needs any more."""
    counts = {}
    for table in AT_REST:
        row = connection.execute(f"select count(*) from durable.{table}".encode()).fetchone()
        counts[table] = int(row[0]) if row else 0
    return {table: count for table, count in counts.items() if count}
