"""Functions whose arguments may refer to secrets: opened for the call, and nothing of it shown afterwards."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable
from typing import Any

from durable import current_step
from durable.redaction import Redaction, everywhere
from interpreter.secrets.vault import Vault


def opening(fn: Callable[..., Any], vault: Vault) -> Callable[..., Any]:
    """The function as steps call it."""
    if not inspect.iscoroutinefunction(fn):
        return Opening(fn, vault)

    @functools.wraps(fn, updated=())
    async def opened(*args: Any, **kwargs: Any) -> Any:
        hide = everywhere
        if vault.has_references((args, kwargs)):
            (args, kwargs), hide = await asyncio.to_thread(vault.reveal, (args, kwargs), current_step())
        try:
            return hide.value(await fn(*args, **kwargs))
        except Exception as exc:
            raise _cleaned(exc, hide) from None

    return opened


class Opening:
    """The same for a plain function. A class, so that a process can be sent one."""

    def __init__(self, fn: Callable[..., Any], vault: Vault):
        self._fn = fn
        self._vault = vault
        self.__name__ = getattr(fn, "__name__", type(fn).__name__)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        hide = everywhere
        if self._vault.has_references((args, kwargs)):
            (args, kwargs), hide = self._vault.reveal((args, kwargs), current_step())
        try:
            return hide.value(self._fn(*args, **kwargs))
        except Exception as exc:
            raise _cleaned(exc, hide) from None


def _cleaned(exc: Exception, hide: Redaction) -> Exception:
    return everywhere.error(hide.error(exc))
