"""Crashes, damage, and places that are not ours: what the embedded server survives, and what it refuses."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from durable.embedded import EmbeddedPostgres, EmbeddedPostgresError, binaries, cluster
from durable.embedded import home as home_module
from durable.embedded.account import server_account
from durable.embedded.ownership import Process
from tests.embedded.servers import (
    FAST,
    ROOT,
    Owner,
    ask,
    eventually,
    modes_above,
    refusal,
)


def test_a_crashed_server_recovers_what_was_committed(data_dir: Path) -> None:
    """After kill -9 of the server a start brings back every committed row, at the same address."""
    with EmbeddedPostgres(data_dir) as server:
        dsn, pid = server.dsn, server.pid
        with psycopg.connect(dsn) as connection:
            connection.execute("drop table if exists kept; create table kept as select 42 as answer")
        server.crash()
        assert not server.status().running
        assert server.start() == dsn
        assert ask(dsn, "select answer from kept") == 42
        assert server.pid != pid


def test_a_crash_ends_busy_connections_too(data_dir: Path) -> None:
    """A crash returns when every process of the server is gone, also those in the middle of a query."""
    with EmbeddedPostgres(data_dir, settings=FAST) as server, psycopg.connect(server.dsn) as busy:
        backend = Process.of(busy.info.backend_pid)
        assert backend is not None
        server.crash()
        assert not backend.alive()
        assert ask(server.start(), "select 1") == 1


def test_a_pid_file_that_names_a_stranger_blocks_nothing(data_dir: Path) -> None:
    """After a crash and a reboot the old process number may be another program's: the start goes on."""
    server = EmbeddedPostgres(data_dir, settings=FAST)
    server.start()
    server.crash()
    server.stop()
    pid_file = server.status().cluster_dir / cluster.PID_FILE
    _, _, rest = pid_file.read_text().partition("\n")
    pid_file.write_text(f"{os.getpid()}\n{rest}")
    with server:
        assert ask(server.dsn, "select 1") == 1


def test_a_half_made_cluster_is_cleared_away(fresh_dir: Path) -> None:
    """What a process left that was killed while it made a cluster is gone after the next start."""
    fresh_dir.mkdir(mode=0o711)
    (fresh_dir / "durable.lock").touch()
    (fresh_dir / "cluster.new-abandoned").mkdir()
    with EmbeddedPostgres(fresh_dir, settings=FAST):
        assert not list(fresh_dir.glob("cluster.new-*"))


# Refusals


def test_a_failed_initdb_leaves_nothing_half_made(fresh_dir: Path, owner_of: Callable[[Path], Owner]) -> None:
    """When the cluster cannot be written the error says so, no part stays, and a later start succeeds."""
    limited = owner_of(fresh_dir)
    limited.tell("limit 1000000")
    said = limited.ask("start")
    assert "could not make a cluster" in said
    assert "nothing was left" in said
    assert [path.name for path in fresh_dir.iterdir() if path.name.startswith("cluster")] == []
    assert owner_of(fresh_dir).ask("start").isdecimal()


def test_a_server_that_cannot_start_is_quoted(data_dir: Path) -> None:
    """An error at start shows the end of the server's log, and leaves neither server nor owner."""
    with pytest.raises(EmbeddedPostgresError, match="unrecognized configuration parameter") as caught:
        EmbeddedPostgres(data_dir, settings={"no_such_setting": "1"}).start()
    assert str(data_dir / "server.log") in str(caught.value)
    status = EmbeddedPostgres(data_dir).status()
    assert (status.running, status.owners) == (False, ())


