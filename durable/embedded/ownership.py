"""Which processes own a server, and the supervisor that stops it when none is left.

Standard library only: the supervisor runs this very file as a script, in an interpreter that
imports nothing of ours, so that watching a server costs little memory and starts at once.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import secrets
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

LOCK_FILE = "durable.lock"
LOG_FILE = "server.log"
RECORD_FILE = "server.json"
OWNERS = "owners"

GLANCE = 0.25  # seconds between two looks at who is still alive
SHUTDOWN = ((signal.SIGINT, 30.0), (signal.SIGQUIT, 10.0), (signal.SIGKILL, 10.0))
STARTED = "started"
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

# Loaded before any fork: after one, only what is already there may be used.
_libc = ctypes.CDLL(None) if sys.platform.startswith("linux") else None
_launched: list[subprocess.Popen[str]] = []


class Process(NamedTuple):
    """A process that no later one with the same number is taken for."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> Process | None:
        """The living process of that number, if there is one."""
        started = _started(pid)
        return None if started is None else cls(pid, started)

    def alive(self) -> bool:
        return _started(self.pid) == self.started

    def kill(self, number: int) -> None:
        """Send a signal; a process that has ended needs none."""
        if self.alive():
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def wait_gone(self, deadline: float) -> bool:
        while self.alive():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True


class Server(NamedTuple):
    """The record of a server we started: its processes and where it listens."""

    supervisor: Process
    postmaster: Process
    socket_dir: str
    port: int
    tcp: bool

    @classmethod
    def read(cls, home: Path) -> Server | None:
        try:
            return cls._from_json((home / RECORD_FILE).read_text())
        except (FileNotFoundError, ValueError, TypeError, KeyError):
            return None

    @classmethod
    def _from_json(cls, text: str) -> Server:
        fields = json.loads(text)
        supervisor, postmaster = Process(*fields.pop("supervisor")), Process(*fields.pop("postmaster"))
        return cls(supervisor, postmaster, **fields)

    def write(self, home: Path) -> None:
        fresh = home / f"{RECORD_FILE}.{self.supervisor.pid}"
        fresh.write_text(json.dumps(self._asdict()))
        fresh.replace(home / RECORD_FILE)


def _started(pid: int) -> str | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None if Path("/proc/self/stat").exists() else _started_by_ps(pid)
    state, *fields = stat[stat.rindex(b")") + 2 :].split()
    # A zombie has ended, whenever its parent gets round to asking.
    return None if state in (b"Z", b"X") else fields[18].decode()


