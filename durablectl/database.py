"""Which database a command uses: `--database-url`, else DURABLE_DATABASE_URL, else the embedded server."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from durablectl import exits
from durablectl.exits import WrongUse

if TYPE_CHECKING:
    from durable import Durable, Settings

T = TypeVar("T")

VARIABLE = "DURABLE_DATABASE_URL"


class Choice(NamedTuple):
    """A database, and who chose it. No URL means the embedded server."""

    url: str | None
    source: str


def with_client(given: str | None, act: Callable[[Durable], Awaitable[T]]) -> T:
    """Open the chosen store, do something with it, and close it."""
    from durable import Durable

    choice = choose(given)
    options = settings()
    if choice.url is None:
        say_if_new()

    async def session() -> T:
        async with Durable(choice.url, settings=options) as client:
            return await act(client)

    return asyncio.run(session())


def choose(given: str | None) -> Choice:
    """The database to use. A URL that cannot be read is refused without repeating it: it may hold a password."""
    if given:
        return Choice(_readable(given, "--database-url"), "--database-url")
    if found := os.environ.get(VARIABLE):
        return Choice(_readable(found, VARIABLE), VARIABLE)
    return Choice(None, "embedded")


def settings(**given: Any) -> Settings:
    """Settings from the environment; what is given wins. The database is chosen elsewhere."""
    from pydantic import ValidationError

    from durable import Settings

    try:
        return Settings.from_environment(**given).model_copy(update={"database_url": None})
    except ValidationError as exc:
        first = exc.errors()[0]
        name = f"DURABLE_{first['loc'][0]}".upper() if first["loc"] else "the settings"
        raise WrongUse(f"{name} cannot be used: {first['msg'].lower()}, and it is {first['input']!r}") from None


def where(url: str) -> str:
    """A database for people: host, port and name, never a password."""
    from psycopg.conninfo import conninfo_to_dict

    info = conninfo_to_dict(url)
    return f"{info.get('host') or 'localhost'}:{info.get('port') or 5432}/{info.get('dbname') or ''}"


def say_if_new() -> None:
    """A first embedded database may be a surprise to someone in the wrong directory."""
    from durable.embedded import default_data_dir

    place = default_data_dir()
    if not place.exists():
        print(f"durable: no database was named, making an embedded one in {place}", file=sys.stderr)


def _readable(url: str, source: str) -> str:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    plain = re.sub(r"^(postgres(ql)?)\+\w+://", r"\1://", url)
    try:
        password = conninfo_to_dict(plain).get("password")
    except psycopg.ProgrammingError:
        raise WrongUse(
            f"{source} is no database URL that can be read; one looks like postgresql://user:password@host:5432/name"
        ) from None
    if password:
        exits.secrets.add(str(password))
    return plain
