"""UUIDv7 ids as text, made here and never by a sequence: time-ordered, so that new rows are neighbours."""

from __future__ import annotations

import os
import time

# 20 KiB of randomness at a time: one system call for two thousand ids.
_POOL_SIZE = 10 * 2048
_pool = b""
_at = 0
# The two highest bits of this digit are those of the variant.
_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


def uuid7() -> str:
    """A new time-ordered id."""
    global _pool, _at
    if _at + 10 > len(_pool):
        _pool, _at = os.urandom(_POOL_SIZE), 0
    noise = _pool[_at : _at + 10].hex()
    _at += 10
    stamp = f"{time.time_ns() // 1_000_000:012x}"
    return f"{stamp[:8]}-{stamp[8:]}-7{noise[:3]}-{_VARIANT[noise[3]]}{noise[4:7]}-{noise[7:19]}"


def fine_uuid7() -> str:
    """A new id that also keeps the order within a millisecond: its next twelve bits are a part of it."""
    now = time.time_ns()
    fraction = now % 1_000_000 * 4096 // 1_000_000
    stamp = f"{now // 1_000_000:012x}"
    return f"{stamp[:8]}-{stamp[8:]}-7{fraction:03x}{uuid7()[18:]}"


def child_ids(first: str, count: int) -> list[str]:
    """`count` ids in a row that begin with `first`: a whole group of children is named by its ends."""
    head, start = first[:-12], int(first[-12:], 16)
    return [f"{head}{number:012x}" for number in range(start, start + count)]


def group_start() -> str:
    """A new id whose last four bytes are free for counting a group of children."""
    return fine_uuid7()[:-8] + "00000000"


def _forget_randomness() -> None:
    # A forked child must not hand out its parent's ids.
    global _pool
    _pool = b""


os.register_at_fork(after_in_child=_forget_randomness)
