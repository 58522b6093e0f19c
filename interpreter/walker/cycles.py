"""`repeat` and `region`: one frame per iteration, the next one only after the last has settled."""

from __future__ import annotations

from typing import Any

from interpreter.plan import Region, Repeat
from interpreter.walker.frame import Frame
from interpreter.walker.owners import Outcome, end_owner, fail_owner, open_body, stem
from interpreter.walker.routes import Chosen
from interpreter.walker.scope import merged
from interpreter.walker.states import EXITED, FAILED, LIVE
from interpreter.walker.walk import Walk

Tokens = dict[str, dict[str, Any]]


def begin_repeat(walk: Walk, frame: Frame, i: int, node: Repeat) -> None:
    """Test, then the first iteration; or the first iteration at once."""
    data = frame.note(i)
    data |= {"iterations": 0, "last": None}
    if not node.test_first or _holds(walk, frame, i, node):
        _iterate(walk, frame, i, node)
    else:
        end_owner(walk, frame, i, None)


def _holds(walk: Walk, frame: Frame, i: int, node: Repeat) -> bool:
    scope = walk.watching(frame, i)
    held = walk.evaluator.truth(node.when, scope)
    frame.data[i]["decision"] = {"while": held, "saw": scope.seen}
    return held


def _iterate(walk: Walk, frame: Frame, i: int, node: Repeat | Region, tokens: Tokens | None = None) -> None:
    data = frame.data[i]
    slot = data["iterations"]
    if slot >= node.limit:
        fail_owner(walk, frame, i, _limit_error(frame, i, node.limit))
        return
    data["iterations"] += 1
    key = f"{stem(frame, i)}[{slot}]"
    walk.begin(open_body(walk, frame, i, node.body, key, slot=slot, role="iteration"), tokens)


def _limit_error(frame: Frame, i: int, limit: int) -> dict[str, Any]:
    message = f"{frame.path(i)} reached its limit of {limit} iterations"
    return {"type": "IterationLimit", "message": message, "mro": ["IterationLimit", "Exception"]}


def repeat_settled(walk: Walk, frame: Frame, i: int, node: Repeat, kid: Frame, outcome: Outcome) -> None:
    """An iteration ended: fail with it, leave the loop, or test for the next."""
    if outcome.status == FAILED:
        fail_owner(walk, frame, i, outcome.error or {})
        return
    data = frame.data[i]
    data["last"] = outcome.value
    broke = outcome.status == EXITED and kid.exit is not None and kid.exit["exit"] == "break"
    if not broke and _holds(walk, frame, i, node):
        _iterate(walk, frame, i, node)
    else:
        end_owner(walk, frame, i, data["last"])


def begin_region(walk: Walk, frame: Frame, i: int, node: Region) -> None:
    """The first iteration starts where the tokens came in."""
    frame.note(i).update(iterations=0, exits={}, last=None, broken=None)
    _iterate(walk, frame, i, node, _tokens_in(frame, i))


def _tokens_in(frame: Frame, i: int) -> Tokens | None:
    carried = frame.args.get(i, {})
    tokens: Tokens = {}
    for edge in frame.layout.ins[i]:
        if edge.entry is not None and frame.edges[edge.index] == LIVE:
            args = carried.get(str(edge.index), {})
            tokens[edge.entry] = {**tokens.get(edge.entry, {}), **args}
    return tokens or None


def region_settled(walk: Walk, frame: Frame, i: int, node: Region, kid: Frame, outcome: Outcome) -> None:
    """An iteration ended. Its back-edges give the next one; exits wait until there is none.

    A failure nobody handled stops its own branch only: the region goes round as long as tokens do.
    """
    data = frame.data[i]
    leaving = kid.leaving or {"back": {}, "exit": {}}
    data["exits"] = merge_tokens(data["exits"], leaving["exit"])
    data["broken"] = data["broken"] or outcome.error
    data["last"] = outcome.value
    if leaving["back"]:
        _iterate(walk, frame, i, node, leaving["back"])
    else:
        _end_region(walk, frame, i)


def merge_tokens(old: Tokens, new: Tokens) -> Tokens:
    """Tokens of several sources by where they go; later args win."""
    return old | {name: {**old.get(name, {}), **args} for name, args in new.items()}


def _end_region(walk: Walk, frame: Frame, i: int) -> None:
    data = frame.data[i]
    chosen = taken_exits(frame, i, data["exits"])
    if data["broken"]:
        fail_owner(walk, frame, i, data["broken"], chosen)
        return
    value = data["last"]
    for name in frame.layout.nodes[i].bind:
        frame.write(name, value)
    end_owner(walk, frame, i, value, chosen)


def taken_exits(frame: Frame, i: int, exits: Tokens) -> Chosen:
    """The outgoing arcs that take up these exits."""
    return {arc.index: exits[arc.label] or None for arc in frame.layout.arcs[i] if arc.label in exits}


def begin_tokens(walk: Walk, frame: Frame, i: int) -> None:
    """`join: each`: one instance for every token that has come, named by the edge it came on."""
    data = frame.data.setdefault(i, {"opened": [], "exits": {}, "broken": None, "ran": False})
    for position, edge in enumerate(frame.layout.ins[i]):
        if frame.edges[edge.index] == LIVE and position not in data["opened"]:
            _open_token(walk, frame, i, position, frame.args.get(i, {}).get(str(edge.index)))
    incoming = len(frame.layout.ins[i])
    came_on_edges = sum(frame.edges[edge.index] == LIVE for edge in frame.layout.ins[i])
    if frame.live[i] + frame.glive[i] > came_on_edges and incoming not in data["opened"]:
        _open_token(walk, frame, i, incoming, merged(frame.args.get(i)))


def _open_token(walk: Walk, frame: Frame, i: int, position: int, args: dict[str, Any] | None) -> None:
    frame.data[i]["opened"].append(position)
    layout = walk.program.solo(frame.layout.name, i)
    key = f"{frame.path(i)}[{position}]"
    kid = walk.open_frame(frame, i, layout, key, position, "token")
    walk.begin(kid, {layout.ids[0]: args or {}})


def token_settled(walk: Walk, frame: Frame, i: int, kid: Frame, outcome: Outcome) -> None:
    """One instance ended; the arcs it took wait for the others."""
    data = frame.data[i]
    taken = (kid.leaving or {"exit": {}})["exit"]
    data["exits"] = merge_tokens(data["exits"], taken)
    data["broken"] = data["broken"] or outcome.error
    data["ran"] = data["ran"] or kid.status[0] in "sf"
    walk.todo.append((frame, i))


def tokens_end(frame: Frame, i: int) -> Chosen:
    """The arcs the instances of a `join: each` node took together."""
    exits = frame.data[i]["exits"]
    return {arc.index: exits[str(arc.index)] for arc in frame.layout.arcs[i] if str(arc.index) in exits}
