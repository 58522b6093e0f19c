"""The user a server runs under.

PostgreSQL refuses root, so root lends it another user; everyone else runs it under their own. What that
user may reach is found by trying, never by reading modes: access lists and mounts have their say too.
"""

from __future__ import annotations

import os
import pwd
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

from durable.errors import EmbeddedPostgresError

LENT = ("postgres", "nobody")  # initdb looks its user up by number, so a bare number will not do


class Account(NamedTuple):
    """A user and its group."""

    name: str
    uid: int
    gid: int

    def is_caller(self) -> bool:
        return self.uid == os.geteuid()

    def credentials(self) -> dict[str, Any]:
        """What `subprocess` needs to run something as this user."""
        if self.is_caller():
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def can_enter(self, directory: Path) -> bool:
        return self.is_caller() or self.can_run("/bin/sh", "-c", 'cd -- "$0"', str(directory))

    def can_run(self, *command: str) -> bool:
        try:
            tried = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                cwd="/",
                env=environment(),
                check=False,
                **self.credentials(),
            )
        except PermissionError:
            return False
        return tried.returncode == 0


def server_account(cluster: Path) -> Account:
    """The user for the cluster at that place: its owner if it exists, else one that fits the caller."""
    if cluster.exists():
        return _owner(cluster)
    if os.geteuid() != 0:
        return _account(os.geteuid())
    return _lent()


def _owner(cluster: Path) -> Account:
    uid = cluster.stat().st_uid
    if uid == 0:
        raise EmbeddedPostgresError(
            f"{cluster} belongs to root, and PostgreSQL does not run as root. "
            f"Give it to another user: chown -R {_lent().name} {cluster}"
        )
    if os.geteuid() not in (0, uid):
        raise EmbeddedPostgresError(
            f"{cluster} belongs to {_account(uid).name}, and this process runs as "
            f"{_account(os.geteuid()).name}. Run it as that user or as root, or choose another directory."
        )
    return _account(uid)


def _lent() -> Account:
    for name in LENT:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)
    raise EmbeddedPostgresError(
        "PostgreSQL does not run as root, and this machine has neither a user 'postgres' nor 'nobody' to run "
        "it under. Add one (useradd --system postgres) or run this program as an ordinary user."
    )


def _account(uid: int) -> Account:
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        raise EmbeddedPostgresError(
            f"user number {uid} has no entry in the password database, which PostgreSQL's initdb needs. "
            f"Add one (useradd --uid {uid} durable), or point DURABLE_DATABASE_URL at a server of your own."
        ) from None
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)


def environment() -> dict[str, str]:
    """The surroundings of PostgreSQL's programs: none of the caller's PG* settings, texts in English."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    return kept | {"LC_ALL": "C", "TZ": "UTC"}
