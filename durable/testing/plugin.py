"""The pytest plugin: a real database per test, under the names that a test asks for.

Kept free of imports of the runtime until a fixture is used, so that it costs other test suites nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from durable.testing.databases import Databases
    from durable.testing.lab import Lab
    from durable.workflow import Workflow


@pytest.fixture(scope="session")
def durable_databases() -> Iterator[Databases]:
    """Databases made from one migrated template, on one server for the whole session."""
    from durable.testing.databases import Databases, server

    with server() as dsn:
        databases = Databases(dsn)
        databases.prepare()
        try:
            yield databases
        finally:
            databases.close()


@pytest.fixture
def durable_dsn(durable_databases: Databases) -> Iterator[str]:
    """The DSN of a fresh database with the store in it."""
    dsn = durable_databases.create()
    try:
        yield dsn
    finally:
        durable_databases.drop(dsn)


@pytest.fixture
def durable_lab(durable_dsn: str) -> Callable[..., Lab]:
    """`async with durable_lab(order, ship) as lab:` a worker with these workflows on a database of the test's own."""
    from durable.testing.lab import Lab

    def open_lab(*workflows: Workflow, **settings: Any) -> Lab:
        return Lab(durable_dsn, workflows, **settings)

    return open_lab
