"""`durable runs why`: what became of each task of a deployed workflow's run, what decided it, what it waits for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from durable import Durable, Version
from durable.errors import Refused, WrongState
from durable.runs import BranchInfo, RunInfo, StepRecord, WaitInfo
from durablectl import exits
from durablectl.database import with_client
from durablectl.jsontext import print_json
from durablectl.story import said, waiting_to_start
from interpreter.deployment import EVALUATORS
from interpreter.driver import secret_reference
from interpreter.driver.past import Waiting
from interpreter.hindsight import Hindsight, Seen, look_back
from interpreter.plan import Pass, Plan

_OPEN: Final = ("waiting", "parked", "running")


class Reason(NamedTuple):
    """One task of a run, its state in a word, what that rests on, and what it waits for."""

    node: str
    state: str
    because: str
    waits_for: list[str]

    def __str__(self) -> str:
        because = self.because if not self.because or self.because.startswith("because") else f"because {self.because}"
        because = f", {because}" if because else ""
        waits = f"; it waits for {' and '.join(self.waits_for)}" if self.waits_for else ""
        return f"{self.node}: {self.state}{because}{waits}"


class Told(NamedTuple):
    """All that the store knows of one run."""

    run: RunInfo
    records: Sequence[StepRecord]
    branches: Sequence[BranchInfo]
    waits: Sequence[WaitInfo]
    version: Version


def explain_run(run_id: str, task: str | None, *, as_json: bool, database_url: str | None) -> int:
    async def act(client: Durable) -> list[Reason]:
        return await explained(await told_of(client, run_id), task)

    reasons = with_client(database_url, act)
    if as_json:
        print_json([reason._asdict() for reason in reasons])
    else:
        for reason in reasons:
            print(reason)
    return exits.OK


async def told_of(client: Durable, run_id: str) -> Told:
    """Ask the store for everything about a run; a program's own code cannot be walked again."""
    run = await client.run(run_id)
    if run.version is None:
        raise WrongState(f"run {run_id} is of a program: its code decides; see `durable runs show {run_id}`")
    version = await client.version(run.workflow, run.version)
    records, branches = await client.history(run_id), await client.branches(run_id)
    return Told(run, records, branches, await client.waits(run_id), version)


async def explained(told: Told, task: str | None = None) -> list[Reason]:
    """The tasks of a run, or those of one name; an unknown one is refused."""
    plan = Plan.from_json(told.version.plan)
    evaluator = EVALUATORS[told.version.language](plan, secret_reference)
    found = await look_back(plan, evaluator, told.run, list(told.records), list(told.branches))
    explanation = Explanation(told, plan, found)
    if task is None:
        return list(explanation.reasons())
    chosen = [explanation.reason(one) for one in found.of_task(task)]
    return chosen or [explanation.not_opened(task)]


