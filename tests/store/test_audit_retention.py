"""The audit of secrets is kept as long as runs are, and not longer."""

from __future__ import annotations

from durable import Settings
from durable.maintenance import Pruned, Pruner
from durable.testing.protocol import Store

LATER = "durable.now() + interval '1 day'"


def noted(store: Store, count: int) -> None:
    store.run(
        f"select durable.note_secret_access('token', 'table', 'w', durable.uuid7()) from generate_series(1, {count})"
    )


async def test_old_audit_rows_are_pruned_with_retention(durable_dsn: str) -> None:
    """In as many batches as it takes; younger rows stay."""
    with Store(durable_dsn) as store:
        noted(store, 1200)
        store.skip("31 days")
        noted(store, 2)
        pruner = Pruner(durable_dsn, Settings(retention_days=30))
        assert await pruner.run_once() == Pruned(0, 0, accesses=1200)
        assert await pruner.run_once() == Pruned(0, 0, 0)
        assert store.value("select count(*) from durable.secret_access") == 2


def test_a_batch_is_no_larger_than_asked_and_goes_on_where_it_ended(store: Store) -> None:
    """The oldest first."""
    for _ in range(5):
        noted(store, 1)
        store.skip("1 hour")
    [(pruned, reached)] = store.rows(f"select * from durable.prune_secret_access({LATER}, 2)")
    assert pruned == 2
    assert store.value("select min(at) from durable.secret_access") > reached
    assert store.rows(f"select pruned from durable.prune_secret_access({LATER}, 9, %s)", reached) == [(3,)]


def test_a_second_pruner_of_the_audit_gets_null(store: Store, durable_dsn: str) -> None:
    """One at a time."""
    noted(store, 3)
    with Store(durable_dsn) as other, other.connection.transaction():
        other.run(f"select durable.prune_secret_access({LATER})")
        assert store.rows(f"select pruned from durable.prune_secret_access({LATER})") == [(None,)]


def test_a_batch_costs_its_own_rows(store: Store) -> None:
    """It is found by an index, whatever else the audit holds."""
    noted(store, 3000)
    store.run("analyze durable.secret_access")
    plan = store.column(
        f"explain select a.id from durable.secret_access a where a.at >= '-infinity' and a.at < {LATER}"
        " order by a.at limit 10"
    )
    assert "secret_access_at" in " ".join(map(str, plan))
