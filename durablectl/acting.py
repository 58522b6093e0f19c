"""`durable runs cancel|retry|fork|decide`: what a person does to a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

from durable import Durable
from durable.errors import WrongState
from durablectl import exits
from durablectl.database import with_client
from durablectl.exits import WrongUse
from durablectl.inputs import json_value, named_values
from durablectl.jsontext import print_json
from durablectl.story import DECISION, Story, decision_step, read_story


def cancel_run(run_id: str, reason: str, database_url: str | None) -> int:
    async def act(client: Durable) -> None:
        run = await client.run(run_id)
        if run.final:
            raise WrongState(f"run {run_id} has {run.state} already; there is nothing to cancel")
        await client.cancel(run_id, reason)

    with_client(database_url, act)
    print(f"asked run {run_id} to end; it does so before its next step")
    return exits.OK


def retry_run(run_id: str, version: str | None, database_url: str | None) -> int:
    async def act(client: Durable) -> str:
        await client.retry(run_id, version=version)
        return await _versions(client, run_id)

    versions = with_client(database_url, act)
    print(f"run {run_id} goes on from the step that failed{versions}")
    return exits.OK


async def _versions(client: Durable, run_id: str) -> str:
    """With which version it goes on, where there was a choice."""
    run = await client.run(run_id)
    current = next((v.version for v in await client.versions(run.workflow) if v.current), None)
    if run.version is None or run.version == current:
        return ""
    newer = f"; the current one is {current[:12]}: --version current" if current else ""
    return f", as version {run.version[:12]}{newer}"


def fork_run(
    run_id: str,
    step: str | None,
    given: Sequence[str] | None,
    version: str | None,
    *,
    as_json: bool,
    database_url: str | None,
) -> int:
    new_input = named_values(given) if given else None
    forked = with_client(database_url, lambda client: client.fork(run_id, step, input=new_input, version=version))
    if as_json:
        print_json({"run_id": forked, "forked_from": run_id, "step": step})
    else:
        print(forked)
    return exits.OK


class Verdict(NamedTuple):
    """What became of an uncertain step, according to a person."""

    ran: Any
    again: bool
    fail: str | None

    @classmethod
    def of(cls, ran: str | None, again: bool, fail: str | None) -> Self:
        if (ran is not None) + again + (fail is not None) != 1:
            raise WrongUse("say what became of the step with exactly one of --ran JSON, --again and --fail WHY")
        return cls(None if ran is None else json_value(ran, "--ran"), again, fail)


def decide_step(run_id: str, step: str, verdict: Verdict, database_url: str | None) -> int:
    async def act(client: Durable) -> None:
        task_id = _undecided(await read_story(client, run_id), step)
        await client.decide(task_id, step, ran=verdict.ran, again=verdict.again, fail=verdict.fail)

    with_client(database_url, act)
    print(f"decided {step!r} of run {run_id}; the run goes on")
    return exits.OK


def _undecided(story: Story, step: str) -> str:
    """The task that waits for a decision about this step."""
    asked = [wait for wait in story.waits if wait.outcome is None and (wait.name or "").startswith(DECISION)]
    steps = {decision_step(wait.name or ""): str(wait.task_id) for wait in asked}
    if step not in steps:
        known = f"it waits for one about {', '.join(map(repr, steps))}" if steps else "it waits for none"
        raise WrongState(f"run {story.run.run_id} waits for no decision about {step!r}; {known}")
    return steps[step]
