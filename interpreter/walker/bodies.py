"""`attempt`, `function` and `block`: nodes with one body at a time."""

from __future__ import annotations

from typing import Any

from interpreter.plan import Attempt, Block, Function
from interpreter.walker.frame import Frame
from interpreter.walker.owners import Outcome, end_owner, fail_owner, open_body, stem
from interpreter.walker.retry import error_matches
from interpreter.walker.states import FAILED
from interpreter.walker.walk import Walk


def begin_body(walk: Walk, frame: Frame, i: int, node: Attempt | Block) -> None:
    """Open the body, named by the attempt it is."""
    attempt = frame.data[i]["attempt"]
    key = f"{frame.path(i)}~{attempt}"
    walk.begin(open_body(walk, frame, i, node.body, key, slot=attempt, role="body"))


def begin_function(walk: Walk, frame: Frame, i: int, node: Function) -> None:
    """Evaluate the arguments here; the body sees them and nothing else of this frame."""
    scope = walk.scope_of(frame, i)
    args: dict[str, Any] = {name: walk.evaluator.value(expr, scope) for name, expr in node.args.items()}
    kid = open_body(walk, frame, i, node.body, f"{stem(frame, i)}()", slot=0, role="call")
    kid.vars = args
    kid.base = {}
    walk.begin(kid)


def attempt_settled(walk: Walk, frame: Frame, i: int, node: Attempt, kid: Frame, outcome: Outcome) -> None:
    """The body ended, or a handler did. Errors of handlers are not handled here again."""
    if outcome.status != FAILED or kid.role == "handler":
        body_settled(walk, frame, i, node, kid, outcome)
        return
    error = outcome.error or {}
    for position, handler in enumerate(node.handlers):
        if not handler.errors or error_matches(handler.errors, error):
            _open_handler(walk, frame, i, node, position, error)
            return
    fail_owner(walk, frame, i, error)


def _open_handler(walk: Walk, frame: Frame, i: int, node: Attempt, position: int, error: dict[str, Any]) -> None:
    handler = node.handlers[position]
    frame.data[i].pop("voids", None)
    frame.data[i]["decision"] = {"handler": position, "saw": {"error": error.get("type")}}
    walk.tell(frame, i, "handler", frame.data[i]["decision"])
    walk.handled.append(error.get("node") or frame.path(i))
    key = f"{stem(frame, i)}!{position}"
    kid = open_body(walk, frame, i, handler.body, key, slot=position, role="handler")
    if handler.bind is not None:
        kid.vars[handler.bind] = error
    walk.begin(kid)


def body_settled(
    walk: Walk, frame: Frame, i: int, node: Attempt | Function | Block, kid: Frame, outcome: Outcome
) -> None:
    """The node ends as its body did; a return from a function is its value."""
    if outcome.status == FAILED:
        fail_owner(walk, frame, i, outcome.error or {})
    else:
        end_owner(walk, frame, i, outcome.value)
