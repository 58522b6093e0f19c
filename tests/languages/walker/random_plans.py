"""Random plans for the laws: every kind of node and edge, nested, with outcomes that depend on paths only."""

from __future__ import annotations

import zlib
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from interpreter.expressions import Templates
from interpreter.plan import (
    Attempt,
    Block,
    Branch,
    Case,
    Choose,
    Compute,
    Each,
    Edge,
    Fork,
    Function,
    Graph,
    Handler,
    Node,
    Pass,
    Plan,
    Region,
    Repeat,
    RetryRule,
    Return,
)
from interpreter.walker import Scope
from interpreter.walker.states import OPEN

from .walking import FAIL, call, graph


class Toy(Templates):
    """Conditions that depend on states and iterations, not on values that race."""

    def truth(self, expr: Any, scope: Scope) -> bool:
        if isinstance(expr, dict) and "done" in expr:
            # Of its own frame only: a branch that looks at what is around it could not be spawned.
            i = scope.frame.layout.index.get(expr["done"])
            return i is not None and scope.frame.status[i] not in OPEN
        if isinstance(expr, dict) and "below" in expr:
            return scope.frame.slot < expr["below"]
        if isinstance(expr, dict) and "rounds" in expr:
            return bool(scope.frame.data[scope.node]["iterations"] < expr["rounds"])
        return super().truth(expr, scope)


def outcome_of(seed: int, percent: int) -> Any:
    """Fails some paths, always the same ones."""

    def decide(path: str) -> Any:
        return FAIL if zlib.crc32(f"{seed}:{path}".encode()) % 100 < percent else path

    return decide


class Outcomes(dict[str, Any]):
    def __init__(self, seed: int, percent: int) -> None:
        super().__init__()
        self.decide = outcome_of(seed, percent)

    def get(self, path: str, default: Any = None) -> Any:
        return self.decide(path)


TRIGGERS = ("all_success", "all_success", "all_success", "all_done", "one_success", "one_done", "none_failed")


