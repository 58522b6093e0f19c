"""Durable: workflows on PostgreSQL that run to their end, whatever dies on the way."""

from durable.children import Group, Handle
from durable.client import Durable
from durable.context import DurableContext, NotRun, Ran
from durable.errors import (
    Cancelled,
    ChildFailed,
    DurableError,
    EventTimeout,
    NonRetryable,
    Refused,
    RetryAfter,
    RunCancelled,
    RunFailed,
    StepFailed,
    StepTimeout,
)
from durable.lanes import StepInfo, current_step
from durable.logs import log_to_stderr
from durable.retry import RetryPolicy
from durable.settings import Settings
from durable.start import Start
from durable.sync import SyncDurable
from durable.versions import Catalogue, Deployment, Version, VersionInfo
from durable.worker import Worker
from durable.workflow import Workflow, step, workflow

log_to_stderr()

__all__ = [
    "Cancelled", "Catalogue", "ChildFailed", "Deployment", "Durable", "DurableContext", "DurableError", "EventTimeout",
    "Group", "Handle", "NonRetryable", "NotRun", "Ran", "Refused", "RetryAfter", "RetryPolicy", "RunCancelled",
    "RunFailed", "Settings", "Start", "StepFailed", "StepInfo", "StepTimeout", "SyncDurable", "Version", "VersionInfo",
    "Worker", "Workflow", "current_step", "step", "workflow",
]  # fmt: skip
