"""The plan: what every language compiles to and the walker walks.

A plan is a set of graphs; one is the root, the others are bodies that nodes own (an iteration, a branch,
a function, a handler). Its one rule: a plan is a value. It holds no code, its JSON form reads back equal,
and its hash names its meaning (source spans do not count).

An expression is any JSON value; what it means is the evaluator's business, never the walker's.
"""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, SerializerFunctionWrapHandler, model_serializer

Join = Literal["all", "first", "each"]
Trigger = Literal["all_success", "all_done", "one_success", "one_done", "none_failed"]
GuardMode = Literal["park", "skip", "drop"]
Route = Literal["exclusive", "inclusive", "guarded_else_all"]
EdgeKind = Literal["after", "gate", "on_success", "on_failure", "arc"]
Writes = Literal["local", "through"] | tuple[str, ...]
Names = tuple[str, ...]


class Model(BaseModel):
    """Frozen, and strict about unknown keys: a misspelt field must not vanish."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Span(Model):
    """Where a node stands in its source; lines and columns are 1-based."""

    line: int
    column: int = 1
    end_line: int | None = None
    end_column: int | None = None
    file: str | None = None


class RetryRule(Model):
    """How often and after which wait a failure is tried again.

    `attempts` counts every try this rule allows, the first included. A rule without `errors` takes what no
    other rule names. The wait before retry n (1-based) is delay, delay*n or delay*factor**(n-1).
    """

    attempts: int = Field(ge=1)
    delay: float = Field(default=0.0, ge=0)
    backoff: Literal["fixed", "linear", "exponential"] = "fixed"
    factor: float = Field(default=2.0, gt=0)
    max_delay: float | None = Field(default=None, ge=0)
    errors: Names = ()


class Node(Model):
    """What all kinds of node share.

    `bind` names receive the node's value (each the whole of it, or one item each with `unpack`).
    `route` and `route_on_failure` say how outgoing arcs are selected; `retry` and `timeout` of a leaf belong
    to whoever performs it, those of a frame owner to the walker.
    """

    kind: str
    id: str
    join: Join = "all"
    trigger: Trigger = "all_success"
    guard: JsonValue = None
    guard_mode: GuardMode = "park"
    route: Route = "exclusive"
    route_on_failure: Literal["guarded", "all"] = "guarded"
    bind: Names = ()
    unpack: bool = False
    retry: tuple[RetryRule, ...] = ()
    timeout: float | None = Field(default=None, gt=0)
    title: str | None = None
    span: Span | None = None
    meta: dict[str, JsonValue] = {}

    owner: ClassVar[bool] = False

    def bodies(self) -> Names:
        """The graphs this node opens frames of."""
        return ()

    @model_serializer(mode="wrap")
    def _keep_kind(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # The compact form leaves defaults out, and the kind is a default that readers need.
        return {"kind": self.kind, **handler(self)}


class Call(Node):
    """The durable leaf: a function, tool, action, pipeline or child workflow.

    `args` is rendered by the walker; `config` goes to the performer as it stands.
    """

    kind: Literal["call"] = "call"
    target: str
    via: Literal["function", "tool", "action", "pipeline", "workflow"] = "function"
    args: JsonValue = None
    config: dict[str, JsonValue] = {}


class Compute(Node):
    """An inline, deterministic value. `recorded` ones may look outside (now, random): the driver evaluates
    them and the record keeps what came out."""

    kind: Literal["compute"] = "compute"
    value: JsonValue = None
    recorded: bool = False


class Case(Model):
    """One way out of a choose: `when` is an expression, `equals` a text to compare `on` with."""

    label: str
    when: JsonValue = None
    equals: str | None = None


class Choose(Node):
    """Selects gates by label: the first case that holds (or all, with `many`), else `default`."""

    kind: Literal["choose"] = "choose"
    on: JsonValue = None
    cases: tuple[Case, ...] = ()
    default: str | None = None
    many: bool = False


class Wait(Node):
    """A durable pause: for `seconds`, or `until` a moment. Exactly one is set."""

    kind: Literal["wait"] = "wait"
    seconds: JsonValue = None
    until: JsonValue = None


class AwaitEvent(Node):
    """Waits for an event by name; `timeout` makes it fail instead of waiting for ever."""

    kind: Literal["await_event"] = "await_event"
    event: JsonValue
    since: JsonValue = None


class Emit(Node):
    """Appends an event to the log."""

    kind: Literal["emit"] = "emit"
    event: JsonValue
    payload: JsonValue = None


class Return(Node):
    """Leaves frames: `return` the nearest function or the run, `break` the nearest loop, `continue` the
    nearest iteration, `terminate` the run with `outcome`."""

    kind: Literal["return"] = "return"
    exit: Literal["return", "break", "continue", "terminate"] = "return"
    value: JsonValue = None
    outcome: Literal["succeeded", "failed", "cancelled"] = "succeeded"


class Pass(Node):
    """Does nothing. With `mirrors` it is the end of a two-phase operator whose start it names."""

    kind: Literal["pass"] = "pass"
    mirrors: str | None = None


class Owner(Node):
    """A node that opens frames. `fail_fast` cancels what else runs under it at the first failure."""

    fail_fast: bool = False
    owner: ClassVar[bool] = True


class Each(Owner):
    """The body once per item. The names of `item` are bound in each frame (several unpack the item).

    `on_error`: `fail` (a sequential loop stops, a parallel one drains), `continue` (null in the results) or
    `collect` (the error in the results). `collect`: the results as a list, with stats, or not at all.
    `queue`: where its tasks stand if all items are spawned; else they stand where the run does.
    """

    kind: Literal["each"] = "each"
    items: JsonValue
    item: Names = ("item",)
    index: str | None = None
    body: str
    mode: Literal["sequential", "parallel"] = "sequential"
    cap: JsonValue = None
    until: JsonValue = None
    on_error: Literal["fail", "continue", "collect"] = "fail"
    collect: Literal["list", "stats", "none"] = "list"
    spawn: Literal["never", "auto", "always"] = "never"
    queue: str | None = Field(default=None, min_length=1)

    def bodies(self) -> Names:
        return (self.body,)


class Repeat(Owner):
    """The body while a condition holds, tested before each iteration (or after, with `test_first` off)."""

    kind: Literal["repeat"] = "repeat"
    when: JsonValue
    body: str
    limit: int = Field(default=10_000, ge=1)
    test_first: bool = True

    def bodies(self) -> Names:
        return (self.body,)


class Region(Owner):
    """A cycle: one frame per iteration. Edges marked `back` in the body lead to the next iteration, edges
    with `exit` leave it; an incoming edge says by `entry` where it comes in."""

    kind: Literal["region"] = "region"
    body: str
    limit: int = Field(default=10_000, ge=1)

    def bodies(self) -> Names:
        return (self.body,)


class Handler(Model):
    """What an attempt runs for an error of one of these types; without types, for any."""

    body: str
    errors: Names = ()
    bind: str | None = None


class Attempt(Owner):
    """A body, and handlers for its errors: the first that matches."""

    kind: Literal["attempt"] = "attempt"
    body: str
    handlers: tuple[Handler, ...] = ()

    def bodies(self) -> Names:
        return (self.body, *(handler.body for handler in self.handlers))


class Function(Owner):
    """A call of a graph that sees its arguments and nothing of its caller."""

    kind: Literal["function"] = "function"
    body: str
    args: dict[str, JsonValue] = {}

    def bodies(self) -> Names:
        return (self.body,)


class Branch(Model):
    """One branch of a fork."""

    name: str
    body: str


class Fork(Owner):
    """Branches side by side, each isolated; its value is the list of theirs. `queue` as of an `each`."""

    kind: Literal["fork"] = "fork"
    branches: tuple[Branch, ...]
    cap: JsonValue = None
    on_error: Literal["fail", "continue", "collect"] = "fail"
    collect: Literal["list", "stats", "none"] = "list"
    spawn: Literal["never", "auto", "always"] = "never"
    queue: str | None = Field(default=None, min_length=1)

    def bodies(self) -> Names:
        return tuple(branch.body for branch in self.branches)


class Block(Owner):
    """A composite: a body with its own retry or timeout."""

    kind: Literal["block"] = "block"
    body: str

    def bodies(self) -> Names:
        return (self.body,)


AnyNode = Annotated[
    Call
    | Compute
    | Choose
    | Wait
    | AwaitEvent
    | Emit
    | Return
    | Pass
    | Each
    | Repeat
    | Region
    | Attempt
    | Function
    | Fork
    | Block,
    Field(discriminator="kind"),
]


class Edge(Model):
    """A way a node's end concerns another node.

    `label` names the choice a gate stands for, or the exit of a region an arc takes up. `when` and `args`
    belong to arcs. `unless` (on `after` only) names callback handlers: the edge counts if none of them ran.
    `back`, `exit` and `entry` concern regions; an `exit` edge has no target.
    """

    source: str
    target: str | None = None
    kind: EdgeKind = "after"
    label: str | None = None
    when: JsonValue = None
    args: JsonValue = None
    unless: Names = ()
    back: bool = False
    exit: str | None = None
    entry: str | None = None


class Graph(Model):
    """Nodes in plan order and the edges between them.

    `entries` are the nodes that get the first tokens (all without incoming edges if unset). `writes` says
    which names a frame of it writes to the enclosing scope. `result` lists names; the first bound one is
    the value of a frame that did not return.
    """

    nodes: tuple[AnyNode, ...]
    edges: tuple[Edge, ...] = ()
    entries: Names | None = None
    writes: Writes = "local"
    result: Names = ()


class Plan(Model):
    """The compiled form of one version of a workflow."""

    name: str
    language: str = "plan"
    graphs: dict[str, Graph]
    root: str = "main"
    fails_when: Literal["any", "unhandled", "raised"] = "any"
    fail_fast: bool = False
    final_step: str | None = None
    parked_fails: bool = False
    timeout: float | None = Field(default=None, gt=0)
    meta: dict[str, JsonValue] = {}

    def to_json(self) -> dict[str, Any]:
        """The compact JSON form: defaults left out."""
        return self.model_dump(mode="json", exclude_defaults=True)

    @classmethod
    def from_json(cls, value: Any) -> Plan:
        """The plan a JSON form describes; equal to the one it came from."""
        return cls.model_validate(value)

    @cached_property
    def hash(self) -> str:
        """The name of what this plan means. A moved line does not change it."""
        text = json.dumps(_without_spans(self.to_json()), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def _without_spans(form: dict[str, Any]) -> dict[str, Any]:
    graphs = {name: _graph_without_spans(graph) for name, graph in form["graphs"].items()}
    return {**form, "graphs": graphs}


def _graph_without_spans(graph: dict[str, Any]) -> dict[str, Any]:
    nodes = [{key: part for key, part in node.items() if key != "span"} for node in graph["nodes"]]
    return {**graph, "nodes": nodes}
