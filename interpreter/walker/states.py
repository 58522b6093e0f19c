"""The states of nodes and edges, and the table that leads from one to the other.

One letter each, so that a frame's states are a short text in a snapshot.
"""

from __future__ import annotations

from typing import Final

WAITING: Final = "w"
PARKED: Final = "p"
RUNNING: Final = "r"
SUCCEEDED: Final = "s"
FAILED: Final = "f"
SKIPPED: Final = "k"
UPSTREAM_FAILED: Final = "u"
CANCELLED: Final = "c"
EXITED: Final = "x"
EXPIRED: Final = "e"

NAMES: Final = {
    WAITING: "waiting",
    PARKED: "parked",
    RUNNING: "running",
    SUCCEEDED: "succeeded",
    FAILED: "failed",
    SKIPPED: "skipped",
    UPSTREAM_FAILED: "upstream_failed",
    CANCELLED: "cancelled",
    EXITED: "exited",
    EXPIRED: "expired",
}
OPEN: Final = frozenset((WAITING, PARKED, RUNNING))
FINAL: Final = frozenset(NAMES) - OPEN
# A handler in one of these states did its work; in any other it was never fired.
RAN: Final = frozenset((SUCCEEDED, FAILED))

PENDING: Final = "."
LIVE: Final = "l"
DEAD: Final = "d"
POISONED: Final = "p"
IGNORED: Final = "i"
# Not a state but an entry of the table: live if the source selected this edge, else dead.
SELECTED: Final = "?"

EDGE_NAMES: Final = {PENDING: "pending", LIVE: "live", DEAD: "dead", POISONED: "poisoned", IGNORED: "ignored"}

_SILENT: Final = dict.fromkeys((SKIPPED, EXPIRED, EXITED), DEAD)
_BROKEN: Final = (UPSTREAM_FAILED, CANCELLED)

EDGE_TABLE: Final[dict[str, dict[str, str]]] = {
    "after": {SUCCEEDED: LIVE, FAILED: POISONED, **_SILENT, **dict.fromkeys(_BROKEN, POISONED)},
    "gate": {SUCCEEDED: SELECTED, FAILED: POISONED, **_SILENT, **dict.fromkeys(_BROKEN, POISONED)},
    "on_success": {SUCCEEDED: LIVE, FAILED: DEAD, **_SILENT, **dict.fromkeys(_BROKEN, DEAD)},
    "on_failure": {SUCCEEDED: DEAD, FAILED: LIVE, **_SILENT, **dict.fromkeys(_BROKEN, DEAD)},
    "arc": {SUCCEEDED: SELECTED, FAILED: SELECTED, **_SILENT, **dict.fromkeys(_BROKEN, DEAD)},
}
