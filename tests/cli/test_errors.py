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


NONSENSE: dict[str, tuple[bytes, str]] = {
    "binary.yaml": (b"\x9c\x00\xff", "is not a text: byte 0 is not UTF-8"),
    "binary.json": (b"{\xff}", "is not a text: byte 1 is not UTF-8"),
    "empty.yaml": (b"", "empty.yaml:1:1: a workflow is a mapping with a name and tasks"),
    "list.yaml": (b"- 1", "list.yaml:1:1: a workflow is a mapping"),
    "deep.json": (b"[" * 5000, "deep.json:1:101: nested deeper than 100 levels"),
    "huge.yaml": (b"#" * (17 * 1024 * 1024), "huge.yaml:1:1: the document is over 16777216 characters"),
    "notes.txt": (b"hello", "not a workflow: its name ends in none of .yaml, .yml, .json and .py"),
}


@pytest.mark.parametrize("verb", ["check", "deploy", "graph", "simulate", "run"])
def test_a_file_that_is_no_workflow_is_refused_in_one_line(bare: Command, here: Path, verb: str) -> None:
    """Missing, a directory, binary, empty, too deep, too large, or of another kind: where, and what is wrong."""
    (here / "folder.yaml").mkdir()
    for name, (content, complaint) in NONSENSE.items():
        (here / name).write_bytes(content)
        refused(bare, verb, name, complaint)
    refused(bare, verb, "folder.yaml", "folder.yaml: cannot be read: Is a directory")
    refused(bare, verb, "absent.yaml", "absent.yaml: cannot be read: No such file or directory")


def refused(bare: Command, verb: str, name: str, complaint: str) -> None:
    said = bare(verb, name, *(["--database-url", NOWHERE] if verb in ("deploy", "run") else []))
    assert (said.code, said.out, len(said.err.splitlines())) == (4, "", 1), said.err
    assert said.err.startswith("error: " if verb == "check" else "durable: ")
    assert complaint in said.err
    assert name in said.err


def test_a_python_file_that_cannot_be_run_is_refused(bare: Command, here: Path) -> None:
    """One that is no Python, fails, ends the process or holds nothing, whichever verb looks at it."""
    for name, text, complaint in [
        ("no_python.py", b"\x00\x01", "SyntaxError"),
        ("failing_file.py", b"1/0", "ZeroDivisionError: division by zero"),
        ("leaving_file.py", b"import sys; sys.exit(3)", "SystemExit: 3"),
        ("hollow_file.py", b"x = 1", "builds no workflow"),
    ]:
        (here / name).write_bytes(text)
        for verb in ("check", "deploy", "graph", "simulate", "run"):
            said = bare(verb, name, *(["--database-url", NOWHERE] if verb in ("deploy", "run") else []))
            assert said.code in (2, 4)
            assert (said.out, len(said.err.splitlines())) == ("", 1), said.err
            assert complaint in said.err


def test_values_that_cannot_be_read_are_refused_before_anything_else(bare: Command, here: Path) -> None:
    """The option, what was given, and what it should look like."""
    (here / "ok.yaml").write_text("name: ok\ntasks:\n  a: {task_id: a, operator_type: task, function: tools.echo}\n")
    (here / "half.json").write_text('{"a": ')
    (here / "list.json").write_text("[1]")
    (here / "raw.json").write_bytes(b"\xff\xfe")
    run = ("run", "ok.yaml", "--database-url", NOWHERE, "--input")
    wrong(bare(*run, "@absent.json"), 2, "--input @absent.json cannot be read: No such file")
    wrong(bare(*run, "@half.json"), 2, "--input @half.json is not JSON", "line 1 column 7")
    wrong(bare(*run, "@list.json"), 2, "'@list.json' is not a JSON object")
    wrong(bare(*run, "@raw.json"), 2, "--input @raw.json is not a text: byte 0")
    wrong(bare(*run, "{"), 2, "--input is not JSON")
    wrong(bare(*run, "word"), 2, "name=value")
    wrong(bare("run", "ok.yaml", "--wait", "--follow"), 2, "one of --wait and --follow")
    wrong(bare("run", "ok", "--allow", "x"), 2, "--allow is for a file")
    wrong(bare("run", str(here)), 2, "is a directory")
    wrong(bare("graph", "ok.yaml", "--svg", "--mermaid"), 2, "not both")
    wrong(bare("simulate", "ok.yaml", "--outcome", "a=maybe"), 2, "task=fail or task=succeed")
    wrong(bare("simulate", "ok.yaml", "--value", "a"), 2, "task=JSON")
    wrong(bare("simulate", "ok.yaml", "--value", "a={"), 2, "--value a= is not JSON")
    wrong(bare("simulate", "ok.yaml", "--value", "b=1"), 2, "no task 'b' in 'ok'; there are a")
    wrong(bare("runs", "decide", "x", "y"), 2, "exactly one of --ran JSON, --again and --fail WHY")
    wrong(bare("runs", "decide", "x", "y", "--ran", "{"), 2, "--ran is not JSON")
    wrong(bare("runs", "list", "--since", "yesterday"), 2, "--since 'yesterday'", "2026-01-31T09:00:00Z")
    wrong(bare("runs", "list", "--limit", "0"), 2, "--limit")
    wrong(bare("emit", "x", "--payload", "@absent"), 2, "--payload @absent cannot be read")
    wrong(bare("worker", "ok.yaml"), 2, "durable deploy ok.yaml")


def test_every_verb_that_needs_the_store_says_when_it_is_not_there(bare: Command, here: Path) -> None:
    """The same words and the same code, whatever was to be done."""
    (here / "ok.yaml").write_text("name: ok\ntasks:\n  a: {task_id: a, operator_type: task, function: tools.echo}\n")
    run = "0190b6c4-7e1a-7cc3-9f6e-2d1f0a3b4c5d"
    one = [["runs", verb, run] for verb in ("show", "watch", "cancel", "retry", "resume", "fork", "why")]
    others = [
        ["run", "ok.yaml"],
        ["run", "ok"],
        ["deploy", "ok.yaml"],
        ["start", "ok"],
        ["emit", "x"],
        ["secrets", "list"],
    ]
    for words in [*one, *others, ["runs", "list"], ["secrets", "rotate"], ["secrets", "remove", "x"]]:
        wrong(bare(*words, "--database-url", NOWHERE), 3, "cannot reach PostgreSQL at 127.0.0.1:1/shop", "Check that")


def test_what_the_store_does_not_have_is_refused_by_name(durable: Command) -> None:
    """Runs, states, workflows, versions and secrets that nobody knows."""
    nobody = "0190b6c4-7e1a-7cc3-9f6e-2d1f0a3b4c5d"
    wrong(durable("runs", "why", nobody), 4, f"no run {nobody}")
    wrong(durable("runs", "resume", nobody), 4, f"no run {nobody}")
    wrong(durable("runs", "why", "abc"), 4, "'abc' is not a run id")
    wrong(durable("runs", "list", "--state", "nonsense"), 4, "no state 'nonsense'", "ready, running, parked")
    wrong(durable("run", "absent"), 4, "absent")
    wrong(durable("start", "absent"), 4, "absent")
