"""Watching a run until it ends: a live page in a terminal, a line for each new thing when piped."""

from __future__ import annotations

import asyncio
import sys
from typing import TextIO

from durable import Durable
from durablectl.page import drawn, duration, failure, story_page
from durablectl.story import StepLine, Story, read_story

EVERY = 0.25


async def watch(client: Durable, run_id: str, to: TextIO | None = None) -> Story:
    """Show a run while it goes on; its story at its end."""
    out = to or sys.stdout
    if out.isatty():
        return await _live(client, run_id, out)
    return await _lines(client, run_id, out)


async def _live(client: Durable, run_id: str, out: TextIO) -> Story:
    from rich.console import Console
    from rich.live import Live

    story = await read_story(client, run_id)
    with Live(drawn(story_page(story)), console=Console(file=out), auto_refresh=False) as view:
        while not story.run.final:
            await asyncio.sleep(EVERY)
            story = await read_story(client, run_id)
            view.update(drawn(story_page(story)), refresh=True)
    return story


async def _lines(client: Durable, run_id: str, out: TextIO) -> Story:
    seen: dict[object, str] = {}
    while True:
        story = await read_story(client, run_id)
        for key, text in _said(story).items():
            if seen.get(key) != text:
                seen[key] = text
                print(text, file=out, flush=True)
        if story.run.final:
            return story
        await asyncio.sleep(EVERY)


def _said(story: Story) -> dict[object, str]:
    """One line for each thing there is to say, by what it is about."""
    names = {child.task_id: f"{child.workflow} {str(child.task_id)[-8:]}" for child in story.children}
    lines: dict[object, str] = {}
    for step in story.steps:
        lines[step.task_id, step.name] = _step(names.get(step.task_id, story.run.workflow), step)
    for waits in story.waiting_for:
        lines[waits] = f"{story.run.workflow}: waits for {waits}"
    if story.run.final:
        lines["end"] = f"{story.run.workflow}: {story.run.state} {failure(story.run.error)}".rstrip()
    return lines


def _step(task: str, step: StepLine) -> str:
    took = f" in {duration(step.ms / 1000)}" if step.ms is not None else ""
    tries = f", attempt {step.attempts}" if step.attempts > 1 else ""
    return f"{task}: {step.name} {step.state}{took}{tries} {failure(step.error)}".rstrip()
