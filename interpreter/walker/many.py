"""`each` and `fork`: slots side by side or one after another, in place or spawned.

A slot is an item or a branch. Parallel slots are isolated: each sees the names as of its start and its own
writes; its patch is merged when it settles. Sequential ones share the names of the frame around them.
"""

from __future__ import annotations

from typing import Any

from interpreter.errors import ExpressionError
from interpreter.plan import Each, Fork
from interpreter.walker.commands import OpenFork, Spawn, Unit
from interpreter.walker.frame import Frame
from interpreter.walker.owners import (
    Outcome,
    add_voids,
    conclude,
    end_early,
    end_owner,
    expression_failed,
    fail_owner,
    open_body,
    stem,
)
from interpreter.walker.records import Opened, Settled
from interpreter.walker.scope import Scope, visible
from interpreter.walker.settling import finish, unpacked
from interpreter.walker.states import CANCELLED, EXITED, FAILED, SUCCEEDED
from interpreter.walker.walk import Walk

Many = Each | Fork


def begin_each(walk: Walk, frame: Frame, i: int, node: Each) -> None:
    """Render the collection once, keep it, and open the first items."""
    scope = walk.scope_of(frame, i)
    items = walk.evaluator.items(node.items, scope)
    cap = 1 if node.mode == "sequential" else _cap(walk, frame, i, node.cap)
    frame.note(i)["items"] = items
    walk.tell(frame, i, "items", len(items))
    _begin(walk, frame, i, node, len(items), cap)


def begin_fork(walk: Walk, frame: Frame, i: int, node: Fork) -> None:
    """Open the branches, as many at once as the cap allows."""
    _begin(walk, frame, i, node, len(node.branches), _cap(walk, frame, i, node.cap))


def _cap(walk: Walk, frame: Frame, i: int, expr: Any) -> int | None:
    if expr is None:
        return None
    cap = walk.evaluator.value(expr, walk.scope_of(frame, i))
    if not isinstance(cap, int) or isinstance(cap, bool) or cap < 1:
        raise ExpressionError(f"a cap must be a whole number of at least 1, not {cap!r}", type="ValueError")
    return cap


def _begin(walk: Walk, frame: Frame, i: int, node: Many, count: int, cap: int | None) -> None:
    _prepare(frame, i, node, range(count), cap)
    if _asks(walk, node, count):
        frame.data[i]["asking"] = True
        wait = walk.program.may_wait(node.bodies())
        walk.fly(frame, i, OpenFork(frame.path(i), count, cap, node.spawn, wait))
    else:
        _advance(walk, frame, i, node)


def _prepare(frame: Frame, i: int, node: Many, slots: range, cap: int | None) -> None:
    data = frame.data[i]
    data |= {"length": slots.stop, "start": slots.start, "next": slots.start, "end": slots.stop}
    data |= {"cap": cap, "running": 0, "ok": 0, "errors": {}}
    data["results"] = None if node.collect == "none" else [None] * len(slots)
    if _isolated(node):
        data["base"] = visible(frame)


def _isolated(node: Many) -> bool:
    return isinstance(node, Fork) or node.mode == "parallel"


def _asks(walk: Walk, node: Many, count: int) -> bool:
    if node.spawn == "never" or not _isolated(node) or not count:
        return False
    return node.spawn == "always" or count > walk.spawn_over


def begin_unit(walk: Walk, frame: Frame, i: int, unit: Unit) -> None:
    """Walk some slots of a fork or loop whose other slots are walked elsewhere."""
    node = frame.layout.nodes[i]
    assert isinstance(node, Each | Fork)
    data = frame.note(i)
    data |= {"unit": True, "attempt": 1, "stem": unit.stem, "items": unit.items}
    if unit.cause is not None:
        data["cause"] = unit.cause
    _prepare(frame, i, node, range(unit.start, unit.end), None)
    data["length"] = unit.length
    _advance(walk, frame, i, node)


def open_as(walk: Walk, frame: Frame, i: int, record: Opened) -> None:
    """The driver said how the slots run."""
    data = frame.data[i]
    data.pop("asking", None)
    if "ending" in data:
        conclude(walk, frame, i)
        return
    node = frame.layout.nodes[i]
    assert isinstance(node, Each | Fork)
    if record.mode == "spawned":
        _spawn(walk, frame, i, node, record.chunk)
    else:
        _advance(walk, frame, i, node)


