"""The `durable` command as tests call it where another process would be no different."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

import pytest

from durablectl import exits
from durablectl.main import run

# A store that would not answer.
UNREACHABLE = "postgresql://127.0.0.1:1/none"


class Said(NamedTuple):
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str


Command = Callable[..., Said]


def calling(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, database: str | None = None
) -> Command:
    """The command without any setting of the caller's own; `database` is where its store is."""
    for name in [name for name in os.environ if name.startswith("DURABLE_") and "TEST" not in name]:
        monkeypatch.delenv(name)
    if database is not None:
        monkeypatch.setenv("DURABLE_DATABASE_URL", database)
    monkeypatch.setattr(exits, "secrets", set())

    def call(*arguments: str) -> Said:
        capsys.readouterr()
        code = run(arguments)
        return Said(code, *capsys.readouterr())

    return call
