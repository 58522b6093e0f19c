"""Watching a run: a live page in a terminal, a line for each new thing when piped."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Protocol, Self, TextIO

from durable import Durable
from durablectl.page import drawn, duration, failure, live_page
from durablectl.story import StepLine, Story, read_story

EVERY = 0.25

Enough = Callable[[Story], bool]


async def watch(client: Durable, run_id: str, to: TextIO | None = None) -> Story:
    """Show a run while it goes on; its story at its end."""
    with Watch(client, run_id, to) as watching:
        return await watching.until(lambda story: story.run.final)


class Watch:
    """Eyes on one run, for as long as somebody looks."""

    def __init__(self, client: Durable, run_id: str, to: TextIO | None = None, every: float = EVERY):
        out = to or sys.stdout
        self._client = client
        self._run_id = run_id
        self._every = every
        self._view: View = LiveView(out) if out.isatty() else LineView(out)

    def __enter__(self) -> Self:
        self._view.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._view.close()

    async def until(self, enough: Enough) -> Story:
        """Look until the run is as it shall be, or has ended."""
        while True:
            story = await read_story(self._client, self._run_id)
            self._view.show(story)
            if enough(story) or story.run.final:
                return story
            await asyncio.sleep(self._every)

    def say(self, text: str) -> None:
        """A sentence between the things that happen."""
        self._view.say(text)


class View(Protocol):
    """Where a run is shown."""

    def __enter__(self) -> Self: ...
    def close(self) -> None: ...
    def show(self, story: Story) -> None: ...
    def say(self, text: str) -> None: ...


class LiveView:
    """One page, drawn again and again in place."""

    def __init__(self, out: TextIO):
        from rich.console import Console
        from rich.live import Live

        self._live = Live(console=Console(file=out), auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def close(self) -> None:
        self._live.stop()

    def show(self, story: Story) -> None:
        self._live.update(drawn(live_page(story)), refresh=True)

    def say(self, text: str) -> None:
        self._live.console.print(text, style="bold", highlight=False)


class LineView:
    """A line for each thing that is new."""

    def __init__(self, out: TextIO):
        self._out = out
        self._seen: dict[object, str] = {}
        self._waits: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def close(self) -> None:
        """Nothing is left open."""

    def show(self, story: Story) -> None:
        # A wait that is over at the next look is not worth a line.
        lasting = [waits for waits in story.waiting_for if waits in self._waits]
        self._waits = set(story.waiting_for)
        for key, text in _said(story, lasting).items():
            if self._seen.get(key) != text:
                self._seen[key] = text
                self.say(f"  {text}")

    def say(self, text: str) -> None:
        print(text, file=self._out, flush=True)


def _said(story: Story, waiting_for: list[str]) -> dict[object, str]:
    """One line for each thing there is to say, by what it is about."""
    names = {child.task_id: child.workflow for child in story.children}
    lines: dict[object, str] = {}
    for step in story.steps:
        lines[step.task_id, step.name] = _step(names.get(step.task_id, story.run.workflow), step)
    for waits in waiting_for:
        lines[waits] = f"{story.run.workflow}: waits for {waits}"
    if story.run.final:
        lines["end"] = f"{story.run.workflow}: {story.run.state} {failure(story.run.error)}".rstrip()
    return lines


def _step(task: str, step: StepLine) -> str:
    took = f" in {duration(step.ms / 1000)}" if step.ms is not None else ""
    tries = f", attempt {step.attempts}" if step.attempts > 1 else ""
    return f"{task}: {step.name} {step.state}{took}{tries} {failure(step.error)}".rstrip()
