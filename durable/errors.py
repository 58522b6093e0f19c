"""Every error of the runtime. A message names what was tried, the ids, and the next thing to do.

DurableError
├── Refused                the state or the input says no; trying again changes nothing
│   ├── ValueRefused       a value that is not JSON, with the path to it
│   ├── UnknownWorkflow
│   ├── UnknownVersion     a run's version was never deployed, or nobody here can run it
│   ├── WrongArguments
│   ├── NoSuchRun
│   └── WrongState
├── StepFailed             user code failed for good
│   ├── StepTimeout
│   ├── ChildFailed
│   └── StepUncertain      an at-most-once step may or may not have run, and nobody could tell
├── EventTimeout           a wait's time was over first
├── RunFailed, RunCancelled   what `result()` raises
├── Diverged               a replay met another step than the journal holds
├── LeaseLost              this worker was declared dead
├── StoreUnavailable       the database cannot be reached; try again
├── StoreNotReady          the database is too old, or not migrated
└── EmbeddedPostgresError  the embedded server cannot start

NonRetryable, RetryAfter   raised by a step to steer its own retry policy
Stop (BaseException)       control flow inside a task; `except Exception` cannot swallow it
"""

from __future__ import annotations

from typing import Any


class DurableError(Exception):
    """Base of every error that the runtime raises."""


class Refused(DurableError):
    """The state or the input says no; nothing was written."""


class ValueRefused(Refused):
    """A value that cannot be stored: not JSON, or too large."""


class UnknownWorkflow(Refused):
    """No worker or client has registered a workflow of this name."""


class UnknownVersion(Refused):
    """A version of a workflow that was never deployed here, or that this worker cannot run."""


class WrongArguments(Refused):
    """The input does not fit the workflow's parameters."""


class NoSuchRun(Refused):
    """The run never existed, or was pruned by retention."""


class WrongState(Refused):
    """The run is not in a state that allows this."""


class StepFailed(DurableError):
    """A step failed for good. Carries what the journal holds, so a replay raises exactly the same."""

    def __init__(self, error: dict[str, Any]):
        self.error = error
        self.type: str = error.get("type", "Exception")
        self.message: str = error.get("message", "")
        self.step: str | None = error.get("step")
        super().__init__(f"step {self.step!r} failed: {self.type}: {self.message}")

    def is_a(self, kind: type[BaseException]) -> bool:
        """Whether the step's own exception was of this class or one derived from it."""
        return f"{kind.__module__}.{kind.__qualname__}" in self.error.get("types", [])


class StepTimeout(StepFailed):
    """An attempt of a step took longer than its timeout, and no retry was left."""


class ChildFailed(StepFailed):
    """A spawned task failed or was cancelled; `error` is the child's own."""

    @property
    def child(self) -> str:
        return str(self.error.get("child"))


class StepUncertain(StepFailed):
    """An at-most-once step was begun, its worker died, and nobody could tell whether it took effect."""


class EventTimeout(DurableError):
    """A wait for an event ended by its timeout. The outcome is recorded: a late event changes nothing."""

    def __init__(self, name: str, pos: int | None = None):
        self.name = name
        self.pos = pos  # where the journal holds this outcome
        super().__init__(f"no event {name!r} came in time")


class RunFailed(DurableError):
    """The run failed; `error` is what it failed with."""

    def __init__(self, run_id: str, error: dict[str, Any]):
        self.run_id = run_id
        self.error = error
        where = f" in step {error['step']!r}" if error.get("step") else ""
        super().__init__(
            f"run {run_id} failed{where}: {error.get('type')}: {error.get('message')}"
            f" (see it with `durable runs show {run_id}`, go on with `durable runs retry {run_id}`)"
        )


class RunCancelled(RunFailed):
    """The run was cancelled."""


class Diverged(DurableError):
    """The workflow asked for another step than its journal holds."""


class LeaseLost(DurableError):
    """The worker was declared dead; its tasks were given to others, and nothing it says counts any more."""


class StoreUnavailable(DurableError):
    """The database cannot be reached now."""


class StoreNotReady(DurableError):
    """The database answers, but cannot hold the store as it is."""


class EmbeddedPostgresError(DurableError):
    """The embedded PostgreSQL server cannot be started or stopped."""


class NonRetryable(Exception):
    """Raise it in a step to fail it at once, whatever its retry policy says."""


class RetryAfter(Exception):
    """Raise it in a step to be tried again after this many seconds, if an attempt is left."""

    def __init__(self, seconds: float, message: str = ""):
        self.seconds = seconds
        super().__init__(message or f"asked to be tried again after {seconds:g} s")


class Stop(BaseException):
    """Control flow: the task's code must end now."""


class Cancelled(Stop):
    """The run was asked to stop. Raised at the workflow's next step."""

    def __init__(self, why: str):
        self.why = why
        super().__init__(why)


class Evicted(Stop):
    """This copy of the task's code is no longer the one that counts; the journal goes on elsewhere."""


REFUSALS: dict[str, type[DurableError]] = {
    "DU001": LeaseLost,
    "DU010": UnknownWorkflow,
    "DU011": NoSuchRun,
    "DU012": WrongState,
    "DU013": WrongArguments,
}
