"""The directory a person asked for, and where its parts really are.

The lock, the owners' claims, the log and a README are in it and belong to the caller. The cluster is in it
too, unless the server's user cannot get there: then it is below /var/lib/durable, and `location` says where.
No directory that was there before has its permissions changed.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import tempfile
from pathlib import Path

from durable.embedded.account import Account, server_account
from durable.embedded.directories import given, made
from durable.embedded.log import ServerLog
from durable.embedded.ownership import LOCK_FILE, LOG_FILE
from durable.errors import EmbeddedPostgresError

ELSEWHERE = Path("/var/lib/durable")
SOCKET_PATH_LIMIT = 103  # of sun_path: 108 with its final zero on Linux, 104 elsewhere

README = """\
This directory belongs to the embedded PostgreSQL server of Durable.

The database itself is in {cluster}
It holds every workflow, run and schedule: removing it removes them. The server runs only while a program
uses it. Its log is server.log, next to this file. To look inside while it runs:

    psql '{dsn}'
"""


def default_data_dir() -> Path:
    """Where the embedded server keeps its data unless told otherwise."""
    home = os.environ.get("DURABLE_HOME")
    return (Path(home) if home else Path.cwd() / ".durable") / "pg"


class Home:
    """One data directory as asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().resolve()
        self.log = ServerLog(self.path / LOG_FILE)
        self._pointer = self.path / "location"
        self._key = hashlib.sha256(os.fsencode(self.path)).hexdigest()[:12]

    def prepare(self) -> None:
        """Make the directory, or accept it if it is empty or already such a home."""
        try:
            self.path.mkdir(parents=True)
        except FileExistsError:
            self._refuse_foreign_content()
        else:
            # The server's user only ever passes through; a caller who runs it needs no one to.
            self.path.chmod(0o711 if os.geteuid() == 0 else 0o700)

    def _refuse_foreign_content(self) -> None:
        if not self.path.is_dir():
            raise EmbeddedPostgresError(f"{self.path} is a file. Remove it, or choose another data directory.")
        content = {entry.name for entry in self.path.iterdir()}
        if "PG_VERSION" in content:
            raise EmbeddedPostgresError(
                f"{self.path} is the data directory of a PostgreSQL that Durable did not set up. Start that "
                "server yourself and point DURABLE_DATABASE_URL at it, or choose another data directory."
            )
        if content and LOCK_FILE not in content:
            raise EmbeddedPostgresError(
                f"{self.path} is not empty and holds no embedded server (it has: "
                f"{', '.join(sorted(content)[:5])}). Choose an empty or a new data directory."
            )

    @property
    def cluster(self) -> Path:
        """Where the cluster is, or would be if it needs no other place."""
        return self._root() / "cluster"

    def _root(self) -> Path:
        return Path(self._pointer.read_text().strip()) if self._pointer.exists() else self.path

    def settle(self) -> tuple[Path, Account]:
        """Where the cluster is to be and under which user, once that user can get there."""
        self._refuse_a_copied_pointer()
        account = server_account(self.cluster)
        if account.can_enter(self._root()):
            return self.cluster, account
        if self.cluster.exists():
            raise EmbeddedPostgresError(
                f"{self.cluster} belongs to user {account.name}, who cannot get there any more. Let them "
                f"pass through every directory above it (chmod o+x), or move the data directory."
            )
        self._move_elsewhere()
        return self.cluster, account

    def _move_elsewhere(self) -> None:
        # A new place each time: a home that was removed by hand does not come back with its old data.
        root = Path(tempfile.mkdtemp(prefix=f"{self._key}-", dir=made(ELSEWHERE, mode=0o711)))
        root.chmod(0o711)
        (root / "home").write_text(f"{self.path}\n")
        fresh = self._pointer.with_suffix(".new")
        fresh.write_text(f"{root}\n")
        fresh.replace(self._pointer)

    def _refuse_a_copied_pointer(self) -> None:
        """A moved home keeps its cluster; of two that point to one cluster, the copy is refused."""
        root = self._root()
        if root == self.path or not root.exists():
            return
        origin = Path((root / "home").read_text().strip())
        if origin != self.path and Home(origin)._root() == root:
            raise EmbeddedPostgresError(
                f"{self.path} is a copy of {origin}: both point to the data in {root}. Use {origin}, or "
                f"remove {self._pointer} to begin with an empty database here."
            )
        if origin != self.path:
            (root / "home").write_text(f"{self.path}\n")

    def socket_dir(self, account: Account) -> Path:
        """A short private directory, the same at every start, so that a pool's address stays good."""
        mode = 0o700 if account.is_caller() else 0o711
        made(_run_directory(), mode=mode)
        return given(_run_directory() / self._key, uid=account.uid, gid=account.gid)

    def describe(self, dsn: str) -> None:
        (self.path / "README").write_text(README.format(cluster=self.cluster, dsn=dsn))

    def make_password(self) -> None:
        """Make the password for connections over TCP, once."""
        path = self.path / "password"
        if not path.exists():
            path.touch(mode=0o600)
            path.write_text(secrets.token_urlsafe(24))

    def password(self) -> str:
        return (self.path / "password").read_text()

    def remove(self) -> None:
        """Remove everything, the cluster first: until it is gone, what points to it stays."""
        root = self._root()
        shutil.rmtree(_run_directory() / self._key, ignore_errors=True)
        shutil.rmtree(root / "cluster", ignore_errors=True)
        if root != self.path:
            shutil.rmtree(root, ignore_errors=True)
        shutil.rmtree(self.path, ignore_errors=True)


def _run_directory() -> Path:
    """Where the sockets of this user's servers are: short, since a socket's path may not be long."""
    name = f"durable-{os.geteuid()}"
    if os.geteuid() == 0 and os.access("/run", os.W_OK):
        return Path("/run") / name
    usual = Path(tempfile.gettempdir()) / name
    longest = usual / ("x" * 12) / ".s.PGSQL.65535"
    return usual if len(os.fsencode(longest)) <= SOCKET_PATH_LIMIT else Path("/tmp") / name
