"""Owners of the embedded server come and go, and are killed; the last one takes it along."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from durable.embedded import EmbeddedPostgres, EmbeddedPostgresError
from tests.embedded.servers import (
    FAST,
    Owner,
    ask,
    eventually,
    processes_of,
    processes_that_name,
)


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
