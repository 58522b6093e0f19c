"""Functions that do with a secret what functions should not do."""

from __future__ import annotations

import base64
import sys
from typing import Any
from urllib.parse import quote

import structlog

from durable import StepInfo
from interpreter.functions import in_transaction, with_step


class Stubborn(Exception):
    """An error whose words come from nowhere that could be changed."""

    def __init__(self, secret: str) -> None:
        super().__init__()
        self.secret = secret

    def __str__(self) -> str:
        return f"stubborn about {self.secret}"


async def length(text: str) -> int:
    return len(text)


async def measured(secret: str, header: str) -> list[int]:
    return [len(secret), len(header)]


def measured_in_thread(secret: str, header: str) -> list[int]:
    return [len(secret), len(header)]


@in_transaction
async def measured_in_transaction(connection: Any, secret: str, header: str) -> list[int]:
    await connection.execute("select 1")
    return [len(secret), len(header)]


async def returned(secret: str) -> dict[str, Any]:
    return {"plain": secret, secret: ["in", f"a {secret} text"]}


async def spelled(secret: str) -> list[str]:
    return [quote(secret, safe=""), base64.b64encode(secret.encode()).decode(), repr(secret), repr([secret])]


async def raised(secret: str) -> None:
    raise ValueError(f"cannot use {secret}")


def raised_in_thread(secret: str) -> None:
    raise ValueError(f"cannot use {secret}", {"token": secret})


def returned_in_thread(secret: str) -> str:
    return f"got {secret}"


async def raised_with_cause(secret: str) -> None:
    try:
        raise KeyError(secret)
    except KeyError as exc:
        exc.add_note(f"it was {secret}")
        raise RuntimeError(f"no {secret}") from exc


async def raised_stubbornly(secret: str) -> None:
    raise Stubborn(secret)


@with_step
async def logged(step: StepInfo, secret: str) -> str:
    step.log.info(f"using {secret}", token=secret, nested={"a": [secret]})
    step.progress(1, 2, f"with {secret}")
    structlog.get_logger("other").info("kept to itself", size=len(secret))
    print("said", file=sys.stderr)
    return f"done with {secret}"
