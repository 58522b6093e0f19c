"""Functions that documents call by name: found, checked against what the worker was told to allow, made callable.

Its one rule: a document can only call what the worker allows. Names lead to a function through modules that are
allowed, and the function itself was defined in one: what such a module imported for itself is not offered.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, TypeVar, cast

from durable import NonRetryable, current_step
from durable.lanes import is_async
from interpreter import tools
from interpreter.secrets.opening import opening
from interpreter.secrets.vault import Vault

F = TypeVar("F", bound=Callable[..., Any])

_STEP = "__durable_with_step__"
_TRANSACTION = "__durable_transaction__"
_MARKS = (_STEP, _TRANSACTION, "__durable_step__")


class FunctionRefused(NonRetryable):
    """No function of this name can be called here; says what to do about it."""


def with_step(fn: F) -> F:
    """Have a function handed its step first: `idempotency_key`, `attempt`, `log`, `progress(done, total)`."""
    setattr(fn, _STEP, True)
    return fn


def in_transaction(fn: F) -> F:
    """Have a function handed a connection first. What it writes there commits with the step's record, exactly once."""
    setattr(fn, _TRANSACTION, True)
    return fn


class AllowedFunctions:
    """Functions of the modules that a worker was told to allow, and the built-in `tools.*`."""

    def __init__(self, allow: Sequence[str] = (), vault: Vault | None = None):
        self._vault = vault
        self._allow = tuple(sorted({prefix.strip().rstrip(".") for prefix in allow} - {""}))
        self._found: dict[str, Callable[..., Any]] = {}

    def resolve(self, name: str) -> Callable[..., Any]:
        """The function of this name, ready to be called as a step; `FunctionRefused` says why there is none."""
        if name not in self._found:
            self._found[name] = self._opened(_callable(name, self._look_up(name)))
        return self._found[name]

    def _opened(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        if self._vault is None:
            return fn
        opened = opening(fn, self._vault)
        for mark in _MARKS:
            if (value := getattr(fn, mark, None)) is not None:
                setattr(opened, mark, value)
        return opened

    def _look_up(self, name: str) -> Any:
        if name == "tools" or name.startswith("tools."):
            return self._tool(name)
        self._require(name, f"function {name!r} is not allowed here")
        found = _walk(name, *_import(name), self._allows)
        if not callable(found):
            raise FunctionRefused(f"function {name!r} is not a function but a {type(found).__name__}")
        if name not in self._allow:
            self._require(_home(found), f"function {name!r} comes from {_home(found)!r}, which is not allowed here")
        return found

    def _tool(self, name: str) -> Any:
        if name not in tools.NAMES:
            raise FunctionRefused(f"there is no tool {name!r}; there are {', '.join(tools.NAMES)}")
        if name.startswith(tools.ASKED_FOR):
            self._require(name, f"tool {name!r} reaches beyond the workflow and is not allowed here")
        return tools.load(name)

    def _require(self, name: str, complaint: str) -> None:
        if not self._allows(name):
            known = ", ".join(f"{prefix}." for prefix in self._allow) or "nothing but tools"
            first = ".".join(name.split(".")[:2]) if name.startswith("tools.") else name.split(".")[0]
            raise FunctionRefused(f"{complaint}: this worker allows {known}. Start it with `--allow {first}.`")

    def _allows(self, name: str) -> bool:
        return any(name == prefix or name.startswith(f"{prefix}.") for prefix in self._allow)


def _import(name: str) -> tuple[ModuleType, list[str]]:
    """The longest part of a name that is a module, and what is left of the name."""
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        module = ".".join(parts[:end])
        try:
            return importlib.import_module(module), parts[end:]
        except ModuleNotFoundError as exc:
            if exc.name is None or not (module == exc.name or module.startswith(f"{exc.name}.")):
                raise FunctionRefused(f"function {name!r}: importing {module!r} failed: {exc}") from exc
        except Exception as exc:
            raise FunctionRefused(f"function {name!r}: importing {module!r} failed: {exc!r}") from exc
    raise FunctionRefused(
        f"function {name!r}: there is no module {parts[0]!r} where this worker runs: install it there,"
        " or start the worker in the directory that holds it"
    )


def _walk(name: str, at: Any, attributes: list[str], allows: Callable[[str], bool]) -> Any:
    for attribute in attributes:
        owner = at
        if attribute.startswith("_"):
            raise FunctionRefused(f"function {name!r}: {attribute!r} is private")
        at = getattr(owner, attribute, None)
        if at is None:
            raise FunctionRefused(f"function {name!r}: {_shown(owner)} has no {attribute!r}")
        if isinstance(at, ModuleType) and not allows(at.__name__):
            raise FunctionRefused(f"function {name!r} goes through module {at.__name__!r}, which is not allowed here")
        if inspect.isclass(owner) and inspect.isfunction(inspect.getattr_static(owner, attribute)):
            # A method is called on an instance of its class.
            at = getattr(_instance(name, owner), attribute)
    return at


def _callable(name: str, found: Any) -> Callable[..., Any]:
    """What a step calls for what a name leads to, with the marks of what it asks for."""
    if inspect.isclass(found):
        if not any("__call__" in vars(base) for base in found.__mro__):
            raise FunctionRefused(f"function {name!r}: class {found.__name__} has no __call__")
        found = _instance(name, found)
    marks = {mark: value for mark in _MARKS if (value := _mark(found, mark)) is not None}
    if not marks and (inspect.iscoroutinefunction(found) or not is_async(found)):
        return cast("Callable[..., Any]", found)
    made = _prepared(found, _STEP in marks, 1 if _TRANSACTION in marks else 0)
    for mark, value in marks.items():
        setattr(made, mark, value)
    return made


def _instance(name: str, of: type) -> Any:
    try:
        return of()
    except TypeError as exc:
        raise FunctionRefused(f"function {name!r}: class {of.__name__} needs arguments to be made: {exc}") from exc


def _prepared(fn: Callable[..., Any], wants_step: bool, place: int) -> Callable[..., Any]:
    """A function of the kind that the runtime tells apart (async or not), given its step at this place if it wants."""
    call = Told(fn, place) if wants_step else functools.partial(fn)
    if not is_async(fn):
        return call

    @functools.wraps(fn, updated=())
    async def awaited(*args: Any, **kwargs: Any) -> Any:
        return await call(*args, **kwargs)

    return awaited


class Told:
    """A function that is handed its step. A class, so that a process can be sent one."""

    def __init__(self, fn: Callable[..., Any], place: int):
        self._fn = fn
        self._place = place
        self.__name__ = getattr(fn, "__name__", type(fn).__name__)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._fn(*args[: self._place], current_step(), *args[self._place :], **kwargs)


def _mark(fn: Any, mark: str) -> Any:
    # Not whether it can be called: the function behind the call is looked at for marks.
    by_class = getattr(type(fn), "__call__", None)  # noqa: B004
    return getattr(fn, mark, None) or getattr(by_class, mark, None)


def _home(found: Any) -> str:
    """The module that something callable was defined in."""
    if isinstance(found, functools.partial):
        return _home(found.func)
    own = found if inspect.isclass(found) or inspect.isroutine(found) else type(found)
    return str(getattr(own, "__module__", None) or "builtins")


def _shown(owner: Any) -> str:
    kind = "module" if isinstance(owner, ModuleType) else "class" if inspect.isclass(owner) else type(owner).__name__
    return f"{kind} {getattr(owner, '__name__', owner)!s}"
