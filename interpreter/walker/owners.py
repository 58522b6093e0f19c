"""The life of a node that owns frames: attempts, timeout, and what the end of a frame means to it."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from interpreter.errors import ExpressionError
from interpreter.walker.commands import SetTimer
from interpreter.walker.frame import Frame
from interpreter.walker.program import Layout
from interpreter.walker.retry import next_try
from interpreter.walker.routes import Chosen
from interpreter.walker.settling import end_failed, fail, finish, succeed
from interpreter.walker.states import CANCELLED, EXITED, FAILED, SUCCEEDED
from interpreter.walker.stops import drop_timeout, halt_owned, nothing_left
from interpreter.walker.walk import Walk

# What an owner still says of itself once it ended; the rest would only weigh on snapshots.
_KEPT: Final = ("attempt", "decision", "length", "ok", "errors", "iterations")


class Outcome(NamedTuple):
    """What a frame came to."""

    status: str
    value: Any = None
    error: dict[str, Any] | None = None


def set_timeout(walk: Walk, frame: Frame, i: int) -> None:
    """Each attempt of an owner has the whole timeout."""
    timeout = frame.layout.nodes[i].timeout
    if timeout is not None:
        frame.note(i)["timer"] = True
        walk.out.append(SetTimer(frame.path(i), "timeout", timeout))


def stem(frame: Frame, i: int) -> str:
    """What the names of a node's frames begin with; a node with a retry policy counts its attempts."""
    path = frame.path(i)
    return f"{path}~{frame.data[i]['attempt']}" if frame.layout.nodes[i].retry else path


def open_body(walk: Walk, frame: Frame, i: int, body: str, key: str, **kind: Any) -> Frame:
    """A frame of a body of this node."""
    layout: Layout = walk.program.layout(body)
    return walk.open_frame(frame, i, layout, key, kind["slot"], kind["role"])


def end_owner(walk: Walk, frame: Frame, i: int, value: Any, chosen: Chosen | None = None) -> None:
    """The node did its work."""
    _close(walk, frame, i)
    if chosen is None:
        succeed(walk, frame, i, value)
    else:
        finish(walk, frame, i, SUCCEEDED, chosen)


def fail_owner(walk: Walk, frame: Frame, i: int, error: dict[str, Any], chosen: Chosen | None = None) -> None:
    """This attempt of the node failed: try again as its policy says, or fail."""
    drop_timeout(walk, frame, i)
    data = frame.data[i]
    again = next_try(frame.layout.nodes[i].retry, data.get("tries", {}), error)
    if again is not None and frame.stop is None:
        _try_again(walk, frame, i, *again)
        return
    voids = data.get("voids")
    _close(walk, frame, i)
    if voids:
        frame.data[i]["voids"] = voids
    if chosen is None:
        fail(walk, frame, i, error)
    else:
        end_failed(walk, frame, i, error, chosen)


def _close(walk: Walk, frame: Frame, i: int) -> None:
    drop_timeout(walk, frame, i)
    data = frame.data.get(i, {})
    frame.data[i] = {key: data[key] for key in _KEPT if key in data}


def _try_again(walk: Walk, frame: Frame, i: int, delay: float, tries: dict[str, int]) -> None:
    attempt = frame.data[i]["attempt"] + 1
    frame.data[i] = {"attempt": attempt, "tries": tries}
    walk.tell(frame, i, "again", {"attempt": attempt, "delay": delay})
    if delay > 0:
        frame.data[i]["backoff"] = True
        walk.fly(frame, i, SetTimer(frame.path(i), "backoff", delay))
    else:
        begin_again(walk, frame, i)


def begin_again(walk: Walk, frame: Frame, i: int) -> None:
    """The wait is over: the next attempt begins."""
    frame.data[i].pop("backoff", None)
    frame.data[i]["again"] = True
    walk.todo.append((frame, i))


def end_early(walk: Walk, frame: Frame, i: int, ending: dict[str, Any]) -> None:
    """End a node with this value or error as soon as all it opened is final."""
    frame.data[i].setdefault("ending", ending)
    halt_owned(walk, frame, i)
    conclude(walk, frame, i)


def conclude(walk: Walk, frame: Frame, i: int) -> None:
    """Carry out an early end once nothing is left."""
    if not nothing_left(frame, i):
        return
    ending = frame.data[i].pop("ending")
    if "error" in ending:
        fail_owner(walk, frame, i, ending["error"])
    else:
        end_owner(walk, frame, i, ending["value"])


def add_voids(frame: Frame, i: int, voids: list[list[Any]] | None) -> None:
    """Keep the records behind what may become this node's failure."""
    if voids:
        frame.note(i).setdefault("voids", []).extend(voids)


def time_out(walk: Walk, frame: Frame, i: int) -> None:
    """The timeout of a node came due: record it, cancel what runs under it, fail when all is final."""
    frame.data[i].pop("timer", None)
    message = f"{frame.path(i)} took longer than {frame.layout.nodes[i].timeout:g} s"
    end_early(walk, frame, i, {"error": timeout_error(message)})


def timeout_error(message: str) -> dict[str, Any]:
    return {"type": "Timeout", "message": message, "mro": ["Timeout", "TimeoutError", "Exception"]}


def frame_outcome(walk: Walk, frame: Frame) -> Outcome:
    """What a frame whose nodes are all final came to: exited, else failed, else succeeded."""
    if frame.stop == "exit":
        return Outcome(EXITED, frame.exit["value"] if frame.exit else None)
    if frame.stop not in (None, "fail_fast"):
        return Outcome(CANCELLED)
    if frame.failures:
        return Outcome(FAILED, error=_first_error(frame))
    return Outcome(SUCCEEDED, frame_value(frame))


def _first_error(frame: Frame) -> dict[str, Any]:
    first = min(frame.failures)
    error = frame.data.get(first, {}).get("error")
    if error is None:
        error = {"type": "Cancelled", "message": f"{frame.path(first)} was cancelled", "mro": ["Cancelled"]}
    return error if "node" in error else {**error, "node": frame.path(first)}


def frame_value(frame: Frame) -> Any:
    """The first bound of the names a graph gives as its result, read where the frame writes them."""
    for name in frame.layout.result:
        names = frame.home_of(name).vars
        if name in names:
            return names[name]
    return None


def expression_failed(walk: Walk, frame: Frame, i: int, error: ExpressionError) -> None:
    """An expression of the owner itself failed: so does the owner."""
    end_early(walk, frame, i, {"error": error.as_error()})
