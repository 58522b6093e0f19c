"""Reads of a worker outside of its write channels: one session, one query at a time, replaced when it breaks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import psycopg

from durable.channel import AMBIGUOUS
from durable.errors import REFUSALS, StoreUnavailable
from durable.link import Link, Param


class Reads:
    """Queries that change nothing, so that a broken one is simply asked again."""

    def __init__(self, dsn: str, application: str):
        self._dsn = dsn
        self._application = application
        self._link: Link | None = None
        self._turn = asyncio.Lock()

    async def call(self, sql: str, params: Sequence[Param] = ()) -> bytes | None:
        async with self._turn:
            rest = 0.02
            while True:
                try:
                    if self._link is None:
                        self._link = await Link.open(self._dsn, self._application)
                    return await self._link.call(sql, params)
                except (StoreUnavailable, *AMBIGUOUS):
                    await self.close()
                    await asyncio.sleep(rest)
                    rest = min(rest * 2, 1.0)
                except psycopg.Error as exc:
                    raise refusal(exc) from None

    async def close(self) -> None:
        if self._link is not None:
            link, self._link = self._link, None
            await link.close()


def refusal(exc: psycopg.Error) -> Exception:
    """Our own error for one of the store's own SQLSTATEs; the original otherwise."""
    kind = REFUSALS.get(exc.sqlstate or "")
    if kind is None:
        return exc
    hint = f" {exc.diag.message_hint}" if exc.diag.message_hint else ""
    return kind(f"{exc.diag.message_primary}.{hint}" if hint else str(exc.diag.message_primary))
