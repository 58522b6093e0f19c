"""The vault: values for references, inside one attempt of one call and nowhere else.

A reference holds a number that this process made up: text from outside that looks like a reference stays text. No value
is given without an audit row, and whoever was given one has its results, errors and log lines cleaned of it.
"""

from __future__ import annotations

import getpass
import os
import re
import secrets
import socket
from collections.abc import Iterator, Sequence
from typing import Any, Final

from durable import NonRetryable, StepInfo
from durable.redaction import Redaction, conceal
from durable.secretstore import SecretStore
from interpreter.secrets.providers import NAME, Provider, from_environment

# Private-use characters: no text that people write holds them by chance.
_OPEN: Final = "\ue000secret:"
_REFERENCE: Final = re.compile("\ue000secret:([^:\ue001]*):([^\ue001]*)\ue001")


class UnknownSecret(NonRetryable):
    """No provider of this worker has a secret of this name."""


class Vault:
    """Secrets of one worker process. It can be sent to a step's process: it holds no value."""

    def __init__(self, dsn: str, providers: Sequence[Provider] | None = None):
        self._dsn = dsn
        self._providers = tuple(from_environment() if providers is None else providers)
        self._number = secrets.token_hex(8)

    def reference(self, name: str) -> str:
        """What stands for a secret in arguments until the call."""
        return f"{_OPEN}{name}:{self._number}\ue001"

    def has_references(self, value: Any) -> bool:
        return next(self._names(value), None) is not None

    def reveal(self, value: Any, step: StepInfo) -> tuple[Any, Redaction]:
        """The value with secrets in the place of references, and what hides them afterwards."""
        names = dict.fromkeys(self._names(value))
        with SecretStore(self._dsn) as store:
            found = {name: self._get(name, step, store) for name in names}
        return self._filled(value, found), conceal(found.values())

    def _get(self, name: str, step: StepInfo, store: SecretStore) -> str:
        value, provider = None, None
        if NAME.fullmatch(name):
            for each in self._providers:
                value = each.get(name, store)
                if value is not None:
                    provider = each.name
                    break
        store.note_access(name, provider, _who(), step)
        if value is None:
            asked = ", ".join(each.name for each in self._providers)
            raise UnknownSecret(
                f"there is no secret {name!r}; asked were: {asked}. Set it with `durable secrets set {name}`"
            )
        return value

    def _names(self, value: Any) -> Iterator[str]:
        if isinstance(value, str):
            if _OPEN in value:
                yield from (name for name, number in _REFERENCE.findall(value) if number == self._number)
        elif isinstance(value, dict):
            for key, part in value.items():
                yield from self._names(key)
                yield from self._names(part)
        elif isinstance(value, list | tuple):
            for part in value:
                yield from self._names(part)

    def _filled(self, value: Any, found: dict[str, str]) -> Any:
        if isinstance(value, str):
            return _REFERENCE.sub(lambda m: found[m[1]] if m[2] == self._number else m[0], value)
        if isinstance(value, dict):
            return {self._filled(key, found): self._filled(part, found) for key, part in value.items()}
        if isinstance(value, list | tuple):
            return [self._filled(part, found) for part in value]
        return value


def _who() -> str:
    return f"{getpass.getuser()}@{socket.gethostname()}:{os.getpid()}"
