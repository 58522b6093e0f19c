"""One test's stage: a database, a fleet of workers, runs with what each must come to, and the oracle over all."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from durable import Start, SyncDurable, Workflow
from tests.faults import effects, invariants, workload
from tests.faults.fleet import Fleet, WorkerProcess, eventually

# The step that a branch is in when its run is cancelled may show after the end; a test of its own counts those.
LATE = "select * from effect where recorded or (final and step !~ 'busy')"
AGAIN = "select task_id, step, attempt, pid, count(*) from effect group by 1, 2, 3, 4 having count(*) > 1"
TWICE = "select task_id, step, count(*) from booking group by 1, 2 having count(*) > 1"
UNBOOKED = """
    select j.task_id, j.name from durable.journal j where j.name ~ '(^|/)book(#|$)' and j.kind = 'step'
    and not exists (select from booking b where b.task_id = j.task_id and b.step = j.name)"""
UNRECORDED = """
    select b.task_id, b.step from booking b where not exists (
      select from durable.journal j where j.task_id = b.task_id and j.name = b.step and j.kind = 'step')"""
PAID_TWICE = "select task_id, count(*) from effect where step = 'pay' group by 1 having count(*) > 1"


class Expected(NamedTuple):
    state: str
    result: Any


class Scene:
    """Starts runs, remembers what must become of them, and judges."""

    def __init__(self, dsn: str, logs: Path):
        self.dsn = dsn
        self.fleet = Fleet(dsn, logs)
        self.expected: dict[str, Expected] = {}
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(effects.TABLES.encode())
        self.client = SyncDurable(dsn, workflows=workload.ALL)
        self.client.__enter__()

    def close(self) -> None:
        self.fleet.close()
        self.client.__exit__(None, None, None)

    # ---------------------------------------------------------------- runs

    def start(
        self, of: Workflow, *args: Any, result: Any = None, state: str = "succeeded", options: Start | None = None
    ) -> str:
        run_id: str = self.client.start(of, *args, options=options)
        self.expected[run_id] = Expected(state, result)
        return run_id

    def start_mixture(self, tag: str, times: int = 1) -> None:
        """Some of everything that ends by itself."""
        for n in range(times):
            event = f"{tag}.{n}"
            self.start(workload.listens, event, 2, result=[0, 1])
            self.start(workload.chain, n, result=n + 4)
            self.start(workload.flaky, n, result=n + 4)
            self.start(workload.sleeper, n, result=n + 3)
            self.start(workload.ledger, n, result=n + 4)
            self.start(workload.careful, n, result=n + 3)
            self.start(workload.speaks, event, 2, result=2)
            self.start(workload.listens, event, 2, result=[0, 1])
            self.start(workload.impatient, f"{event}.never", result="timeout")
            self.start(workload.family, 3, result=(2 + 3 + 4) + 6 + 7 + 4)
            self.start(workload.branches, n, result=[n + 2, n + 2, n + 1])
            self.start(workload.late, n, state="failed")
            for member in range(3):
                self.start(workload.council, f"{event}.council", member, 3, result=3 * (0 + 1 + 2 - member))
            for _ in range(3):
                self.start(workload.narrow, n, result=n + 2)
                self.start(workload.exclusive, n, result=n + 2)

    # ---------------------------------------------------------------- workers

    def begin(self, *workers: WorkerProcess) -> None:
        """Wait until these workers have registered."""
        pids = [worker.pid for worker in workers]
        eventually(
            lambda: (
                self.value("select count(*) from durable.worker where (info ->> 'pid')::int = any(%s)", (pids,))
                >= len(pids)
            ),
            "the workers have registered",
        )

    def worker_id(self, worker: WorkerProcess) -> str | None:
        """The id under which a process works now."""
        sql = "select worker_id::text from durable.worker where (info ->> 'pid')::int = %s order by started_at desc"
        rows = self.rows(sql, (worker.pid,))
        return rows[0][0] if rows else None

    # ---------------------------------------------------------------- looking

    def rows(self, sql: str, params: Any = None) -> list[Any]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            return connection.execute(sql.encode(), params).fetchall()

    def value(self, sql: str, params: Any = None) -> Any:
        return self.rows(sql, params)[0][0]

    def count(self, table: str) -> int:
        return int(self.value(f"select count(*) from {table}"))

    def unfinished(self) -> int:
        return int(self.value("select count(*) from durable.task where finished_at is null"))

    def at_rest(self) -> bool:
        return self.unfinished() == 0 and self.count("durable.signal") == 0

    # ---------------------------------------------------------------- judging

    def finish(self, within: float = 30.0) -> None:
        """Every run becomes final, and then the laws hold."""
        try:
            eventually(self.at_rest, "every run is final", within)
        except AssertionError as error:
            self.fleet.ask()
            raise AssertionError(f"{error}\n{self._open()}\n{self.fleet.told()}") from None
        self.check()

    def check(self) -> None:
        self.check_store()
        self.check_ends()
        self.check_effects()
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            assert invariants.left_behind(connection) == {}

    def check_store(self) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            assert invariants.broken(connection) == {}

    def check_ends(self) -> None:
        """Every run ended as it must, with its result."""
        rows = self.rows("select task_id::text, state::text, result, error from durable.task where parent_id is null")
        ends = {row[0]: row[1:] for row in rows}
        wrong = []
        for run_id, expected in self.expected.items():
            state, result, error = ends[run_id]
            if state != expected.state or (state == "succeeded" and result != expected.result):
                wrong.append((run_id, expected, state, result, error))
        assert wrong == [], f"{wrong}\n{self.fleet.told()}"

    def check_effects(self) -> None:
        """Laws 2 and 6: nothing ran after its record or after its run's end; the same process never ran an attempt
        twice; transaction steps took effect exactly once."""
        live = [row for row in self.rows(LATE) if row[5] not in self.stalled]
        assert live == []
        assert [row for row in self.rows(AGAIN) if row[3] not in self.stalled] == []
        assert self.rows(TWICE) == []
        assert self.rows(UNBOOKED) == []
        assert self.rows(UNRECORDED) == []
        assert [row for row in self.rows(PAID_TWICE) if not self.stalled] == []

    @property
    def stalled(self) -> set[int]:
        return self.fleet.stalled

    def _open(self) -> str:
        rows = self.rows("""
            select t.task_id::text, l.workflow, t.state::text, t.epoch, t.wakes, t.lost, t.stop,
                   (select h.worker_id::text from durable.held h where h.task_id = t.task_id),
                   (select string_agg(j.pos || ' ' || j.kind || ' ' || j.name, ', ' order by j.pos)
                    from durable.journal j where j.task_id = t.task_id)
            from durable.task t join durable.line l using (line) where t.finished_at is null limit 12""")
        signals = self.rows("select kind::text, task_id::text, name, shard from durable.signal limit 12")
        return "\n".join(map(str, [*rows, "signals:", *signals]))
