"""Where a step runs: async functions on the loop, plain ones in a thread, killable ones in a process.

Only a process can really be stopped, so a plain function with a timeout runs in one.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import multiprocessing
import os
import pickle
import socket
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

from pebble import ProcessPool

from durable.hearing import Ears, Effects, Mouth
from durable.redaction import everywhere
from durable.retry import RetryPolicy
from durable.runlog import RunLog
from durable.workflow import Lane, policy_of


class AttemptTimeout(Exception):
    """One attempt of a step took longer than its timeout."""


class StepInfo:
    """What a step may know and say about itself: `durable.current_step()`."""

    __slots__ = ("_key", "_tell", "attempt", "name", "run_id", "task_id")
    replaying = False

    def __init__(
        self, run_id: str, task_id: str, name: str, attempt: int, tell: Callable[[Effects], None] | None = None
    ):
        self.run_id = run_id
        self.task_id = task_id
        self.name = name
        self.attempt = attempt
        self._key: str | None = None
        self._tell = tell

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of this step of this run; hand it to the service that you call."""
        return self._key or f"{self.task_id}:{self.name}"

    def use_key(self, key: str) -> None:
        """Let the step have a key that its author chose."""
        self._key = key

    @property
    def log(self) -> RunLog:
        """`current_step().log.info("charged", order=42)`."""
        return RunLog(self, self.name)

    def progress(self, done: float, total: float | None = None, note: str | None = None) -> None:
        """Say how far the run is. Only the newest is kept; nothing waits for it."""
        self.say(
            {
                "progress": [
                    {"r": self.run_id, "t": self.task_id, "d": done, "o": total, "n": note and everywhere.text(note)}
                ]
            }
        )

    def speak_by(self, tell: Callable[[Effects], None]) -> None:
        """Let what the step says go this way."""
        self._tell = tell

    def say(self, effects: Effects) -> None:
        if self._tell is not None:
            self._tell(effects)

    def __reduce__(self) -> tuple[Any, ...]:
        return StepInfo, (self.run_id, self.task_id, self.name, self.attempt), (None, {"_key": self._key})


current: contextvars.ContextVar[StepInfo] = contextvars.ContextVar("durable_step")


def current_step() -> StepInfo:
    """The step that is running now. Only inside a step."""
    try:
        return current.get()
    except LookupError:
        raise RuntimeError("current_step() was called outside of a step") from None


class Lanes:
    """Threads and processes of one worker, made when first needed."""

    def __init__(self, threads: int, processes: int):
        self._thread_count = threads
        self._process_count = processes
        self._threads: ThreadPoolExecutor | None = None
        self._processes: ProcessPool | None = None
        self._ears: Ears | None = None

    async def run(
        self,
        info: StepInfo,
        fn: Callable[..., Any],
        args: Any,
        kwargs: Any,
        timeout: float | None,
        lane: Lane | None,
    ) -> Any:
        """One attempt of a step; raises `AttemptTimeout` when its time is over."""
        lane = lane or lane_of(fn, timeout)
        if lane == "process":
            return await self._in_process(info, fn, args, kwargs, timeout)
        token = current.set(info)
        try:
            async with asyncio.timeout(timeout) as limit:
                if lane == "loop":
                    return await fn(*args, **kwargs)
                return await self._in_thread(fn, args, kwargs)
        except TimeoutError:
            # A TimeoutError of the step's own is an ordinary failure.
            if limit.expired():
                raise AttemptTimeout(f"took longer than {timeout:g} s") from None
            raise
        finally:
            current.reset(token)

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        if self._processes is not None:
            self._processes.stop()  # type: ignore[no-untyped-call]  # pebble leaves it untyped
            self._processes.join()
        if self._ears is not None:
            self._ears.close()

    async def _in_thread(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._thread_count, thread_name_prefix="durable-step")
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: context.run(fn, *args, **kwargs))

    async def _in_process(
        self, info: StepInfo, fn: Callable[..., Any], args: Any, kwargs: Any, timeout: float | None
    ) -> Any:
        _check_picklable(info.name, fn, args, kwargs)
        pool, ears = self._pool()
        number = ears.expect(info.say)
        job: Future[Any] = pool.schedule(
            _in_child, args=(info, number, fn, args, kwargs, dict(os.environ)), timeout=timeout
        )
        try:
            return await asyncio.wrap_future(job)
        except asyncio.CancelledError:
            job.cancel()
            raise
        except TimeoutError:
            if timeout is not None:
                raise AttemptTimeout(f"took longer than {timeout:g} s, and its process was killed") from None
            raise
        finally:
            ears.dismiss(number)

    def _pool(self) -> tuple[ProcessPool, Ears]:
        if self._processes is None or self._ears is None:
            self._ears = Ears()
            # forkserver: a fork of a process with threads and an event loop is not safe.
            self._processes = ProcessPool(
                max_workers=self._process_count,
                context=multiprocessing.get_context("forkserver"),
                initializer=_give_mouth,
                initargs=(self._ears.mouth,),
            )
        return self._processes, self._ears


