"""What happens when nothing runs: guards once more, joins held up by parked nodes, expiry, the final step."""

from __future__ import annotations

from interpreter.errors import ExpressionError
from interpreter.walker.firing import admit, fire, guard_holds
from interpreter.walker.frame import Frame
from interpreter.walker.settling import end_failed, finish
from interpreter.walker.states import EXPIRED, PARKED, WAITING
from interpreter.walker.walk import Walk


def unpark(walk: Walk) -> bool:
    """Re-evaluate the guards of parked nodes in plan order; fire those that hold now."""
    walk.parked = [(frame, i) for frame, i in walk.parked if frame.status[i] == PARKED]
    walk.parked.sort(key=_plan_order)
    fired = False
    for frame, i in list(walk.parked):
        if frame.status[i] == PARKED and _try_guard(walk, frame, i):
            fired = True
    return fired


def _plan_order(entry: tuple[Frame, int]) -> tuple[int, ...]:
    frame, i = entry
    return (*frame.order, i)


def _try_guard(walk: Walk, frame: Frame, i: int) -> bool:
    try:
        held = guard_holds(walk, frame, i)
    except ExpressionError as error:
        end_failed(walk, frame, i, error.as_error(), {})
        return True
    if held:
        fire(walk, frame, i)
    return held


def settle_quiet(walk: Walk) -> bool:
    """Nothing runs anywhere: do the next thing that can move the walk. False if there is none.

    Guards were evaluated just before, at the end of the record that brought the quiet about.
    """
    return _release_join(walk) or _expire_deepest(walk) or _run_final(walk)


def _release_join(walk: Walk) -> bool:
    if not walk.parked:
        return False
    for frame in sorted(walk.frames.values(), key=lambda frame: (-frame.depth, frame.order)):
        for i in range(frame.layout.size):
            if _waits_for_parked(frame, i):
                frame.note(i)["released"] = True
                walk.tell(frame, i, "released")
                admit(walk, frame, i)
                return True
    return False


def _waits_for_parked(frame: Frame, i: int) -> bool:
    """It holds a token and nothing it has seen forbids it. While nothing runs, all that is still pending is
    behind parked nodes."""
    if frame.status[i] != WAITING or frame.layout.rules[i] in ("mirror", "each") or frame.poisoned[i]:
        return False
    # Released before, and its guard dropped the token: once is enough.
    if frame.data.get(i, {}).get("released"):
        return False
    if frame.layout.gated[i]:
        return frame.glive[i] > 0
    return frame.live[i] > 0


def _expire_deepest(walk: Walk) -> bool:
    if not walk.parked:
        return False
    deepest = max(frame.depth for frame, _ in walk.parked)
    for frame, i in sorted(walk.parked, key=_plan_order):
        if frame.depth == deepest and frame.status[i] == PARKED:
            walk.expired.append(frame.path(i))
            finish(walk, frame, i, EXPIRED)
    walk.parked = [(frame, i) for frame, i in walk.parked if frame.status[i] == PARKED]
    return True


def _run_final(walk: Walk) -> bool:
    root = walk.root
    if root is None or root.layout.final < 0 or root.status[root.layout.final] != WAITING:
        return False
    fire(walk, root, root.layout.final)
    return True
