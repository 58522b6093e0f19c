"""Runs the examples: an embedded PostgreSQL, a worker, and a story that starts runs and looks at them."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable
from typing import Any

from durable import Durable, Worker
from highway_dsl import Workflow
from interpreter.highway import highway_workflow

Story = Callable[[Durable], Awaitable[None]]


class Imported:
    """Functions by their dotted names, as the workflows spell them."""

    def resolve(self, name: str) -> Callable[..., Any]:
        module, _, function = name.rpartition(".")
        found: Callable[..., Any] = getattr(importlib.import_module(module), function)
        return found


def play(workflows: list[Workflow], story: Story) -> None:
    """Serve the workflows while the story lasts."""
    asyncio.run(_play(workflows, story))


async def _play(workflows: list[Workflow], story: Story) -> None:
    flows = [highway_workflow(workflow, Imported()) for workflow in workflows]
    async with Durable(workflows=flows) as durable:
        worker = Worker(durable.dsn, flows)
        serving = asyncio.create_task(worker.run())
        await worker.ready()
        try:
            await story(durable)
        finally:
            worker.stop()
            await serving