def test_a_port_in_use_is_named(data_dir: Path) -> None:
    """A port that another program listens on is refused with PostgreSQL's own words."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert "Address already in use" in refusal(data_dir, port=taken.getsockname()[1])


def test_a_server_of_someone_else_is_left_alone(data_dir: Path) -> None:
    """A server on the cluster that we did not start is named in the refusal, and goes on running."""
    server = EmbeddedPostgres(data_dir, settings=FAST)
    server.start()
    server.stop()
    place = server.status().cluster_dir
    program = binaries.choose().programs / "postgres"
    foreign = subprocess.Popen(
        [program, "-D", place, "-c", "listen_addresses=", "-c", f"unix_socket_directories={place}"],
        stderr=subprocess.DEVNULL,
        **server_account(place).credentials(),
    )
    try:
        eventually((place / cluster.PID_FILE).exists)
        assert f"another PostgreSQL server (process {foreign.pid}) already uses {place}" in refusal(data_dir)
        assert foreign.poll() is None
    finally:
        foreign.send_signal(signal.SIGINT)
        foreign.wait()


def test_a_cluster_of_another_version_is_refused(spare_dir: Path) -> None:
    """A cluster whose major version is not installed is refused with that version and what to do."""
    with EmbeddedPostgres(spare_dir, settings=FAST) as server:
        version = server.status().cluster_dir / "PG_VERSION"
    version.write_text("9\n")
    said = refusal(spare_dir)
    assert "made by PostgreSQL 9" in said
    assert "pg_upgrade" in said


def test_a_cluster_keeps_its_own_version(fresh_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster made by an older version goes on with that version while it is installed."""
    oldest = min(binaries.installations(), key=lambda one: one.major)
    with monkeypatch.context() as patched:
        patched.setattr(binaries, "installations", lambda: [oldest])
        with EmbeddedPostgres(fresh_dir, settings=FAST):
            pass
    with EmbeddedPostgres(fresh_dir, settings=FAST) as server:
        assert server.server_version.split(".")[0] == str(oldest.major)


def test_a_damaged_cluster_is_refused(spare_dir: Path) -> None:
    """A cluster without its version file is refused and not overwritten."""
    with EmbeddedPostgres(spare_dir, settings=FAST) as server:
        version = server.status().cluster_dir / "PG_VERSION"
    version.unlink()
    assert "is damaged" in refusal(spare_dir)
    assert not version.exists()


def test_directories_that_are_not_ours_are_refused_untouched(place: Path) -> None:
    """A file, a directory with other content and another server's data are refused, and stay as they are."""
    (place / "file").touch()
    (place / "photos" / "summer").mkdir(parents=True)
    (place / "theirs" / "base").mkdir(parents=True)
    (place / "theirs" / "PG_VERSION").write_text("15\n")
    before = sorted(place.rglob("*"))
    assert "is a file" in refusal(place / "file")
    assert "not empty and holds no embedded server (it has: summer)" in refusal(place / "photos")
    assert "DATABASE_URL" in refusal(place / "theirs")
    assert sorted(place.rglob("*")) == before


def test_a_place_without_permission_is_refused(place: Path) -> None:
    """A directory that cannot be made is named, with what to do."""
    forbidden = place / "locked" / "pg"
    if ROOT:
        forbidden = Path("/proc/durable/pg")  # the one place where root may not write either
    else:
        forbidden.parent.mkdir(mode=0o500)
    said = refusal(forbidden)
    assert str(forbidden) in said
    assert "choose another data directory" in said


