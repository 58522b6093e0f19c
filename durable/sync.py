"""The client for scripts: the same calls, without async. Never a twin: each call is the async one, waited for."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from typing import Any, Self

from durable.client import Durable


class SyncDurable:
    """`with SyncDurable(dsn) as durable: run_id = durable.start("order", order_id=42)`.

    Every method of `Durable` is here under the same name. The work is done by an event loop in a thread.
    """

    def __init__(self, dsn: str | None = None, **options: Any):
        self._client = Durable(dsn, **options)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="durable-sync", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._wait(self._client.__aenter__())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self._wait(self._client.__aexit__(*exc))
        self._end()

    @property
    def dsn(self) -> str:
        return self._client.dsn

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)

        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            return self._wait(method(*args, **kwargs))

        return call

    def _wait(self, awaitable: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(awaitable, self._loop).result()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
