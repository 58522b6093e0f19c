"""Directories that others must not be able to put something into.

A directory made here has exactly the mode and owner asked for; one that exists is only accepted, never
changed, unless it is already ours.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from durable.errors import EmbeddedPostgresError


def made(path: Path, *, mode: int) -> Path:
    """The caller's own directory at that path, made if it is missing."""
    try:
        path.mkdir(parents=True)
    except FileExistsError:
        _refuse_if_not_ours(path)
    else:
        # mkdir's own mode is cut by the umask.
        path.chmod(mode)
    return path


def given(path: Path, *, uid: int, gid: int) -> Path:
    """A private directory of another user, made if it is missing, below a directory of the caller."""
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise EmbeddedPostgresError(f"{path} is not a directory. Remove it.")
    if found.st_uid != uid:
        os.chown(path, uid, gid)
    path.chmod(0o700)
    return path


def _refuse_if_not_ours(path: Path) -> None:
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise EmbeddedPostgresError(f"{path} is not a directory. Remove it.")
    if found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise EmbeddedPostgresError(
            f"{path} belongs to another user or can be written by others, so nothing private can be kept in "
            "it. Find out who made it, and remove it."
        )
