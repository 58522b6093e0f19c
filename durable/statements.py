"""Statements that are prepared as they are, each in a file of `sql/statements`."""

from __future__ import annotations

from durable.migrate import folder


def statement(name: str) -> str:
    return (folder("sql") / "statements" / f"{name}.sql").read_text()