def _started_by_ps(pid: int) -> str | None:
    """For systems without /proc."""
    asked = subprocess.run(["ps", "-o", "state=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    state, _, started = asked.stdout.strip().partition(" ")
    return None if not started or state.startswith("Z") else started.strip().replace(" ", "_")


def register(home: Path) -> Path:
    """Make the calling process an owner; the file returned is its claim."""
    started = _started(os.getpid())
    owners = home / OWNERS
    owners.mkdir(mode=0o700, exist_ok=True)
    # All is in the name, so that a claim is never seen half-written.
    claim = owners / f"{os.getpid()}-{started}-{secrets.token_hex(4)}"
    claim.touch(mode=0o600)
    return claim


def live_owners(home: Path) -> list[Process]:
    """The owners that still live; the claims of dead ones are removed."""
    try:
        claims = sorted((home / OWNERS).iterdir())
    except FileNotFoundError:
        return []
    return [owner for claim in claims if (owner := _living(claim)) is not None]


def _living(claim: Path) -> Process | None:
    pid, _, rest = claim.name.partition("-")
    owner = Process(int(pid), rest.rpartition("-")[0]) if pid.isdecimal() else None
    if owner is not None and owner.alive():
        return owner
    claim.unlink(missing_ok=True)
    return None


@contextmanager
def locked(home: Path, timeout: float) -> Iterator[None]:
    """Hold the lock of a home directory; TimeoutError when another keeps it for longer than `timeout`."""
    deadline = time.monotonic() + timeout
    while (descriptor := _acquire(home / LOCK_FILE)) is None:
        if time.monotonic() >= deadline:
            raise TimeoutError(f"{home / LOCK_FILE} is held by another process")
        time.sleep(0.01)
    try:
        yield
    finally:
        os.close(descriptor)


def _acquire(path: Path) -> int | None:
    # No link is followed: root may run this in a directory that belongs to another user.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with suppress(BlockingIOError, FileNotFoundError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The directory may have been removed and made anew while we waited: only the file in place counts.
        if os.path.samestat(os.fstat(descriptor), path.stat()):
            return descriptor
    os.close(descriptor)
    return None


def launch_supervisor(order: dict[str, Any]) -> Server:
    """Start a server under a supervisor of its own; gives its record once the process exists."""
    reap_supervisors()
    # A session of its own: Ctrl-C in the owner's terminal must not reach the server.
    supervisor = subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, order["home"]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd="/",
        start_new_session=True,
    )
    _launched.append(supervisor)
    said, complaint = _brief(supervisor, order)
    server = Server.read(Path(order["home"])) if said == STARTED else None
    if server is None:
        raise OSError(f"its supervisor did not start: {complaint.strip()}")
    return server


def _brief(supervisor: subprocess.Popen[str], order: dict[str, Any]) -> tuple[str, str]:
    """Hand over the order; what the supervisor says ends as soon as it has started the server, or failed."""
    assert supervisor.stdin is not None
    assert supervisor.stdout is not None
    assert supervisor.stderr is not None
    with supervisor.stdout, supervisor.stderr:
        with suppress(BrokenPipeError), supervisor.stdin:
            supervisor.stdin.write(json.dumps(order))
        return supervisor.stdout.read(), supervisor.stderr.read()


def reap_supervisors() -> None:
    """Take note of the supervisors this process started that have ended, so that no zombie is left."""
    _launched[:] = [supervisor for supervisor in _launched if supervisor.poll() is None]


def main() -> None:
    """Start the server of the order on standard input, and supervise it to its end."""
    order = json.load(sys.stdin)
    home = Path(order["home"])
    signals = _signal_pipe()
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    with _log(home) as log:
        postmaster = _start(order, log)
        server = _record(order, postmaster)
        server.write(home)
        _report_to_owner(log)
        _supervise(home, server, postmaster, signals)
        _await_orphans()


def _signal_pipe() -> int:
    """A descriptor that is readable as soon as someone asks to stop or the server has ended."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    return reader


@contextmanager
def _log(home: Path) -> Iterator[int]:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(home / LOG_FILE, flags, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _start(order: dict[str, Any], log: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        order["command"],
        env=order["environment"],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        cwd="/",
        # The kernel stops the server (fast shutdown) should its supervisor be killed.
        preexec_fn=lambda: _prctl(PR_SET_PDEATHSIG, signal.SIGINT),
        **order["credentials"],
    )


def _prctl(option: int, value: int) -> None:
    """Ask the Linux kernel for something about this process; elsewhere there is nobody to ask."""
    if _libc is not None:
        _libc.prctl(option, value)


def _record(order: dict[str, Any], postmaster: subprocess.Popen[bytes]) -> Server:
    return Server(
        supervisor=Process(os.getpid(), _started(os.getpid()) or ""),
        postmaster=Process(postmaster.pid, _started(postmaster.pid) or "ended"),
        socket_dir=order["socket_dir"],
        port=order["port"],
        tcp=order["tcp"],
    )


def _report_to_owner(log: int) -> None:
    """The owner reads our output to its end; from here on it goes to the log."""
    sys.stdout.write(STARTED)
    sys.stdout.flush()
    os.dup2(log, 1)
    os.dup2(log, 2)


def _supervise(home: Path, server: Server, postmaster: subprocess.Popen[bytes], signals: int) -> None:
    while postmaster.poll() is None:
        select.select([signals], [], [], GLANCE)
        if _asked_to_stop(signals) or Server.read(home) != server:
            _shut_down(postmaster)
        elif not live_owners(home):
            _stop_unless_adopted(home, postmaster)


def _asked_to_stop(signals: int) -> bool:
    with suppress(BlockingIOError):
        return bool(set(os.read(signals, 64)) & {signal.SIGTERM, signal.SIGINT})
    return False


def _stop_unless_adopted(home: Path, postmaster: subprocess.Popen[bytes]) -> None:
    # Under the lock, so that a process that starts just now either keeps this server or waits for its end;
    # a lock that is taken means such a process is at work: look again later.
    with suppress(TimeoutError, FileNotFoundError), locked(home, timeout=0):
        if not live_owners(home):
            _shut_down(postmaster)


def _shut_down(postmaster: subprocess.Popen[bytes]) -> None:
    for number, patience in SHUTDOWN:
        postmaster.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            postmaster.wait(patience)
            return


def _await_orphans() -> None:
    """Wait for the children of a killed server, which are ours now: until then its data are in use."""
    with suppress(ChildProcessError):
        while True:
            os.wait()


if __name__ == "__main__":
    main()
