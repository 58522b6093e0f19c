"""What `durable secrets` does. No value is ever printed."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Callable
from typing import TypeVar

from durable import Durable
from durable.errors import Refused
from durable.secretstore import SecretStore
from durablectl import exits
from durablectl.database import with_client
from durablectl.exits import WrongUse
from durablectl.jsontext import print_json
from durablectl.story import said
from interpreter.secrets import keys
from interpreter.secrets.providers import NAME

T = TypeVar("T")


def print_key() -> int:
    print(keys.new_key())
    return exits.OK


def set_secret(name: str, database_url: str | None) -> int:
    if not NAME.fullmatch(name):
        raise WrongUse(f"{name!r} is no name for a secret: letters, digits and _, as in {{{{secrets.api_key}}}}")
    value = _typed(name)
    if not value:
        raise WrongUse("an empty secret is none; type it, or pipe it in")
    exits.secrets.add(value)
    body = keys.encrypted(value)
    _with_store(database_url, lambda store: store.put(name, body))
    print(f"set {name}")
    return exits.OK


def _typed(name: str) -> str:
    if sys.stdin.isatty():
        return getpass.getpass(f"{name}: ")
    return sys.stdin.read().removesuffix("\n")


def list_secrets(*, as_json: bool, database_url: str | None) -> int:
    found = _with_store(database_url, lambda store: store.names())
    if as_json:
        print_json([{**each._asdict(), "updated_at": each.updated_at.isoformat()} for each in found])
        return exits.OK
    for each in found:
        print(f"{each.name}\t{said(each.updated_at)}\t{each.updated_by}")
    return exits.OK


def remove_secret(name: str, database_url: str | None) -> int:
    if not _with_store(database_url, lambda store: store.drop(name)):
        raise Refused(f"there is no secret {name!r} in the store; `durable secrets list` shows those there are")
    print(f"removed {name}")
    return exits.OK


def rotate_secrets(database_url: str | None) -> int:
    count = _with_store(database_url, _rotate)
    print(f"encrypted {count} secrets anew; keys behind the first in {keys.VARIABLE} can go")
    return exits.OK


def _rotate(store: SecretStore) -> int:
    done = 0
    for name, body in store.bodies():
        # One that was set meanwhile has the newest key already, if whoever set it had.
        done += store.swap(name, body, keys.rotated(name, body))
    return done


def _with_store(database_url: str | None, act: Callable[[SecretStore], T]) -> T:
    """The client finds, starts and checks the database; the secrets have a session of their own."""

    async def session(client: Durable) -> T:
        with SecretStore(client.dsn) as store:
            return act(store)

    return with_client(database_url, session)