def test_a_lock_that_is_held_too_long_is_reported(place: Path) -> None:
    """A start that cannot get its turn says so after its timeout instead of waiting for ever."""
    (place / "pg").mkdir()
    with (place / "pg" / "durable.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "another process has been starting or stopping" in refusal(place / "pg", timeout=0.1)


def test_what_needs_a_start_says_so(place: Path) -> None:
    """Asking for the address or the version before a start tells to start."""
    server = EmbeddedPostgres(place / "pg")
    for ask_early in (lambda: server.dsn, lambda: server.pid, lambda: server.server_version):
        with pytest.raises(EmbeddedPostgresError, match=r"Call start\(\) first"):
            ask_early()


# Users and places


def test_a_private_project_works_and_stays_private(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data and programs below a directory of mode 0700 work, and no directory there changes its mode."""
    private = place / "private"
    private.mkdir(mode=0o700)
    package = _packaged_programs_in(private / "site-packages")
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.setattr(home_module, "ELSEWHERE", place / "elsewhere")
    monkeypatch.setattr(binaries, "COPIES", place / "copies")
    data_dir = private / "project" / "pg"
    data_dir.parent.mkdir()
    before = modes_above(data_dir) | modes_above(package)
    server = EmbeddedPostgres(data_dir, settings=FAST)
    try:
        program = str(ask(server.start(), "select setting from pg_config where name = 'BINDIR'"))
        assert modes_above(data_dir) | modes_above(package) == before
        where = server.status().cluster_dir
        assert Path(program).is_relative_to(place / "copies" if ROOT else private)
        assert where.is_relative_to(place / "elsewhere" if ROOT else data_dir)
        assert where.stat().st_uid == server_account(Path("/nowhere")).uid != 0
        assert str(where) in (data_dir / "README").read_text()
    finally:
        server.destroy()
    assert not where.parent.exists()
    assert not data_dir.exists()


def _packaged_programs_in(site_packages: Path) -> Path:
    spec = importlib.util.find_spec(binaries.PACKAGE)
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).parent
    installed = binaries.choose().programs.parent
    unneeded = shutil.ignore_patterns("include", "*.a")
    target = site_packages / binaries.PACKAGE
    shutil.copytree(installed, target / installed.name, ignore=unneeded)
    shutil.copytree(source.with_name(f"{source.name}.libs"), site_packages / f"{source.name}.libs")
    (target / "__init__.py").touch()
    return target


def test_a_moved_project_keeps_its_data_and_a_copy_does_not_share_them(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data that are kept elsewhere follow a project that is moved; a copied project gets none of them."""
    monkeypatch.setattr(home_module, "ELSEWHERE", place / "elsewhere")
    private = place / "private"
    private.mkdir(mode=0o700)
    with (
        EmbeddedPostgres(private / "old", settings=FAST) as server,
        psycopg.connect(server.dsn) as connection,
    ):
        connection.execute("create table kept as select 42 as answer")
    (private / "old").rename(private / "new")
    with EmbeddedPostgres(private / "new", settings=FAST) as server:
        assert ask(server.dsn, "select answer from kept") == 42
    shutil.copytree(private / "new", private / "copy")
    if ROOT:
        assert f"is a copy of {private / 'new'}" in refusal(private / "copy")
    else:
        with EmbeddedPostgres(private / "copy", settings=FAST) as copy:
            assert ask(copy.dsn, "select answer from kept") == 42


def test_a_cluster_its_user_cannot_reach_any_more_is_refused(place: Path) -> None:
    """When a parent is closed to the server's user later, the error says so, and nothing new is made."""
    project = place / "project"
    project.mkdir()
    project.chmod(0o755)
    server = EmbeddedPostgres(project / "pg", settings=FAST)
    with server:
        assert server.status().cluster_dir == project / "pg" / "cluster"
    project.chmod(0o700)
    if ROOT:
        assert "cannot get there any more" in refusal(project / "pg")
    else:
        with server:
            assert ask(server.dsn, "select 1") == 1


def test_data_of_another_user_are_refused(place: Path) -> None:
    """A cluster that belongs to a user the server cannot run under is refused with the way out."""
    held = place / "pg" / "cluster"
    held.mkdir(parents=True)
    (place / "pg" / "durable.lock").touch()
    if ROOT:
        assert "chown -R" in refusal(place / "pg")
    else:
        with pytest.raises(EmbeddedPostgresError, match="belongs to root"):
            server_account(Path("/etc"))


def test_a_squatted_socket_directory_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket directory that others can write to is never used."""
    (place / "run").mkdir()
    (place / "run").chmod(0o777)
    monkeypatch.setattr(home_module, "_run_directory", lambda: place / "run")
    assert "can be written by others" in refusal(place / "pg")
