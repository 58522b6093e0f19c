"""Lean sessions of a client: one for each call under way, kept for the next."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from durable.channel import AMBIGUOUS
from durable.link import Link, Param


class Sessions:
    """Prepared calls, each on a session of its own. A call that broke is not sent again: it may have been applied."""

    MOST = 8

    def __init__(self, dsn: str, application: str):
        self._dsn = dsn
        self._application = application
        self._idle: list[Link] = []
        self._turn = asyncio.Semaphore(self.MOST)

    async def call(self, sql: str, params: Sequence[Param] = ()) -> bytes | None:
        """The first column of the first row."""
        async with self._turn:
            link = await self._take()
            try:
                answer = await link.call(sql, params)
            except (*AMBIGUOUS, asyncio.CancelledError):
                # Also where nobody waits any more: the answer that is still to come is nobody else's.
                await link.close()
                raise
            except BaseException:
                self._idle.append(link)
                raise
            self._idle.append(link)
            return answer

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().close()

    async def _take(self) -> Link:
        while self._idle:
            link = self._idle.pop()
            if not link.broken:
                return link
            await link.close()
        return await Link.open(self._dsn, self._application)
