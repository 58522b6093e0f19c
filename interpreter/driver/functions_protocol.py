"""What a driver needs from whoever knows the user's functions and secrets. Nothing here imports anything of theirs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

# Private-use characters: no text that people write holds them by chance.
_MARK: Final = "\ue000secret:{}\ue001"
REFERENCE: Final = re.compile("\ue000secret:([^\ue001]*)\ue001")


class UnknownFunction(Exception):
    """No function of this name may be called here."""


class Functions(Protocol):
    """Finds what a call names."""

    def resolve(self, name: str) -> Callable[..., Any]:
        """The function of this name, or an exception that says why there is none."""
        ...


class Secrets(Protocol):
    """Puts the values of secrets in the place of references, for one attempt of one call."""

    async def reveal(self, value: Any, names: Iterable[str]) -> Any:
        """The value with every reference to one of these names replaced; other references stay as they are."""
        ...


@dataclass(frozen=True, slots=True)
class FunctionTable:
    """Functions by name, for tests and for programs that know theirs."""

    functions: Mapping[str, Callable[..., Any]]

    def resolve(self, name: str) -> Callable[..., Any]:
        found = self.functions.get(name)
        if found is None:
            raise UnknownFunction(f"there is no function {name!r}; known are {', '.join(sorted(self.functions))}")
        return found


def secret_reference(name: str, run_id: str = "") -> str:
    """What stands for a secret wherever values are kept, logged or shown."""
    return _MARK.format(name)
