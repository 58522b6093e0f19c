"""Functions as a user's package offers them to documents."""

from __future__ import annotations

import os
import threading
from functools import partial
from os import getcwd
from typing import Any

from durable import StepInfo
from interpreter.functions import in_transaction, with_step

__all__ = ["getcwd", "os"]


async def doubled(value: int) -> int:
    return value * 2


def thread(prefix: str = "") -> str:
    return prefix + threading.current_thread().name


class Scaler:
    """Callable as an instance; made once."""

    def __init__(self) -> None:
        self.factor = 3

    async def __call__(self, value: int) -> int:
        return value * self.factor

    def down(self, value: int) -> float:
        return value / self.factor

    @staticmethod
    def zero() -> int:
        return 0


class Needy:
    def __init__(self, must: int) -> None:
        self.must = must

    def __call__(self) -> int:
        return self.must


class Plain:
    """A class that is no function."""


tripled = Scaler()
quadrupled = partial(doubled, 4)
number = 7


@with_step
async def told(step: StepInfo, value: int) -> dict[str, Any]:
    step.log.info("told", value=value)
    step.progress(1, 2, "half")
    return {"key": step.idempotency_key, "attempt": step.attempt, "value": value}


@with_step
def told_in_thread(step: StepInfo) -> str:
    step.log.info("from a thread")
    return step.name


@in_transaction
async def stored(connection: Any, number: int) -> int:
    await connection.execute("insert into effects (n) values (%s)", (number,))
    return number


@in_transaction
def stored_in_thread(connection: Any, number: int) -> int:
    connection.execute("insert into effects (n) values (%s)", (number,))
    return number


@in_transaction
@with_step
async def stored_and_told(connection: Any, step: StepInfo, number: int) -> str:
    await connection.execute("insert into effects (n) values (%s)", (number,))
    return step.name


def _private() -> None: ...