def _spawn(walk: Walk, frame: Frame, i: int, node: Many, chunk: int) -> None:
    data = frame.data[i]
    starts = range(data["start"], data["end"], chunk)
    units = [_unit(frame, i, node, start, min(start + chunk, data["end"])) for start in starts]
    data["units"] = {unit.path: [unit.start, unit.end] for unit in units}
    data["next"] = data["end"]
    data["running"] = len(units)
    for unit in units:
        walk.flight[unit.path] = (frame, i)
    walk.out.append(Spawn(frame.path(i), units, data["cap"]))


def _unit(frame: Frame, i: int, node: Many, start: int, end: int) -> Unit:
    data = frame.data[i]
    items = data["items"][start:end] if isinstance(node, Each) else None
    span = str(start) if end == start + 1 else f"{start}:{end}"
    path = _slot_name(node, stem(frame, i), span)
    layout, base = frame.layout, data["base"]
    where = (path, frame.key, layout.name, layout.ids[i])
    cause = Scope(frame, i, {}, None).cause
    return Unit(*where, start, end, data["length"], stem(frame, i), items, base, cause)


def unit_of(walk: Walk, path: str) -> Unit:
    """The unit of this path that is open in a walk; for a driver that goes on from a snapshot."""
    frame, i = walk.flight[path]
    node = frame.layout.nodes[i]
    assert isinstance(node, Each | Fork)
    return _unit(frame, i, node, *frame.data[i]["units"][path])


def queue_of(walk: Walk, unit: Unit) -> str | None:
    """The queue that the plan names for this unit's task."""
    layout = walk.program.layout(unit.graph)
    node = layout.nodes[layout.index[unit.node]]
    assert isinstance(node, Each | Fork)
    return node.queue


def _slot_name(node: Many, head: str, slot: int | str) -> str:
    return f"{head}[{slot}]" if isinstance(node, Each) else f"{head}#{slot}"


def unit_settled(walk: Walk, frame: Frame, i: int, record: Settled) -> None:
    """A spawned task came back with the slots it walked."""
    data = frame.data[i]
    start, end = data["units"].pop(record.path)
    data["running"] -= 1
    for name, value in (record.writes or {}).items():
        frame.write(name, value)
    if record.outcome == "succeeded":
        if record.value["strays"]:
            walk.voids.extend(record.voids or ())
        walk.handled.extend(record.value["handled"])
        walk.expired.extend(record.value["parked"])
        walk.strays.extend(record.value["strays"])
    for slot, outcome in zip(range(start, end), _slots(record, end - start), strict=True):
        _keep(data, slot, outcome)
    failed = any(str(slot) in data["errors"] for slot in range(start, end))
    if failed:
        add_voids(frame, i, record.voids)
    if "ending" in data:
        conclude(walk, frame, i)
    else:
        _go_on(walk, frame, i, failed=failed)


def _slots(record: Settled, count: int) -> list[Outcome]:
    if record.outcome == "succeeded":
        return [Outcome(status, value, error) for status, value, error in record.value["slots"]]
    error = record.error or {"type": "Cancelled", "message": f"{record.path} was cancelled"}
    return [Outcome(FAILED, error=error)] * count


def _advance(walk: Walk, frame: Frame, i: int, node: Many) -> None:
    data = frame.data[i]
    width = data["cap"] or data["end"]
    while data["running"] < width and data["next"] < data["end"]:
        slot = data["next"]
        data["next"] += 1
        try:
            _open_slot(walk, frame, i, node, slot)
        except ExpressionError as error:
            # An item that does not unpack is a failed item, not a failed loop.
            _keep(data, slot, Outcome(FAILED, error=error.as_error()))
            if _stops(node):
                break
    if not data["running"]:
        _end(walk, frame, i, node)


def _open_slot(walk: Walk, frame: Frame, i: int, node: Many, slot: int) -> None:
    data = frame.data[i]
    names = _item_names(node, data, slot) if isinstance(node, Each) else {}
    body = node.body if isinstance(node, Each) else node.branches[slot].body
    head = data.get("stem") or stem(frame, i)
    kid = open_body(walk, frame, i, body, _slot_name(node, head, slot), slot=slot, role="slot")
    kid.vars = names
    kid.base = data.get("base")
    data["running"] += 1
    walk.begin(kid)


