"""`durable runs why`: what became of each task of a deployed workflow's run, and what decided it."""

from __future__ import annotations

from typing import Any, NamedTuple

from durable import Durable, Version
from durable.errors import Refused, WrongState
from durable.runs import LogLine
from durablectl import exits
from durablectl.database import with_client
from durablectl.jsontext import print_json
from durablectl.story import Story, read_story
from interpreter.plan import Edge, Plan

LEVEL = "why"


class Reason(NamedTuple):
    """One task of a run, its state in a word, and what that rests on."""

    node: str
    state: str
    because: str


def explain_run(run_id: str, node: str | None, *, as_json: bool, database_url: str | None) -> int:
    async def act(client: Durable) -> tuple[Story, Version]:
        story = await read_story(client, run_id)
        if story.run.version is None:
            raise WrongState(f"run {run_id} is of a program: its code decides; see `durable runs show {run_id}`")
        return story, await client.version(story.run.workflow, story.run.version)

    story, version = with_client(database_url, act)
    found = Explanation(story, Plan.from_json(version.plan)).reasons()
    chosen = [reason for reason in found if node in (None, reason.node, reason.node.rpartition("/")[2])]
    if not chosen:
        known = ", ".join(reason.node for reason in found)
        raise Refused(f"run {run_id} has no task {node!r}; it has {known}")
    if as_json:
        print_json([reason._asdict() for reason in chosen])
    else:
        for reason in chosen:
            print(f"{reason.node}: {reason.state}{f', because {reason.because}' if reason.because else ''}")
        for waits in story.waiting_for:
            print(f"the run waits for {waits}")
    return exits.OK


class Explanation:
    """A run's notes and records, read against its plan."""

    def __init__(self, story: Story, plan: Plan):
        self._story = story
        self._notes = [line for line in story.logs if line.level == LEVEL and line.step is not None]
        self._noted = {line.step: line for line in self._notes if line.message != "route"}
        self._routes = {line.step: line for line in self._notes if line.message == "route"}
        self._steps = {step.name: step for step in story.steps}
        self._graph = plan.graphs[plan.root]

    def reasons(self) -> list[Reason]:
        """Every task of the root, in the order of the plan, then what loops and branches noted."""
        own = [node.id for node in self._graph.nodes]
        inner = [path for path in dict.fromkeys([*self._steps, *self._noted, *self._routes]) if "/" in str(path)]
        return [self._reason(str(path)) for path in (*own, *inner)]

    def _reason(self, path: str) -> Reason:
        if path in self._routes:
            return Reason(path, "decided", _route(self._routes[path]))
        if path in self._noted:
            note = self._noted[path]
            data = (note.fields or {}).get("data")
            return Reason(path, note.message, self._upstream(path) or (str(data) if data else ""))
        if path in self._steps:
            step = self._steps[path]
            failed = step.error and f"{step.error.get('type')}: {step.error.get('message')}"
            return Reason(path, step.state, failed or self._upstream(path))
        return Reason(path, "passed" if self._story.run.final else "not begun", self._upstream(path))

    def _upstream(self, path: str) -> str:
        """What the edges into a task say."""
        said = [text for edge in self._graph.edges if edge.target == path and (text := self._edge(edge))]
        return "; ".join(said)

    def _edge(self, edge: Edge) -> str:
        if edge.kind == "gate" and edge.source in self._routes:
            return f"{edge.source} {_route(self._routes[edge.source])}, and this is {edge.label!r}"
        source = self._steps.get(edge.source)
        if source is not None and source.state == "failed":
            return f"{edge.source} failed"
        if edge.source in self._noted:
            return f"{edge.source} was {self._noted[edge.source].message}"
        return ""


def _route(note: LogLine) -> str:
    data: dict[str, Any] = (note.fields or {}).get("data") or {}
    chose = " and ".join(map(repr, data.get("chose", ()))) or "nothing"
    saw = ", ".join(f"{name} = {value!r}" for name, value in (data.get("saw") or {}).items())
    return f"chose {chose}" + (f" when {saw}" if saw else "")
