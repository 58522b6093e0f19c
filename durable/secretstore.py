"""Secrets in the store, always encrypted, and the audit of every access to any secret."""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, NamedTuple, Self

import psycopg

from durable.errors import StoreUnavailable
from durable.lanes import StepInfo
from durable.link import CONNECT, explain_unreachable


class SecretInfo(NamedTuple):
    """A secret as people may see it."""

    name: str
    updated_at: datetime
    updated_by: str


class SecretStore:
    """One session for secrets. Plain, not async: secrets are read in threads and processes of steps too."""

    def __init__(self, dsn: str):
        self._dsn = dsn
        self._session: psycopg.Connection[Any] | None = None

    def __enter__(self) -> Self:
        try:
            name = "durable-secrets"
            self._session = psycopg.connect(self._dsn, autocommit=True, application_name=name, **CONNECT)
        except psycopg.OperationalError as exc:
            raise StoreUnavailable(explain_unreachable(self._dsn, exc)) from None
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, at: TracebackType | None) -> None:
        if self._session is not None:
            self._session.close()

    def salt(self) -> str:
        """What references to secrets are signed with."""
        return str(self._rows("select durable.sign_with()")[0][0])

    def body(self, name: str) -> str | None:
        """A secret as it is stored."""
        rows = self._rows("select body from durable.secret where name = %s", name)
        return rows[0][0] if rows else None

    def bodies(self) -> list[tuple[str, str]]:
        """Every secret as it is stored."""
        return [(row[0], row[1]) for row in self._rows("select name, body from durable.secret order by name")]

    def names(self) -> list[SecretInfo]:
        query = "select name, updated_at, updated_by from durable.secret order by name"
        return [SecretInfo(*row) for row in self._rows(query)]

    def put(self, name: str, body: str) -> None:
        self._rows("select durable.put_secret(%s, %s, %s)", name, body, getpass.getuser())

    def swap(self, name: str, old: str, new: str) -> bool:
        """The same secret encrypted anew; false if somebody has set it meanwhile."""
        return bool(self._rows("select durable.swap_secret(%s, %s, %s)", name, old, new)[0][0])

    def drop(self, name: str) -> bool:
        return bool(self._rows("select durable.drop_secret(%s)", name)[0][0])

    def note_access(self, name: str, provider: str | None, who: str, step: StepInfo | None) -> None:
        """The audit row of one access; `provider` None: nobody had it."""
        place = (step.run_id, step.task_id, step.name, step.attempt) if step else (None, None, None, None)
        self._rows(
            "select durable.note_secret_access(%s, %s, %s, %s::uuid, %s::uuid, %s, %s)", name, provider, who, *place
        )

    def _rows(self, sql: str, *params: Any) -> Sequence[Any]:
        assert self._session is not None, "use `with SecretStore(dsn) as store:`"
        return self._session.execute(sql, params).fetchall()
