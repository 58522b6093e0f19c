"""How the command ends: exit codes, and errors as a line or two on standard error.

0 ok, 1 the run failed, 2 wrong use, 3 the store is unavailable or not ready, 4 the state or the input says no.
"""

from __future__ import annotations

import os
import sys
import traceback

OK = 0
FAILED = 1
USAGE = 2
UNAVAILABLE = 3
REFUSED = 4
BUG = 70
INTERRUPTED = 130

# Passwords seen in database URLs; no error message may show one.
secrets: set[str] = set()


class WrongUse(Exception):
    """What was typed cannot be done, and saying it differently would help."""


def complain(error: BaseException) -> int:
    """Say what went wrong on standard error; the exit code for it."""
    code = code_of(error)
    text = str(error).strip()
    if code == BUG:
        if os.environ.get("DURABLE_DEBUG"):
            traceback.print_exception(error)
        text = f"{type(error).__name__}: {text}\nThis is a bug in durable; DURABLE_DEBUG=1 shows where it happened."
    print(f"durable: {without_secrets(text)}", file=sys.stderr)
    return code


def code_of(error: BaseException) -> int:
    if isinstance(error, WrongUse):
        return USAGE
    # Costs half a second, and only what is imported already can have raised anything.
    import psycopg
    import sqlalchemy.exc
    from alembic.util import CommandError

    from durable import errors
    from interpreter.errors import ProgramError

    if isinstance(error, ProgramError):
        return REFUSED
    if isinstance(error, errors.RunFailed):
        return FAILED
    if isinstance(error, errors.Refused):
        return REFUSED
    unavailable = (errors.StoreUnavailable, errors.StoreNotReady, errors.EmbeddedPostgresError)
    if isinstance(error, (*unavailable, psycopg.Error, sqlalchemy.exc.DBAPIError, CommandError)):
        return UNAVAILABLE
    return BUG


def without_secrets(text: str) -> str:
    for secret in secrets:
        text = text.replace(secret, "***")
    return text