def is_async(fn: Callable[..., Any]) -> bool:
    """Whether calling it gives a coroutine, also for objects with an async `__call__`."""
    # B004 is about asking whether something can be called; this asks what kind of call it is.
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004


class Traits(NamedTuple):
    """What is known of a step function before it is called."""

    name: str
    retry: RetryPolicy
    timeout: float | None
    lane: Lane | None
    on_loop: bool  # by itself, and without a timeout: nothing but the loop is needed


def traits_of(fn: Callable[..., Any]) -> Traits:
    try:
        return _traits_of(fn)
    except TypeError:
        # A callable object that cannot be hashed cannot be remembered either.
        return _traits_of.__wrapped__(fn)


@functools.lru_cache(maxsize=1024)
def _traits_of(fn: Callable[..., Any]) -> Traits:
    policy = policy_of(fn)
    name = policy.name or getattr(fn, "__name__", None) or type(fn).__name__
    on_loop = policy.timeout is None and (policy.lane or _lane_of.__wrapped__(fn, None)) == "loop"
    return Traits(name, policy.retry, policy.timeout, policy.lane, on_loop)


def lane_of(fn: Callable[..., Any], timeout: float | None) -> Lane:
    """Where a function runs unless told otherwise."""
    try:
        return _lane_of(fn, timeout)
    except TypeError:
        # A callable object that cannot be hashed cannot be remembered either.
        return _lane_of.__wrapped__(fn, timeout)


@functools.lru_cache(maxsize=1024)
def _lane_of(fn: Callable[..., Any], timeout: float | None) -> Lane:
    if is_async(fn):
        return "loop"
    return "thread" if timeout is None else "process"


# In a process of the pool: where to say things to the worker.
_mouth: socket.socket | None = None


def _give_mouth(mouth: socket.socket) -> None:
    global _mouth
    _mouth = mouth


def _in_child(
    info: StepInfo, number: int, fn: Callable[..., Any], args: Any, kwargs: Any, environment: dict[str, str]
) -> Any:
    # The fork server keeps the environment that it was started with; a step sees its worker's as it is now.
    os.environ.clear()
    os.environ.update(environment)
    if _mouth is not None:
        info.speak_by(Mouth(_mouth, number))
    current.set(info)
    result = fn(*args, **kwargs)
    return asyncio.run(result) if inspect.iscoroutine(result) else result


def _check_picklable(name: str, fn: Callable[..., Any], args: Any, kwargs: Any) -> None:
    try:
        pickle.dumps((fn, args, kwargs))
    except (pickle.PicklingError, AttributeError, TypeError) as exc:
        raise TypeError(
            f"step {name!r} runs in a process (it has a timeout or lane='process'), but cannot be sent there: {exc}."
            " Use a function at module level, or make it async."
        ) from None