class Builder:
    """Draws one plan. Bodies are graphs of their own; `depth` bounds the nesting."""

    def __init__(self, draw: Any, *, arcs: bool) -> None:
        self.draw = draw
        self.arcs = arcs
        self.graphs: dict[str, Graph] = {}
        self.fresh = 0

    def pick(self, *options: Any) -> Any:
        return self.draw(st.sampled_from(options))

    def chance(self, percent: int) -> bool:
        return self.draw(st.integers(0, 99)) < percent

    def body(self, depth: int, **kw: Any) -> str:
        self.fresh += 1
        name = f"g{self.fresh}"
        self.graphs[name] = Graph(nodes=())
        self.graphs[name] = self.graph(depth, **kw)
        return name

    def graph(self, depth: int, **kw: Any) -> Graph:
        size = self.draw(st.integers(1, 6 if depth == 2 else 3))
        nodes = [self.node(f"n{i}", depth, in_line=False) for i in range(size)]
        edges = [edge for j in range(size) for edge in self.edges_into(nodes, j)]
        writes = self.pick("local", "through", ("r",))
        entries = ("n0",) if self.arcs else None
        return graph(nodes, edges, writes=writes, result=("n0", "r"), entries=kw.get("entries", entries))

    def line(self, depth: int, last: Node | None = None) -> str:
        """A body whose nodes follow one another, so that an exit races with nothing."""
        self.fresh += 1
        name = f"g{self.fresh}"
        self.graphs[name] = Graph(nodes=())
        nodes = [self.node(f"n{i}", depth, in_line=True) for i in range(self.draw(st.integers(1, 3)))]
        nodes += [last] if last is not None else []
        edges = [Edge(source=a.id, target=b.id) for a, b in pairwise(nodes)]
        self.graphs[name] = graph(nodes, edges, writes="through")
        return name

    def common(self) -> dict[str, Any]:
        kw: dict[str, Any] = {"trigger": self.pick(*TRIGGERS), "join": "all"}
        if self.arcs:
            kw = {
                "join": self.pick("all", "all", "first", "each"),
                "route": self.pick("exclusive", "inclusive", "guarded_else_all"),
            }
            kw["route_on_failure"] = self.pick("guarded", "all")
            if self.chance(25):
                kw["guard"] = self.pick({"done": "n0"}, {"done": "n2"}, "false", "true")
                kw["guard_mode"] = self.pick("park", "park", "skip", "drop")
        return kw

    def node(self, id: str, depth: int, *, in_line: bool) -> Node:
        kw = {} if in_line else self.common()
        kind = self.pick(*("call",) * 6, "choose", "compute", "pass", *OWNERS * (depth > 0))
        if kind == "call":
            return call(id, bind=self.pick((), (id,), ("r",)), **kw)
        if kind == "choose":
            return Choose(id=id, cases=(Case(label="a", when=self.pick("true", "false")),), default="b", **kw)
        if kind == "compute":
            return Compute(id=id, value=1, bind=(id,), recorded=self.chance(50), **kw)
        if kind == "pass":
            return Pass(id=id, **kw)
        return getattr(self, f"make_{kind}")(id, depth - 1, self.retry() | kw)

    def retry(self) -> dict[str, Any]:
        if not self.chance(20):
            return {}
        return {"retry": (RetryRule(attempts=2, delay=self.pick(0.0, 1.0)),)}

    def make_each(self, id: str, depth: int, kw: dict[str, Any]) -> Node:
        mode = self.pick("sequential", "parallel")
        kw |= {
            "items": self.pick([], [1], [1, 2, 3]),
            "mode": mode,
            "on_error": self.pick("fail", "continue", "collect"),
        }
        kw |= {"cap": self.pick(None, 1, 2), "collect": self.pick("list", "stats", "none")}
        if mode == "parallel":
            return Each(id=id, body=self.body(depth), spawn=self.pick("never", "auto", "always"), **kw)
        last = Return(id="x", exit=self.pick("break", "continue"))
        body = self.line(depth, last) if self.chance(40) else self.body(depth)
        return Each(id=id, body=body, until=self.pick(None, {"below": 1}, "false"), **kw)

    def make_fork(self, id: str, depth: int, kw: dict[str, Any]) -> Node:
        branches = tuple(Branch(name=str(i), body=self.body(depth)) for i in range(self.draw(st.integers(0, 3))))
        return Fork(id=id, branches=branches, spawn=self.pick("never", "always"), **kw)

    def make_repeat(self, id: str, depth: int, kw: dict[str, Any]) -> Node:
        return Repeat(
            id=id,
            body=self.body(depth),
            when={"rounds": self.draw(st.integers(0, 3))},
            limit=self.pick(2, 9),
            **kw,
        )

    def make_attempt(self, id: str, depth: int, kw: dict[str, Any]) -> Node:
        handlers = tuple(
            Handler(body=self.body(depth), errors=self.pick((), ("Boom", "Simulated"), ("Other",)), bind="e")
            for _ in range(2)
        )
        return Attempt(id=id, body=self.body(depth), handlers=handlers, **kw)

    def make_function(self, id: str, depth: int, kw: dict[str, Any]) -> Node:
        return Function(id=id, body=self.line(depth, Return(id="x", value=7)), args={"p": 1}, bind=(id,), **kw)

    def make_block(self, id: str, depth: int, kw: dict[str, Any]) -> Node:
        return Block(id=id, body=self.body(depth), **kw)

    def make_region(self, id: str, depth: int, kw: dict[str, Any]) -> Node:
        self.fresh += 1
        name, size = f"g{self.fresh}", self.draw(st.integers(1, 3))
        self.graphs[name] = Graph(nodes=())
        nodes = [self.node(f"n{i}", depth, in_line=True).model_copy(update={"route": "inclusive"}) for i in range(size)]
        edges = [Edge(source=a.id, target=b.id, kind="arc") for a, b in pairwise(nodes)]
        edges.append(Edge(source=nodes[-1].id, target=self.pick(*nodes).id, kind="arc", back=True, when={"below": 2}))
        edges.append(Edge(source=self.pick(*nodes).id, kind="arc", exit="out"))
        self.graphs[name] = graph(nodes, edges, entries=("n0",), writes="through")
        return Region(id=id, body=name, limit=self.pick(2, 9), **kw)

    def edges_into(self, nodes: list[Node], j: int) -> list[Edge]:
        return [edge for i in range(j) if self.chance(45) for edge in self.edge(nodes, i, j)]

    def edge(self, nodes: list[Node], i: int, j: int) -> list[Edge]:
        source, target = nodes[i].id, nodes[j].id
        if isinstance(nodes[i], Choose):
            return [Edge(source=source, target=target, kind="gate", label=self.pick("a", "b"))]
        if isinstance(nodes[i], Region):
            return [Edge(source=source, target=target, kind="arc", label="out")]
        if self.arcs:
            when = self.pick(None, None, "true", "false", {"done": "n1"})
            return [Edge(source=source, target=target, kind="arc", when=when, args={"a": 1})]
        kind = self.pick("after", "after", "after", "on_success", "on_failure")
        made = [Edge(source=source, target=target, kind=kind)]
        if kind == "after" and i > 0 and self.chance(15):
            made.append(Edge(source=nodes[0].id, target=target, unless=(source,)))
        return made


OWNERS = ("each", "each", "fork", "repeat", "attempt", "function", "block", "region")


@st.composite
def plans(draw: Any, *, arcs: bool = False, depth: int = 2) -> Plan:
    """A plan that can be walked, in Highway's style or (with `arcs`) in NoETL's."""
    builder = Builder(draw, arcs=arcs)
    main = builder.graph(depth)
    fails = builder.pick("any", "unhandled", "raised")
    return Plan(name="random", graphs={"main": main, **builder.graphs}, fails_when=fails)
