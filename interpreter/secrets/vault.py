"""The vault: values for references, inside one attempt of one call and nowhere else.

A reference is signed for its run, with salt that only the store has: text from outside that looks like one stays text.
No value is given without an audit row, and whoever was given one has its results, errors and log lines cleaned of it.
"""

from __future__ import annotations

import getpass
import hmac
import os
import re
import socket
from collections.abc import Callable, Iterator, Sequence
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
        self._salt = b""

    def reference(self, name: str, run_id: str) -> str:
        """What stands for a secret in arguments until the call. The same in every process: snapshots hold them."""
        return f"{_OPEN}{name}:{self._signature(name, run_id)}\ue001"

    def has_references(self, value: Any) -> bool:
        """Whether anything in it may have to be revealed."""
        return next(_found_in(value), None) is not None

    def reveal(self, value: Any, step: StepInfo) -> tuple[Any, Redaction]:
        """The value with secrets in the place of references, and what hides them afterwards."""
        signed = dict.fromkeys(_found_in(value))
        names = [name for name, signature in signed if self._is_signed(name, signature, step.run_id)]
        with SecretStore(self._dsn) as store:
            found = {name: self._get(name, step, store) for name in names}
        return _filled(value, lambda m: found.get(m[1], m[0])), conceal(found.values())

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

    def _is_signed(self, name: str, signature: str, run_id: str) -> bool:
        return hmac.compare_digest(signature, self._signature(name, run_id))

    def _signature(self, name: str, run_id: str) -> str:
        if not self._salt:
            with SecretStore(self._dsn) as store:
                self._salt = store.salt().encode()
        return hmac.new(self._salt, f"{run_id}:{name}".encode(), "sha256").hexdigest()[:32]


def _found_in(value: Any) -> Iterator[tuple[str, str]]:
    """The names and signatures of everything that looks like a reference."""
    if isinstance(value, str):
        if _OPEN in value:
            yield from _REFERENCE.findall(value)
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from _found_in(key)
            yield from _found_in(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _found_in(part)


def _filled(value: Any, fill: Callable[[re.Match[str]], str]) -> Any:
    if isinstance(value, str):
        return _REFERENCE.sub(fill, value)
    if isinstance(value, dict):
        return {_filled(key, fill): _filled(part, fill) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_filled(part, fill) for part in value]
    return value


def _who() -> str:
    return f"{getpass.getuser()}@{socket.gethostname()}:{os.getpid()}"
