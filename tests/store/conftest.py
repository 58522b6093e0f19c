"""The store under test, over one session."""

from collections.abc import Iterator

import pytest

from durable.testing.protocol import Store


@pytest.fixture
def store(durable_dsn: str) -> Iterator[Store]:
    """A fresh store with one registered workflow, `order`."""
    with Store(durable_dsn) as store:
        store.register("order")
        yield store