class Explanation:
    """A run in hindsight, in words."""

    def __init__(self, told: Told, plan: Plan, hindsight: Hindsight):
        self._told = told
        self._plan = plan
        self._hindsight = hindsight
        self._ends = {node.id for graph in plan.graphs.values() for node in graph.nodes if _is_end(node)}
        self._waits = {(str(wait.task_id), wait.key): wait for wait in told.waits}

    def reasons(self) -> Iterator[Reason]:
        """Every task of the root, in the order of the plan, then what is inside of loops and branches."""
        seen = self._hindsight.seen
        own = [node.id for node in self._plan.graphs[self._plan.root].nodes]
        inner = [path for path in seen if "/" in path]
        for path in (*own, *inner):
            if path in seen and path.rpartition("/")[2] not in self._ends:
                yield self.reason(seen[path])

    def reason(self, one: Seen) -> Reason:
        because = self._cut_short(one) or self._decision(one) or self._gates(one) or one.why.reason
        return Reason(one.path, self._state(one), because, self._waits_for(one))

    def not_opened(self, task: str) -> Reason:
        """A task that nothing has come to: inside of something that has not begun, or not of this workflow."""
        root = self._plan.graphs[self._plan.root]
        nodes = [node for graph in (root, *self._plan.graphs.values()) for node in graph.nodes]
        homes = {name for name, graph in self._plan.graphs.items() if task in {node.id for node in graph.nodes}}
        for owner in (node.id for node in nodes if homes.intersection(node.bodies())):
            seen = self._hindsight.of_task(owner)
            outer = self.reason(seen[0]) if seen else self.not_opened(owner)
            return Reason(task, "not begun", f"{owner} is {outer.state}: {outer.because}", outer.waits_for)
        names = ", ".join(dict.fromkeys(node.id.partition("@")[0] for node in nodes if node.id not in self._ends))
        raise Refused(f"run {self._told.run.run_id} has no task {task!r}; it has {names}")

    # ---------------------------------------------------------------- states

    def _state(self, one: Seen) -> str:
        state = one.why.state
        if self._cut_short(one):
            return self._told.run.state
        if state == "running" and one.waiting and self._told.run.state in ("parked", "delayed"):
            return "waiting"
        return {"succeeded": "done", "waiting": "not begun"}.get(state, state)

    # ---------------------------------------------------------------- reasons

    def _cut_short(self, one: Seen) -> str:
        """What ended the run while a task was still to come, or under way."""
        run = self._told.run
        if one.why.state not in _OPEN or not run.final:
            return ""
        error = run.error or {}
        said = f": {error['message']}" if error.get("message") else ""
        return f"the run {'was' if run.state == 'cancelled' else 'has'} {run.state}{said}"

    def _decision(self, one: Seen) -> str:
        return _route(one.why.decision) if one.why.decision else ""

    def _gates(self, one: Seen) -> str:
        """What the routers that lead to a task decided."""
        if one.why.state in ("failed", "upstream_failed"):
            return ""
        parts = []
        for edge in one.why.edges:
            router = self._beside(one, edge["from"])
            if edge["kind"] == "gate" and router is not None and router.why.decision:
                parts.append(f"{edge['from']} {_route(router.why.decision)}, and this is {edge['label']!r}")
        return "; ".join(dict.fromkeys(parts))

    def _beside(self, one: Seen, name: str) -> Seen | None:
        prefix = one.path.rpartition("/")[0]
        return self._hindsight.seen.get(f"{prefix}/{name}" if prefix else name)

    # ---------------------------------------------------------------- waits

    def _waits_for(self, one: Seen) -> list[str]:
        if self._told.run.final or one.why.state not in _OPEN:
            return []
        own = list(one.waiting) or list(self._hindsight.under_way(one.path))
        return list(dict.fromkeys(f"{self._whose(one, name)}{self._said(name, what)}" for name, what in own))

    def _whose(self, one: Seen, name: str) -> str:
        return "" if name.split(":")[0] == one.path or name.split("~")[0] == one.path else f"{name}: "

    def _said(self, name: str, what: Waiting) -> str:
        match what.kind:
            case "retry":
                error = what.error or {}
                after = f"{error.get('type')}: {error.get('message')}"
                return f"attempt {what.attempt} at {said(what.until)}, after {after}"
            case "sleep":
                return f"its time, {said(what.until)}" if what.until else self._turn()
            case "event":
                return f"event {what.name!r}{self._limit(name)}"
            case "children":
                return self._children(what)
        return self._turn()

    def _turn(self) -> str:
        """What an operation that needs nothing else is waiting for."""
        return next(iter(waiting_to_start(self._told.run)), "its end: it runs now")

    def _limit(self, key: str) -> str:
        found = [wait for (_, own), wait in self._waits.items() if own == key and wait.timeout_at is not None]
        return f", until {said(found[0].timeout_at)}" if found else ""

    def _children(self, what: Waiting) -> str:
        """Branches of this run, or runs of their own."""
        known = {str(task.task_id): task for task in self._told.branches}
        left = []
        for child in what.children:
            task = known.get(child.task_id)
            if task is None or task.finished_at is None:
                state = f" ({_standing(task)})" if task is not None else ""
                left.append(f"{'run' if child.run else 'task'} {child.task_id} of {child.workflow}{state}")
        more = [f"{len(left) - 3} more"] if len(left) > 3 else []
        return " and ".join([*left[:3], *more]) or "its children"


def _standing(task: BranchInfo) -> str:
    return f"ready for a worker that serves queue {task.queue!r}" if task.state == "ready" else task.state


def _is_end(node: Any) -> bool:
    return isinstance(node, Pass) and node.mirrors is not None


def _route(decision: dict[str, Any]) -> str:
    chose = " and ".join(map(repr, decision.get("chose", decision.get("took", ())))) or "nothing"
    saw = ", ".join(f"{name} = {value!r}" for name, value in (decision.get("saw") or {}).items())
    return f"chose {chose}" + (f" when {saw}" if saw else "")
