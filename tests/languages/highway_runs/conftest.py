"""A stage per test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from durable import Durable

from .stage import Stage


@pytest.fixture
async def stage(durable_dsn: str) -> AsyncIterator[Stage]:
    async with Durable(durable_dsn) as client:
        stage = Stage(durable_dsn, client)
        try:
            yield stage
        finally:
            await stage.stop()
