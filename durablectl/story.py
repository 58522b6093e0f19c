"""All that is known of one run, as data: what `runs show` prints and `--json` gives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from durable import Durable
from durable.runs import BranchInfo, HolderInfo, LogLine, ProgressInfo, RunInfo, StepRecord, WaitInfo

DECISION = "durable.decide/"
# The level of lines that say what a walk decided; `durable runs why` makes sentences of them.
NOTE = "why"
# A cap may have hundreds of slots; a line names so many of their holders.
MANY_HOLDERS = 5

# What a record of each kind says about its step.
_STATES = {
    "step": "done",
    "attempt": "retrying",
    "failed": "failed",
    "intent": "begun",
    "sleep": "sleeping",
    "slept": "slept",
    "event": "received",
    "timeout": "timed out",
    "emit": "emitted",
    "spawn": "spawned",
    "child": "joined",
    "value": "noted",
}


class StepLine(BaseModel):
    """One step of one task: all its records together."""

    model_config = ConfigDict(frozen=True)

    task_id: UUID
    name: str
    state: str
    attempts: int
    ms: int | None
    began_at: datetime
    at: datetime
    until: datetime | None = None
    error: dict[str, Any] | None = None
    result: Any = None


class Story(BaseModel):
    """One run at one moment, with everything below it."""

    model_config = ConfigDict(frozen=True)

    run: RunInfo
    waiting_for: list[str] = []
    next: list[str] = []
    steps: list[StepLine]
    waits: list[WaitInfo]
    holders: list[HolderInfo] = []
    children: list[BranchInfo]
    progress: list[ProgressInfo]
    logs: list[LogLine]

    def of_task(self, task_id: UUID) -> list[StepLine]:
        return [step for step in self.steps if step.task_id == task_id]


async def read_story(client: Durable, run_id: str) -> Story:
    """Look at a run and everything below it."""
    run = await client.run(run_id)
    story = Story(
        run=run,
        steps=step_lines(await client.steps(run_id)),
        waits=list(await client.waits(run_id)),
        holders=list(await client.holders(run_id)) if run.state == "queued" else [],
        children=list(await client.branches(run_id)),
        progress=list(await client.progress(run_id)),
        logs=list(await client.logs(run_id)),
    )
    return story.model_copy(update={"waiting_for": waiting_for(story), "next": next_commands(story)})


def step_lines(records: Sequence[StepRecord]) -> list[StepLine]:
    """The records of each step as one line, in the order in which steps began."""
    lines: dict[tuple[UUID, str], StepLine] = {}
    for record in records:
        if record.kind == "retry":
            _forgive(lines, record)
        else:
            key = (record.task_id, record.name)
            lines[key] = _with(lines.get(key), record)
    return list(lines.values())


def _forgive(lines: dict[tuple[UUID, str], StepLine], retry: StepRecord) -> None:
    """A person had the run retried: the failures that ended it no longer count."""
    voids = retry.body.get("voids", [retry.body["void"]])
    for key, line in lines.items():
        if line.task_id == retry.task_id and line.error is not None and line.error.get("pos") in voids:
            lines[key] = line.model_copy(update={"state": "retrying"})


def _with(line: StepLine | None, record: StepRecord) -> StepLine:
    body = record.body if isinstance(record.body, dict) else {}
    error = {"attempt": body.get("error"), "failed": body}.get(record.kind)
    began = line.began_at if line else record.at
    slept = record.kind == "slept" and line is not None
    return StepLine(
        task_id=record.task_id,
        name=record.name,
        state=_STATES.get(record.kind, record.kind),
        attempts=(line.attempts if line else 0) + (record.kind in ("step", "attempt", "failed")),
        ms=int((record.at - began).total_seconds() * 1000) if slept else record.ms,
        began_at=began,
        at=record.at,
        until=_until(body) if record.kind in ("attempt", "sleep") else None,
        error=error,
        result=record.body if record.kind in ("step", "value") else body.get("payload"),
    )


def _until(body: dict[str, Any]) -> datetime | None:
    return datetime.fromtimestamp(body["until"], UTC) if "until" in body else None


def waiting_for(story: Story) -> list[str]:
    """What has to happen before the run goes on, in words."""
    if story.run.state != "parked":
        return waiting_to_start(story.run, story.holders)
    return [*_times(story), *(_wait(story, wait) for wait in story.waits if wait.outcome is None)]


def waiting_to_start(run: RunInfo, holders: Sequence[HolderInfo] = ()) -> list[str]:
    """What a run that could go on needs for it; `holders` have the slots that it stands in line for."""
    worker = f"a worker that serves queue {run.queue!r}"
    simple = {
        "ready": worker,
        # Workers give out slots: without one, a run is queued though every slot is free.
        "queued": f"a free slot{f' of {run.cap_key!r}' if run.cap_key else ''}{_held(holders) or f', and {worker}'}",
        "delayed": f"its start at {said(run.wake_at)}",
    }
    return [simple[run.state]] if run.state in simple else []


def _held(holders: Sequence[HolderInfo]) -> str:
    runs = list(dict.fromkeys(f"run {holder.run_id}" for holder in holders))
    more = f" and {len(runs) - MANY_HOLDERS} more" if len(runs) > MANY_HOLDERS else ""
    return f"; held by {', '.join(runs[:MANY_HOLDERS])}{more}" if runs else ""


def _times(story: Story) -> Iterable[str]:
    for step in story.steps:
        if step.state == "sleeping":
            yield f"{step.name}, until {said(step.until)}"
        elif step.state == "retrying" and step.until is not None:
            yield f"attempt {step.attempts + 1} of {step.name}, at {said(step.until)}"


def _wait(story: Story, wait: WaitInfo) -> str:
    if wait.name is None:
        open_children = sum(child.finished_at is None for child in story.children)
        return f"{open_children} of {len(story.children)} children"
    if wait.name.startswith(DECISION):
        return f"a person's decision about {decision_step(wait.name)}"
    limit = f", until {said(wait.timeout_at)}" if wait.timeout_at else ""
    return f"event {wait.name!r}{limit}"


def decision_step(event: str) -> str:
    """The step that a decision event is about: its name may hold a slash, a task id does not."""
    return event.removeprefix(DECISION).partition("/")[2]


def next_commands(story: Story) -> list[str]:
    """What a person can do about the run now, as commands."""
    noted = any(line.level == NOTE for line in story.logs)
    return [*_actions(story), *([f"durable runs why {story.run.run_id}"] if noted else [])]


def _actions(story: Story) -> list[str]:
    run, own = story.run, story.run.run_id
    if run.state in ("failed", "cancelled"):
        step = (run.error or {}).get("step")
        fork = f"durable runs fork {own}" + (f" --from {_quoted(step)}" if step else "")
        return [f"durable runs retry {own}", fork]
    found = []
    for wait in story.waits:
        if wait.outcome is None and wait.name is not None:
            if wait.name.startswith(DECISION):
                found.append(
                    f"durable runs decide {own} {_quoted(decision_step(wait.name))} --ran JSON|--again|--fail WHY"
                )
            else:
                found.append(f"durable emit {_quoted(wait.name)} --payload JSON")
    return found


def _quoted(text: str) -> str:
    import shlex

    return shlex.quote(text)


def said(when: datetime | None) -> str:
    """A time for people and for scripts: UTC, to the second."""
    return "-" if when is None else when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
