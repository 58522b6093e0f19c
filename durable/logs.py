"""Where logs go: to stderr, unless the program configured structlog itself. Never to stdout: results go there."""

from __future__ import annotations

import sys
from typing import Any

import structlog


def _to_stderr(*_: Any) -> structlog.PrintLogger:
    # Looked up for every line: what stderr is may change, as it does under a test runner.
    return structlog.PrintLogger(sys.stderr)


def log_to_stderr() -> None:
    """The default of a program that says nothing about logs."""
    if not structlog.is_configured():
        structlog.configure(logger_factory=_to_stderr)
