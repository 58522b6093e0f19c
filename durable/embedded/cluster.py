"""A PostgreSQL cluster on disk: made whole or not at all, and never shared with a server that is not ours."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from durable.embedded.account import Account, environment
from durable.embedded.address import SUPERUSER
from durable.embedded.binaries import Installation
from durable.embedded.ownership import Process
from durable.errors import EmbeddedPostgresError

PID_FILE = "postmaster.pid"
NO_PROCESS = 2**22 + 1  # above the highest number Linux gives to a process


def major_version(cluster: Path) -> int | None:
    """The major version that made the cluster, None where there is none yet."""
    if not cluster.exists():
        return None
    try:
        return int((cluster / "PG_VERSION").read_text())
    except (FileNotFoundError, ValueError):
        raise EmbeddedPostgresError(
            f"{cluster} is damaged: it has no readable PG_VERSION. Restore it from a backup, or move it away "
            "to begin with an empty database."
        ) from None


def create(cluster: Path, installation: Installation, account: Account) -> None:
    """Make a new cluster beside its place and rename it there."""
    fresh = Path(tempfile.mkdtemp(prefix=f"{cluster.name}.new-", dir=cluster.parent))
    try:
        if not account.is_caller():
            os.chown(fresh, account.uid, account.gid)
        _initdb(fresh, installation, account)
        fresh.rename(cluster)
        _sync(cluster.parent)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def remove_unfinished(cluster: Path) -> None:
    """Remove what was left by a process that was killed while it made a cluster.

    To be called at every start: an initdb that outlived its owner for a moment may add to it while we remove.
    """
    for leftover in cluster.parent.glob(f"{cluster.name}.new-*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _initdb(directory: Path, installation: Installation, account: Account) -> None:
    # Whoever gets to the socket is let in: its directory keeps others out. TCP always asks for a password.
    command = [
        *(str(installation.programs / "initdb"), "--pgdata", str(directory), "--username", SUPERUSER),
        *("--encoding=UTF8", "--locale=C", "--auth-local=trust", "--auth-host=scram-sha-256"),
    ]
    done = subprocess.run(
        command,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd="/",
        check=False,
        **account.credentials(),
    )
    if done.returncode != 0:
        raise EmbeddedPostgresError(
            f"PostgreSQL {installation.version} could not make a cluster in {directory.parent}; nothing was "
            f"left there. Is the disk full, or may user {account.name} not write to it? initdb said:\n"
            f"{(done.stderr or done.stdout).strip()}"
        )


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def refuse_other_server(cluster: Path) -> None:
    """Refuse a cluster that a server of someone else uses now; let a leftover pid file block nothing."""
    pid = _pid_on_file(cluster)
    if pid is None or Process.of(pid) is None:
        return  # PostgreSQL clears the file of a dead process by itself
    if _works_in(pid, cluster):
        raise EmbeddedPostgresError(
            f"another PostgreSQL server (process {pid}) already uses {cluster}; Durable did not start it. "
            f"Stop it (kill -INT {pid}), or point DURABLE_DATABASE_URL at it, or choose another data directory."
        )
    _disown(cluster)


def _pid_on_file(cluster: Path) -> int | None:
    try:
        return abs(int((cluster / PID_FILE).read_text().partition("\n")[0]))
    except (FileNotFoundError, ValueError):
        return None


def _works_in(pid: int, cluster: Path) -> bool:
    """Whether that process is a server of this cluster: a postmaster stays in its data directory."""
    if not Path("/proc/self/cwd").exists():
        asked = subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, check=False)
        return b"postgres" in asked.stdout
    try:
        return Path(f"/proc/{pid}/cwd").samefile(cluster)
    except OSError:
        return False  # gone by now, or another user's: a server of this cluster would be its owner's


def _disown(cluster: Path) -> None:
    """Name a process that cannot exist in a pid file whose number now belongs to a stranger.

    The file is not removed: its later lines let PostgreSQL see that children of a killed server still live.
    """
    path = cluster / PID_FILE
    _, _, rest = path.read_text().partition("\n")
    with open(os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW), "w") as file:
        file.write(f"{NO_PROCESS}\n{rest}")
