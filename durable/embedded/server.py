"""The embedded server as its callers see it: start, use, stop.

Every process that starts it is an owner, and the server runs as long as one owner lives. Whether to start
a server, to join one or to stop it is decided under the lock of the data directory.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import psycopg

from durable.embedded import address, binaries, cluster, ownership
from durable.embedded.account import Account, environment
from durable.embedded.greeting import greet
from durable.embedded.home import Home, default_data_dir
from durable.embedded.ownership import Process, Server
from durable.errors import EmbeddedPostgresError

SOCKET_PORT = 5432  # only names the socket's file while nothing listens on TCP

DEFAULTS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "shared_buffers": "128MB",
    "max_connections": "200",
    "max_wal_size": "2GB",
    "wal_compression": "on",
    "timezone": "UTC",
    "log_timezone": "UTC",
}

# What PostgreSQL says while the last of a killed server is still going away.
GOING_AWAY = ("pre-existing shared memory block", "lock file")


class ServerStatus(NamedTuple):
    """What is known about the server of a data directory at one moment."""

    running: bool
    pid: int | None
    owners: tuple[int, ...]
    data_dir: Path
    cluster_dir: Path
    log_file: Path
    dsn: str | None


class EmbeddedPostgres:
    """A PostgreSQL server for the processes of this machine that share a data directory.

    `settings` are PostgreSQL's own and win over ours. They take effect when this process is the one that
    starts the server; a process that joins a running one gets it as it is. With `port` the server also
    listens on 127.0.0.1, where it asks for a password.
    """

    def __init__(
        self,
        data_dir: Path | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        port: int | None = None,
        timeout: float = 60.0,
    ) -> None:
        self._home = Home(data_dir if data_dir is not None else default_data_dir())
        self._settings = DEFAULTS | dict(settings or {})
        self._port = port
        self._timeout = timeout
        self._claim: _Claim | None = None
        self._version: str | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def data_dir(self) -> Path:
        """The data directory asked for; `status().cluster_dir` is PostgreSQL's own."""
        return self._home.path

    @property
    def dsn(self) -> str:
        """The address of the server; it stays the same from one start to the next."""
        return address.over_socket(self._server())

    @property
    def tcp_dsn(self) -> str | None:
        """The address on 127.0.0.1, password included, if the server listens there."""
        server = self._server()
        return address.over_tcp(server, self._home.password()) if server.tcp else None

    @property
    def pid(self) -> int:
        """The process number of the server."""
        return self._server().postmaster.pid

    @property
    def server_version(self) -> str:
        """The version of the server in its own words, such as 18.4."""
        if self._version is None:
            raise self._not_started()
        return self._version

    def start(self) -> str:
        """Start the server or join the one that runs; returns its address once it answers."""
        with _explained(self._home):
            try:
                self._version = self._up(time.monotonic() + self._timeout)
            except BaseException:
                self.stop()
                raise
            return self.dsn

    def stop(self) -> None:
        """Give the server up; if nobody else owns it, it has stopped when this returns."""
        claim, self._claim = self._claim, None
        if claim is None or not claim.is_callers():
            return
        # A data directory that was removed under us: the supervisor sees that too.
        with _explained(self._home), suppress(FileNotFoundError), self._locked():
            claim.file.unlink(missing_ok=True)
            if not ownership.live_owners(self._home.path):
                self._end_server()

    def destroy(self) -> None:
        """Stop the server and remove all its data; refused while another process owns it."""
        self.stop()
        if not self._home.path.exists():
            return
        with _explained(self._home), self._locked():
            if owners := ownership.live_owners(self._home.path):
                raise EmbeddedPostgresError(f"{self._home.path} is in use by process {owners[0].pid}. Stop that first.")
            self._home.remove()

    def kill(self, number: signal.Signals) -> None:
        """Send a signal to the server process."""
        self._server().postmaster.kill(number)

    def crash(self) -> None:
        """Kill the server as a power cut would and wait until all of it is gone; `start` brings it back."""
        server = self._server()
        server.postmaster.kill(signal.SIGKILL)
        self._await_end(server.supervisor)

    def status(self) -> ServerStatus:
        """What is known now; starts and stops nothing."""
        with _explained(self._home):
            server = Server.read(self._home.path)
            live = server if server is not None and server.postmaster.alive() else None
            return ServerStatus(
                running=live is not None,
                pid=live.postmaster.pid if live else None,
                owners=tuple(owner.pid for owner in ownership.live_owners(self._home.path)),
                data_dir=self._home.path,
                cluster_dir=self._home.cluster,
                log_file=self._home.log.path,
                dsn=address.over_socket(live) if live else None,
            )

    def _up(self, deadline: float) -> str:
        while True:
            self._home.prepare()
            with self._locked():
                self._own()
                server, mark = self._join() or self._launch()
            try:
                return self._await_ready(server, mark, deadline)
            except _Ended as ended:
                if not ended.try_again or time.monotonic() > deadline:
                    raise EmbeddedPostgresError(str(ended)) from None
            time.sleep(0.05)

    def _own(self) -> None:
        if self._claim is None or not self._claim.is_callers() or not self._claim.file.exists():
            self._claim = _Claim(os.getpid(), ownership.register(self._home.path))

    def _join(self) -> tuple[Server, None] | None:
        """The server that runs here, if it will be stopped once its owners have ended."""
        server = Server.read(self._home.path)
        if server is None or not server.postmaster.alive():
            return None
        if server.supervisor.alive():
            return server, None
        server.postmaster.kill(signal.SIGINT)
        self._await_end(server.postmaster)
        return None

    def _launch(self) -> tuple[Server, int]:
        """Start a server; gives its record and where in the log its own words begin."""
        place, account = self._home.settle()
        installation = binaries.reachable(binaries.choose(cluster.major_version(place)), account)
        cluster.remove_unfinished(place)
        if not place.exists():
            cluster.create(place, installation, account)
        cluster.refuse_other_server(place)
        if self._port is not None:
            self._home.make_password()
        mark = self._home.log.mark()
        server = ownership.launch_supervisor(self._order(place, account, installation))
        self._home.describe(address.over_socket(server))
        return server, mark

    def _order(self, place: Path, account: Account, installation: binaries.Installation) -> dict[str, Any]:
        socket_dir = str(self._home.socket_dir(account))
        settings = self._settings | self._listening(socket_dir)
        switches = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return {
            "home": str(self._home.path),
            "command": [str(installation.programs / "postgres"), "-D", str(place), *switches],
            "environment": environment(),
            "credentials": account.credentials(),
            "socket_dir": socket_dir,
            "port": self._port or SOCKET_PORT,
            "tcp": self._port is not None,
        }

    def _listening(self, socket_dir: str) -> dict[str, str]:
        return {
            "listen_addresses": "" if self._port is None else "127.0.0.1",
            "port": str(self._port or SOCKET_PORT),
            "unix_socket_directories": socket_dir,
            "unix_socket_permissions": "0700",
        }

    def _await_ready(self, server: Server, mark: int | None, deadline: float) -> str:
        password = self._home.password() if server.tcp else None
        while True:
            try:
                return greet(server, password)
            except psycopg.OperationalError as error:
                if not server.postmaster.alive():
                    raise self._ended(mark) from None
                if time.monotonic() > deadline:
                    raise self._silent(error, mark) from None
            time.sleep(0.02)

    def _ended(self, mark: int | None) -> _Ended:
        tail = self._home.log.tail(mark or 0)
        # A server that was only joined may have been on its way down: the next one is ours to start.
        try_again = mark is None or any(sign in tail for sign in GOING_AWAY)
        return _Ended(f"the PostgreSQL server of {self._home.path} ended while it started.{tail}", try_again)

    def _silent(self, error: Exception, mark: int | None) -> EmbeddedPostgresError:
        return EmbeddedPostgresError(
            f"the server of {self._home.path} gives no answer after {self._timeout:g} s ({error}). If it is "
            f"still recovering, start again with a longer timeout.{self._home.log.tail(mark or 0)}"
        )

    def _end_server(self) -> None:
        server = Server.read(self._home.path)
        if server is not None:
            server.supervisor.kill(signal.SIGTERM)
            self._await_end(server.supervisor)

    def _await_end(self, process: Process) -> None:
        gone = process.wait_gone(time.monotonic() + self._timeout)
        ownership.reap_supervisors()
        if not gone:
            raise EmbeddedPostgresError(
                f"process {process.pid} of {self._home.path} has not ended after {self._timeout:g} s. End it "
                f"yourself (kill {process.pid}).{self._home.log.tail()}"
            )

    def _server(self) -> Server:
        server = Server.read(self._home.path)
        if server is None:
            raise self._not_started()
        return server

    def _not_started(self) -> EmbeddedPostgresError:
        return EmbeddedPostgresError(f"the server of {self._home.path} was not started. Call start() first.")

    def _locked(self) -> AbstractContextManager[None]:
        return ownership.locked(self._home.path, self._timeout)


class _Claim(NamedTuple):
    """This process's entry among the owners; a forked child has a copy that is not its own."""

    pid: int
    file: Path

    def is_callers(self) -> bool:
        return self.pid == os.getpid()


class _Ended(Exception):
    """A server ended before it answered."""

    def __init__(self, text: str, try_again: bool) -> None:
        super().__init__(text)
        self.try_again = try_again


@contextmanager
def _explained(home: Home) -> Iterator[None]:
    """Turn what the operating system refuses into our error, which names the data directory."""
    try:
        yield
    except TimeoutError:
        raise EmbeddedPostgresError(
            f"another process has been starting or stopping the server of {home.path} for too long. See what "
            f"it does (the log is {home.log.path}), then try again."
        ) from None
    except OSError as error:
        raise EmbeddedPostgresError(
            f"the embedded PostgreSQL server cannot use {home.path}: {error}. Give this user the right to "
            "write there and room on the disk, or choose another data directory."
        ) from error
