"""Where secrets come from. A provider is asked by name in a step's own thread or process, and keeps nothing."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from durable.secretstore import SecretStore
from interpreter.secrets import keys

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Provider(Protocol):
    """One source of secrets."""

    @property
    def name(self) -> str:
        """What the audit calls it."""

    def get(self, name: str, store: SecretStore) -> str | None:
        """The value of a secret, or None if this source does not have it."""


@dataclass(frozen=True)
class EnvironmentSecrets:
    """`{{secrets.api_key}}` is the variable `DURABLE_SECRET_API_KEY` of the worker."""

    prefix: str = "DURABLE_SECRET_"
    name: str = "environment"

    def get(self, name: str, store: SecretStore) -> str | None:
        return os.environ.get(f"{self.prefix}{name.upper()}")


@dataclass(frozen=True)
class FileSecrets:
    """A directory with one file per secret, as containers are given them; a last newline is no part of it."""

    directory: str
    name: str = "file"

    def get(self, name: str, store: SecretStore) -> str | None:
        try:
            return (Path(self.directory) / name).read_text().removesuffix("\n")
        except (FileNotFoundError, IsADirectoryError):
            return None


@dataclass(frozen=True)
class TableSecrets:
    """The store's own table; what is in it is opened here, with a key that the database never sees."""

    name: str = "table"

    def get(self, name: str, store: SecretStore) -> str | None:
        body = store.body(name)
        return None if body is None else keys.decrypted(name, body)


def from_environment() -> tuple[Provider, ...]:
    """The providers of a worker: its environment, `DURABLE_SECRETS_DIR` if set, the table."""
    directory = os.environ.get("DURABLE_SECRETS_DIR")
    files = (FileSecrets(directory),) if directory else ()
    return (EnvironmentSecrets(), *files, TableSecrets())
