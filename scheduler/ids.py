"""Run ids that follow from what a run is made for: made again after a lost commit, it is the same run.

In the layout of a UUIDv7, so that they stand in time order with all others.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from uuid import UUID


def run_id_of(at: datetime, *what: str) -> UUID:
    """The id of the run for this: its time in milliseconds, and a hash."""
    noise = bytearray(hashlib.sha256("\x1f".join(what).encode()).digest()[:16])
    noise[:6] = int(at.timestamp() * 1000).to_bytes(6, "big")
    noise[6] = 0x70 | noise[6] & 0x0F
    noise[8] = 0x80 | noise[8] & 0x3F
    return UUID(bytes=bytes(noise))
