"""Built-in functions under `tools.*`: what workflows need on their first day, without code of one's own.

Each module holds one noun; what is public in it is listed here under the name that documents use.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final

_WHERE: Final = {
    "tools.echo": "plain.echo",
    "tools.fail": "plain.fail",
    "tools.sleep": "plain.sleep",
    "tools.log": "log.log",
    "tools.log.debug": "log.debug",
    "tools.log.info": "log.info",
    "tools.log.warning": "log.warning",
    "tools.log.error": "log.error",
    "tools.http": "http.request",
    "tools.http.request": "http.request",
    "tools.http.get": "http.get",
    "tools.http.post": "http.post",
    "tools.shell": "shell.run",
    "tools.shell.run": "shell.run",
    "tools.sql": "sql.query",
    "tools.sql.query": "sql.query",
    "tools.sql.transaction": "sql.transaction",
    "tools.memory.set": "memory.put",
    "tools.memory.get": "memory.get",
    "tools.memory.increment": "memory.increment",
}

NAMES: Final = tuple(sorted(_WHERE))
# Whoever may write a document could do anything with these, so a worker has to be told to allow them.
ASKED_FOR: Final = ("tools.shell", "tools.sql")


def load(name: str) -> Callable[..., Any]:
    """The tool of this name; its module is imported when first asked for."""
    module, _, attribute = _WHERE[name].partition(".")
    tool: Callable[..., Any] = getattr(importlib.import_module(f"{__name__}.{module}"), attribute)
    return tool
