"""The walker: a pure reducer that walks a plan. No I/O, no clock, no chance; it knows no language.

    program  = Program(plan)                     once per version, shared by all its walks
    walk     = Walk(program, evaluator)          one run
    commands = apply(walk, Started(inputs))      then one record after another
    commands = apply(walk, Settled("a", value=1))
    form     = snapshot(walk)                    a JSON value, between any two records
    walk     = restore(program, evaluator, form) goes on exactly as the walk it was taken of

**The driver** performs commands and feeds the records back, one at a time, in the one order it recorded them
in. Replaying the same records on a new walk (or those after a snapshot on the restored one) gives the same
commands in the same order; the driver skips those whose records it already has.

| command | what the driver does | the record that answers it |
|---|---|---|
| `RunCall` | perform the leaf with its `retry` (see `next_try`) and `timeout` | `Settled(path, ...)` |
| `Evaluate` | `evaluator.value(expr, walk.scope(path))`, clock at hand | `Settled(path, ...)` |
| `SetTimer` | a durable timer, identified by path and timer | `Fired(path, timer)` |
| `CancelTimer` | drop it; a `Fired` that crosses is ignored | none |
| `WaitForEvent` | wait for the event | `Settled(path, value=payload)` or failed, type `EventTimeout` |
| `EmitEvent` | append the event, idempotent by path | `Settled(path)` |
| `OpenFork` | decide: in place, or tasks of `chunk` slots (1 if `may_wait`) | `Opened(path, mode, chunk)` |
| `Spawn` | a task per unit, `cap` at a time, on `queue_of`, by `walk_of_unit` | per unit `Settled(unit.path, ...)` |
| `Cancel` | cancel the call, wait or unit of that path | its `Settled`, cancelled or what it came to first |
| `Note` | write it with the next flush; on replay compare it | none |
| `SettleRun` | settle the run, or hand the unit's end to its parent | none: the walk is over |

Every command but the ones answered by "none" is answered exactly once. A record for a path nobody waits for
changes nothing. When all that is unanswered are timers, events and units, the task may be parked. A walk
settles only when nothing is in flight; timeouts of composites do not count, their timers are dropped.

A unit's task answers its parent with `Settled(unit.path, end.outcome, end.value, end.error, end.writes)`;
`end` is its own `SettleRun`. A unit sees the names its fork started from, not the states of nodes outside it.

**Who records what.** The driver records outcomes, the order they are consumed in, and all that comes from
outside: inputs and settings (`Started`), times (`now` of any record), values of `Evaluate`, spawned or in
place (`Opened`). The walker derives the rest: routes, skips, parks, expiries, the names of frames. `Note`
commands tell them.

**Errors** are JSON: `type`, `message`, `mro` (the names of the class and its bases, what handlers and retry
rules match), and what else the performer knows. The walker makes `Timeout`, `IterationLimit`, `Cancelled`,
`Terminated`, `Parked`, `MemberFailed` and those of the evaluator.

**Names** of nodes are paths: `loop[2]/fetch` is node `fetch` in iteration 2 of `loop`. Frames are `n[k]`
(iteration, item, or token of a `join: each` node), `n#i` (branch), `n!j` (handler), `n~a` (attempt, also the
body of an `attempt` or `block`), `n()` (call); an owner with a retry policy puts `~a` before the rest:
`n~2[0]`. They come from the plan, never from the order things happen in, so they are stable step names.

**Scopes.** Names are opaque to the walker. A frame reads through its parents; what it writes stays in it or
goes to the enclosing scope as its graph's `writes` says. Functions see their arguments only. Slots of a
`fork` or a parallel `each` see the names as of the fork and their own writes; the patch is merged when the
slot settles. `globals` are visible everywhere.

**A compiler** maps its language to nodes and edges and runs `check_plan`. A two-phase operator (condition,
parallel) is a start node, its members, and a `pass` that `mirrors` the start with `after` edges from start
and members; outsiders follow the end. A callback handler is a node `handler@owner` with one `on_success` or
`on_failure` edge from the owner (from its end, if it is a two-phase operator); what follows a handler gets
`after` edges from the handler and from the handler's own dependencies `unless` the handler. A cycle is a
`region` with `back` and `exit` arcs.
"""

from __future__ import annotations

from interpreter.walker.check import check_plan, require_sound
from interpreter.walker.many import queue_of, unit_of
from interpreter.walker.program import Program
from interpreter.walker.reducer import apply, walk_of_unit
from interpreter.walker.retry import error_matches, next_try
from interpreter.walker.scope import MISSING, Evaluator, Scope
from interpreter.walker.snapshot import restore, snapshot
from interpreter.walker.walk import Walk
from interpreter.walker.why import Why, why

__all__ = [
    "MISSING",
    "Evaluator",
    "Program",
    "Scope",
    "Walk",
    "Why",
    "apply",
    "check_plan",
    "error_matches",
    "next_try",
    "queue_of",
    "require_sound",
    "restore",
    "snapshot",
    "unit_of",
    "walk_of_unit",
    "why",
]
