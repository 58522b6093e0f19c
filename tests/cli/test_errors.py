"""Errors as a person meets them: an exit code that a script can tell apart, and a line or two that help."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

Command = Callable[..., Any]

NOWHERE = "postgresql://someone:s3cret@127.0.0.1:1/shop"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def wrong(said: Any, code: int, *words: str) -> None:
    assert (code, "") == (said.code, said.out)
    assert said.err.startswith("durable: ")
    assert 1 <= len(said.err.splitlines()) <= 2
    for word in words:
        assert word in said.err
    assert "Traceback" not in said.err
    assert "s3cret" not in said.err


def test_wrong_use_exits_with_2(bare: Command) -> None:
    """A verb or option that does not exist, a missing argument, a value that cannot be read."""
    wrong(bare("runs", "lst"), 2, "No such command 'lst'", "durable runs --help")
    wrong(bare("worker"), 2, "MODULE")
    wrong(bare("worker", "m", "--slots", "0"), 2, "--slots")
    wrong(bare("start", "x", "--input", "word"), 2, "name=value")
    wrong(bare("start", "x", "--at", "noon"), 2, "--at 'noon'")
    wrong(bare("emit", "x", "--payload", "{"), 2, "--payload is not JSON")
    wrong(bare("dev", "--input", "a=1"), 2, "--run")


def test_a_store_that_cannot_be_reached_exits_with_3(bare: Command) -> None:
    """It says where it looked and why it failed, and never shows a password."""
    wrong(bare("runs", "list", "--database-url", NOWHERE), 3, "127.0.0.1:1/shop", "refused")
    wrong(bare("db", "migrate", "--database-url", NOWHERE), 3, "127.0.0.1:1/shop")


def test_a_url_that_cannot_be_read_is_not_repeated(bare: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may hold a password, so it is described instead."""
    wrong(bare("runs", "list", "--database-url", "postgres:/someone:s3cret@host"), 2, "postgresql://user:password@host")
    monkeypatch.setenv("DURABLE_DATABASE_URL", "postgresql://someone:s3cret@host/db?nonsense=1")
    wrong(bare("runs", "list"), 2, "DURABLE_DATABASE_URL")


def test_a_setting_that_cannot_be_read_is_named(bare: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment variable, and what is wrong with it."""
    monkeypatch.setenv("DURABLE_SLOTS", "many")
    wrong(bare("runs", "list", "--database-url", NOWHERE), 2, "DURABLE_SLOTS", "'many'")


def test_a_run_that_does_not_exist_exits_with_4(durable: Command) -> None:
    """Every verb about a run says so in the same words."""
    nobody = "0190b6c4-7e1a-7cc3-9f6e-2d1f0a3b4c5d"
    for verb in (["show"], ["watch"], ["cancel"], ["retry"], ["fork"], ["decide", "--again"]):
        extra = ["step"] if verb[0] == "decide" else []
        wrong(durable("runs", *verb, nobody, *extra), 4, f"no run {nobody}")
    wrong(durable("runs", "show", "abc"), 4, "'abc' is not a run id")


def test_a_database_without_a_store_says_how_to_make_one(bare: Command, durable_dsn: str) -> None:
    """Until it is migrated nothing works there; after that everything does; migrating again changes nothing."""
    with psycopg.connect(durable_dsn, autocommit=True) as connection:
        connection.execute("drop schema durable cascade")
    wrong(bare("runs", "list", "--database-url", durable_dsn), 3, "no store yet", "durable db migrate")
    for _ in range(2):
        migrated = bare("db", "migrate", "--database-url", durable_dsn)
        assert (migrated.code, "is at version" in migrated.out) == (0, True)
    assert bare("runs", "list", "--database-url", durable_dsn).code == 0


def test_the_url_is_printed_where_it_is_asked_for(bare: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """The option wins over the environment; only this verb shows a password."""
    monkeypatch.setenv("DURABLE_DATABASE_URL", NOWHERE)
    assert bare("db", "url") == (0, f"{NOWHERE}\n", "")
    assert bare("db", "url", "--database-url", "dbname=x").out == "dbname=x\n"
    assert '"source": "DURABLE_DATABASE_URL"' in bare("db", "url", "--json").out


def test_a_worker_says_what_is_wrong_with_its_modules(bare: Command, here: Path, durable_dsn: str) -> None:
    """A module that is not there, one that fails, one without workflows, and two workflows of one name."""
    (here / "faulty.py").write_text("x = 1\nnot_there()\n")
    (here / "lacking.py").write_text("import nowhere_at_all\n")
    (here / "misspelt.py").write_text("def f(:\n")
    (here / "empty.py").write_text("")
    for name in ("one", "two"):
        (here / f"{name}.py").write_text("from durable import workflow\n@workflow\nasync def same(ctx): pass\n")
    wrong(bare("worker", "not_here"), 2, "no module 'not_here'", str(here))
    wrong(bare("worker", "not/here.py"), 2, "no file not/here.py")
    wrong(bare("worker", "faulty"), 2, "NameError", "faulty.py, line 2")
    wrong(bare("worker", "lacking"), 2, "No module named 'nowhere_at_all'", "lacking.py, line 1")
    wrong(bare("worker", "misspelt.py"), 2, "SyntaxError", "misspelt.py, line 1")
    wrong(bare("worker", "empty"), 2, "no workflow in empty")
    wrong(bare("worker", "one:other"), 2, "no workflow 'other'; it has same")
    wrong(bare("worker", "one", "two"), 2, "the same name: same")
    wrong(bare("worker", "one", "--database-url", NOWHERE), 3, "127.0.0.1:1/shop")


def test_help_needs_nothing_of_the_runtime() -> None:
    """Help is there at once: the runtime and its drivers are imported by the verbs that need them."""
    code = "import sys, durablectl.main as m; m.run(['--help']); print({'durable', 'psycopg'} & {*sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    assert done.stdout.strip().endswith("set()")
    assert "Start a run and print its id" in done.stdout
