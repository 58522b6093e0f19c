"""What the tests of the Highway definition layer share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .upstream import Upstream, environment


@pytest.fixture(scope="session")
def upstream(request: pytest.FixtureRequest) -> Iterator[Upstream]:
    """The published 1.1.0, ready to play builder programs."""
    running = Upstream(environment(request.config.rootpath / ".durable"))
    yield running
    running.close()
