"""A stage per test, with a database of its own."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.scheduler.stage import Stage


@pytest_asyncio.fixture
async def stage(durable_dsn: str) -> AsyncIterator[Stage]:
    opened = await Stage.open(durable_dsn)
    try:
        yield opened
    finally:
        await opened.close()
