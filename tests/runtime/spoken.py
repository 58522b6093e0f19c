"""Steps that run in a process of their own and say something there; imported by that process."""

from __future__ import annotations

import threading

from durable import current_step


def told(number: int) -> int:
    step = current_step()
    step.log.info("working", number=number)
    step.progress(number, 10, "on the way")
    step.log.warning("done with it")
    return number


def told_and_hung() -> None:
    current_step().log.info("last words")
    current_step().progress(3, 4)
    threading.Event().wait()


def told_much(size: int) -> str:
    current_step().log.info("x" * size, detail="y" * size)
    current_step().log.info("after it")
    return "said"


def told_often(count: int) -> int:
    for number in range(count):
        current_step().log.info(f"line {number}")
    return count