def _item_names(node: Each, data: dict[str, Any], slot: int) -> dict[str, Any]:
    item = data["items"][slot - data["start"]]
    parts = [item] if len(node.item) == 1 else unpacked(item, len(node.item))
    names = dict(zip(node.item, parts, strict=True))
    if node.index is not None:
        names[node.index] = slot
    return names


def slot_settled(walk: Walk, frame: Frame, i: int, node: Many, kid: Frame, outcome: Outcome) -> None:
    """An item or branch ended: keep what it came to, and open the next."""
    data = frame.data[i]
    data["running"] -= 1
    broke = outcome.status == EXITED and kid.exit is not None and kid.exit["exit"] == "break"
    _keep(data, kid.slot, outcome)
    if broke:
        data["end"] = data["next"]
        end_early(walk, frame, i, {"value": _value(node, data)})
        return
    try:
        if isinstance(node, Each) and _until(walk, frame, i, node, kid, outcome):
            data["end"] = data["next"]
        _go_on(walk, frame, i, failed=outcome.status == FAILED)
    except ExpressionError as error:
        expression_failed(walk, frame, i, error)


def _until(walk: Walk, frame: Frame, i: int, node: Each, kid: Frame, outcome: Outcome) -> bool:
    if node.until is None or node.mode == "parallel" or outcome.status == FAILED:
        return False
    scope = walk.watching(kid, 0)
    held = walk.evaluator.truth(node.until, scope)
    frame.data[i]["decision"] = {"until": held, "slot": kid.slot, "saw": scope.seen}
    return held


def _keep(data: dict[str, Any], slot: int, outcome: Outcome) -> None:
    if outcome.status in (FAILED, CANCELLED):
        data["errors"][str(slot)] = outcome.error or {"type": "Cancelled", "message": "cancelled"}
        return
    data["ok"] += 1
    if data["results"] is not None:
        data["results"][slot - data["start"]] = outcome.value if outcome.status == SUCCEEDED else None


def _go_on(walk: Walk, frame: Frame, i: int, *, failed: bool) -> None:
    node = frame.layout.nodes[i]
    assert isinstance(node, Each | Fork)
    data = frame.data[i]
    hasty = node.fail_fast or walk.program.plan.fail_fast or _stops(node)
    if failed and hasty and node.on_error == "fail":
        end_early(walk, frame, i, {"error": _first_error(data)})
    elif data.get("units") is None:
        _advance(walk, frame, i, node)
    elif not data["running"]:
        _end(walk, frame, i, node)


def _stops(node: Many) -> bool:
    return isinstance(node, Each) and node.mode == "sequential" and node.on_error == "fail"


def _first_error(data: dict[str, Any]) -> dict[str, Any]:
    error: dict[str, Any] = data["errors"][min(data["errors"], key=int)]
    return error


def _end(walk: Walk, frame: Frame, i: int, node: Many) -> None:
    data = frame.data[i]
    if walk.unit is not None and data.get("unit"):
        walk.unit["result"] = {"slots": _slot_outcomes(data), "voids": data.get("voids", [])}
        finish(walk, frame, i, SUCCEEDED)
    elif data["errors"] and node.on_error == "fail":
        fail_owner(walk, frame, i, _first_error(data))
    else:
        end_owner(walk, frame, i, _value(node, data))


def _slot_outcomes(data: dict[str, Any]) -> list[list[Any]]:
    results = data["results"]
    slots = []
    for slot in range(data["start"], data["end"]):
        error = data["errors"].get(str(slot))
        value = results[slot - data["start"]] if results is not None else None
        slots.append([FAILED if error else SUCCEEDED, value, error])
    return slots


def _value(node: Many, data: dict[str, Any]) -> Any:
    if node.collect == "none":
        return None
    results = data["results"][: data["end"]]
    if node.on_error == "collect":
        for slot, error in data["errors"].items():
            results[int(slot)] = error
    if node.collect == "list":
        return results
    failed = len(data["errors"])
    stats = {"total": data["length"], "succeeded": data["ok"], "failed": failed}
    return {"results": results, "stats": stats}
