"""What one evaluation runs in: a lookup for names and a meter for its work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from jinja2.runtime import Context
from jinja2.utils import missing

from interpreter.expressions.limits import Meter

NOT_FOUND: Final[Any] = object()
Lookup = Callable[[str], Any]


class ScopeContext(Context):
    """Asks a lookup for names instead of holding a copy of them all."""

    lookup: Lookup
    meter: Meter

    def resolve_or_missing(self, key: str) -> Any:
        if key in self.vars:
            return self.vars[key]
        value = self.lookup(key)
        if value is not NOT_FOUND:
            return value
        return self.parent.get(key, missing)
