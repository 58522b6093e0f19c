"""What a run has come to: its plan walked again along its records, by the same driver and the same walker.

Nothing is performed and nothing is written. Where the records end, the walk stands where the run stands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from durable.journal import Record
from durable.runs import BranchInfo, RunInfo, StepRecord
from interpreter.driver import units
from interpreter.driver.drive import Drive
from interpreter.driver.past import Ended, Past, Waiting
from interpreter.driver.workflow import Runner
from interpreter.plan import Plan
from interpreter.walker import Evaluator, Walk, why
from interpreter.walker.states import OPEN
from interpreter.walker.why import Why

# Turns of the event loop without a move after which the past is used up. A record goes through three at most.
_QUIET: Final = 12


class Seen(NamedTuple):
    """One node of the run, at its end or where it stands, and what it waits for if it is under way."""

    why: Why
    waiting: tuple[tuple[str, Waiting], ...] = ()

    @property
    def path(self) -> str:
        return self.why.path


@dataclass(frozen=True)
class Hindsight:
    """Every node that a run has come to, by its full name, in the order they ended; then those that are open."""

    seen: dict[str, Seen]

    def of_task(self, name: str) -> list[Seen]:
        """What has this full name or, in any frame, this id; a handler by its own name too."""
        return [each for path, each in self.seen.items() if name in _names(path)]

    def under_way(self, path: str) -> Iterator[tuple[str, Waiting]]:
        """What a node that has not begun waits for in the end: operations of those that it follows."""
        todo, met = [path], {path}
        for one in todo:
            at = self.seen.get(one)
            if at is None:
                continue
            yield from at.waiting
            prefix = one.rpartition("/")[0]
            pending = [edge["from"] for edge in at.why.edges if edge["state"] == "pending"]
            fresh = {f"{prefix}/{name}" if prefix else name for name in pending} - met
            met |= fresh
            todo += sorted(fresh)


def _names(path: str) -> set[str]:
    last = path.rpartition("/")[2]
    return {path, last, last.partition("@")[0]}


async def look_back(
    plan: Plan, evaluator: Evaluator, run: RunInfo, records: list[StepRecord], branches: list[BranchInfo]
) -> Hindsight:
    """Walk a run again, and the branches that it spawned as tasks."""
    ended = {str(task.task_id): Ended(task.state, task.result, task.error) for task in branches}
    runner = Runner(plan, _NoFunctions(), evaluator, run.workflow, 32)
    seen: dict[str, Seen] = {}
    tasks: list[tuple[str, Any]] = [(str(run.run_id), run.input)]
    tasks += [(str(task.task_id), task.input) for task in branches if _has_begun(task)]
    for task_id, given in tasks:
        own = [Record(r.pos, r.kind, r.name, r.body) for r in records if str(r.task_id) == task_id]
        past = Past(str(run.run_id), task_id, sorted(own), ended)
        for one in await _walked(runner, past, given):
            if not (one.path in seen and one.why.state in _OPEN_NAMES):
                seen[one.path] = one
    return Hindsight(seen)


def _has_begun(task: BranchInfo) -> bool:
    """Whether a unit's walk has come anywhere: what stands in line says so as a whole."""
    return units.UNIT in (task.input or {}) and task.started_at is not None


async def _walked(runner: Runner, past: Past, given: Mapping[str, Any]) -> list[Seen]:
    # The driver asks for no more of a context than what the past has.
    drive, first = runner.begin(past, dict(given))  # type: ignore[arg-type]
    found: dict[str, Seen] = {}
    drive.walk.trace = _keeping(drive.walk, found)
    walking = asyncio.get_running_loop().create_task(drive.run(first))
    try:
        await _used_up(past, walking)
        open_now = [_open(drive, past, path) for path in _open_paths(drive.walk)]
        if walking.done():
            walking.result()
    finally:
        walking.cancel()
        await asyncio.wait([walking])
    return [*found.values(), *open_now]


def _keeping(walk: Walk, found: dict[str, Seen]) -> Callable[[str, str], None]:
    def keep(path: str, state: str) -> None:
        found[path] = Seen(why(walk, path))

    return keep


async def _used_up(past: Past, walking: asyncio.Task[Any]) -> None:
    quiet, moves = 0, -1
    while quiet < _QUIET and not walking.done():
        quiet = quiet + 1 if moves == past.moves else 0
        moves = past.moves
        await asyncio.sleep(0)


def _open_paths(walk: Walk) -> list[str]:
    frames = list(walk.frames.values())
    return [frame.path(i) for frame in frames for i, status in enumerate(frame.status) if status in OPEN]


def _open(drive: Drive, past: Past, path: str) -> Seen:
    """A node that is not final; one that opened frames waits for what is under way in them."""
    found = why(drive.walk, path)
    own = [(name, what) for name, what in past.waiting.items() if _belongs(name, path)]
    return Seen(found, tuple(own) if found.state == "running" else ())


def _belongs(name: str, path: str) -> bool:
    """Whether an operation is a node's own, or of something in a frame that the node opened."""
    return name == path or (name.startswith(path) and name[len(path)] in "[#!~(:")


class _NoFunctions:
    """No function is called in hindsight."""

    def resolve(self, name: str) -> Callable[..., Any]:
        return _nothing


async def _nothing(*args: Any, **kwargs: Any) -> None:
    return None


_OPEN_NAMES: Final = frozenset(("waiting", "parked", "running"))
