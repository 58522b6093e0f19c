"""The worker's own log: to standard error, coloured for people and plain for files."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys

import structlog

from durable.redaction import everywhere


class _StandardError(io.StringIO):
    """Standard error as it is now, without secrets. A run must not fail because nobody reads its log any more."""

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError, ValueError):
            return sys.stderr.write(everywhere.text(text))
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()


def to_standard_error(*, with_pid: bool = False) -> None:
    """Let every log line of this process go to standard error."""
    if with_pid:
        structlog.contextvars.bind_contextvars(pid=os.getpid())
    # What libraries have to say goes the same way.
    logging.basicConfig(stream=_StandardError(), level=logging.WARNING)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(),
                pad_event_to=0,
                exception_formatter=structlog.dev.plain_traceback,
            ),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(20),
        logger_factory=structlog.PrintLoggerFactory(_StandardError()),
        cache_logger_on_first_use=True,
    )
