"""Keys for the encrypted table: from the environment, the newest first. Older ones only open what they closed."""

from __future__ import annotations

import os
from functools import lru_cache

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from durable.errors import Refused

VARIABLE = "DURABLE_SECRETS_KEY"


class NoKey(Refused):
    """There is no key to open or close secrets with, or not the right one."""


def new_key() -> str:
    return Fernet.generate_key().decode()


def encrypted(value: str) -> str:
    return _keys(_variable()).encrypt(value.encode()).decode()


def decrypted(name: str, body: str) -> str:
    try:
        return _keys(_variable()).decrypt(body.encode()).decode()
    except InvalidToken:
        raise NoKey(
            f"secret {name!r} was encrypted with a key that is not in {VARIABLE}; add it behind a comma"
        ) from None


def rotated(name: str, body: str) -> str:
    """The same secret under the newest key."""
    return encrypted(decrypted(name, body))


def _variable() -> str:
    found = os.environ.get(VARIABLE, "")
    if not found.strip():
        raise NoKey(
            f"{VARIABLE} is not set; `durable secrets key` makes one. Keep it where workers run, not in the store"
        )
    return found


@lru_cache(maxsize=8)
def _keys(text: str) -> MultiFernet:
    try:
        return MultiFernet([Fernet(key.strip()) for key in text.split(",") if key.strip()])
    except ValueError:
        # Never the key itself, nor a part of it.
        raise NoKey(f"{VARIABLE} holds something that is no key; `durable secrets key` makes one") from None
