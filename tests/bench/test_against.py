"""Laws of the comparison with other systems, none of which is needed here. No time is ever asserted."""

from __future__ import annotations

import ast
import dataclasses
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from bench.__main__ import perform
from bench.against import contest as contests
from bench.against import rivals
from bench.against.contest import Contest, Plays, Row, as_url
from bench.against.lines import BARE, COMPARED, LINES, Goal, Line, Play, at_most, times
from bench.against.rivals import RIVALS, Environment, Rival, Unavailable
from bench.against.table import cells
from bench.result import Result
from bench.sizes import TINY
from bench.stage import Stage
from durable.testing.databases import Databases

SIZES = dataclasses.replace(TINY, in_flight=((2, 500), (2, 10), (2, 1)))
THEIRS = {line.theirs: 2.0 for line in LINES}
LINE = Line("W3", "start to result", "p50 ms", "absurd", "p50 ms", Play("start_to_result", lambda sizes: {}))
OURS = {"p50 ms": 3.0}


@pytest.fixture
async def stage(durable_databases: Databases) -> AsyncIterator[Stage]:
    bare = durable_databases.create()
    yield Stage(durable_databases, durable_databases.url("postgres"), bare, SIZES)
    durable_databases.drop(bare)


class Fake:
    """Plays of a rival that is not there; keeps what it was asked for."""

    def __init__(self, error: Unavailable | None = None):
        self.asked: list[str] = []
        self._error = error

    async def __call__(self, url: str, play: str, given: dict[str, Any]) -> dict[str, float]:
        self.asked.append(play)
        if self._error is not None:
            raise self._error
        return THEIRS


async def ours(bench: str, stage: Stage, cases: int | None) -> list[Result]:
    return [Result(bench, "start to result, one step", OURS)]


def contest(monkeypatch: pytest.MonkeyPatch, plays: Plays, *lines: Line) -> Contest:
    monkeypatch.setattr(contests, "LINES", lines or (LINE,))
    return Contest("W3", ours, {"absurd": plays}, {})


@pytest.mark.parametrize("bench", COMPARED)
async def test_every_line_finds_its_number_among_ours(stage: Stage, bench: str) -> None:
    """Each line names a case and a number that our benchmark gives, so a renamed case cannot drop a budget."""
    held = Contest(bench, perform, dict.fromkeys(RIVALS, Fake()), {})
    await held.round(stage)
    assert [line for line in LINES if line.bench == bench] == [row.line for row in held.rows]
    assert [""] * len(held.rows) == [row.reason for row in held.rows]
    assert all(len(row.ours) == len(row.theirs) == 1 and row.ratio is not None for row in held.rows)


@pytest.mark.parametrize("line", [line for line in LINES if line.play], ids=lambda line: f"{line.bench}-{line.rival}")
def test_every_play_is_one_that_its_runner_can_do(line: Line) -> None:
    """A line asks a rival's runner only for what the runner defines, with arguments that it takes."""
    assert line.play is not None
    functions = {node.name: node.args for node in _tree(line.rival).body if isinstance(node, ast.AsyncFunctionDef)}
    taken = [argument.arg for argument in functions[line.play.name].args]
    assert {"url", *line.play.given(SIZES)} <= set(taken)


@pytest.mark.parametrize("name", RIVALS)
def test_a_runner_imports_nothing_of_ours(name: str) -> None:
    """A runner lives in its rival's environment: what it imports is standard, the rival's, or beside it."""
    found = {package for tree in (_tree(name), _parsed("play")) for package in _imported(tree)}
    assert not found & {"durable", "interpreter", "highway_dsl", "scheduler", "durablectl", "bench", "tests"}


async def test_several_lines_of_one_play_need_it_once_a_round(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that read different numbers of one play share it."""
    plays = Fake()
    await contest(monkeypatch, plays, LINE, dataclasses.replace(LINE, goal=times(2))).round(stage)
    assert plays.asked == ["start_to_result"]


async def test_a_rival_that_fails_is_a_reason_beside_our_number(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes wrong with a rival never costs us ours, is told, and is not tried again."""
    plays = Fake(Unavailable("out of order"))
    held = contest(monkeypatch, plays)
    await held.round(stage)
    await held.round(stage)
    assert [(r.ours, r.theirs, r.reason, r.reached) for r in held.rows] == [([3.0, 3.0], [], "out of order", None)]
    assert plays.asked == ["start_to_result"]


async def test_a_rival_that_cannot_be_set_up_is_a_reason_beside_our_number(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An absent rival keeps its lines, with the reason in the place of its numbers."""
    monkeypatch.setattr(contests, "LINES", (LINE,))
    held = Contest("W3", ours, {}, {"absurd": "no such package"})
    await held.round(stage)
    assert (held.rows[0].ours, held.rows[0].reason) == ([3.0], "no such package")
    assert cells(held.rows[0])[-1] == "not measured: no such package"


async def test_a_case_that_this_size_does_not_have_is_a_reason(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line without a number of ours asks nothing of the rival."""
    plays = Fake()
    held = contest(monkeypatch, plays, dataclasses.replace(LINE, case="another case"))
    await held.round(stage)
    assert (held.rows[0].ours, plays.asked) == ([], [])
    assert "another case" in held.rows[0].reason


async def test_a_play_that_takes_long_is_played_once(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rounds after it go on without it, and its one number counts."""
    monkeypatch.setattr(contests, "REPEATED_UNDER", 0.0)
    plays = Fake()
    held = contest(monkeypatch, plays)
    await held.round(stage)
    await held.round(stage)
    assert (plays.asked, held.rows[0].ours, held.rows[0].theirs) == (["start_to_result"], [3.0, 3.0], [2.0])


async def test_a_rival_gets_a_database_with_nothing_of_ours_in_it(stage: Stage) -> None:
    """Neither our tables nor those of another rival are there, and it is gone afterwards."""
    async with stage.empty_database() as dsn, await psycopg.AsyncConnection.connect(dsn) as connection:
        found = await connection.execute("select count(*) from pg_namespace where nspname = 'durable'")
        assert await found.fetchone() == (0,)
    with pytest.raises(psycopg.OperationalError):
        await psycopg.AsyncConnection.connect(dsn)


@pytest.mark.parametrize(
    ("goal", "ratio", "reached"),
    [(times(25), 25, True), (times(25), 24.9, False), (at_most(0.5), 0.5, True), (at_most(0.5), 0.51, False)],
)
def test_a_goal_is_reached_on_its_own_side_of_the_bound(goal: Goal, ratio: float, reached: bool) -> None:
    """A rate must be so many times theirs, a time at most such a part of theirs."""
    assert reached == goal.reached(ratio)


def test_medians_of_the_rounds_are_compared() -> None:
    """One noisy round moves neither side."""
    row = Row(dataclasses.replace(LINE, goal=at_most(0.5)), "a case", [1.0, 2.0, 90.0], [8.0, 4.0, 1.0])
    assert (row.ratio, row.reached) == (0.5, True)
    assert cells(row)[3:] == ("2", "4", "absurd", "0.5", "<= 0.5", "reached")


@pytest.mark.parametrize(
    "dsn",
    [
        "user=durable dbname=bench host=/run/a-folder/pg port=5433",
        "user=a password='p@ss/w:rd' dbname='with space' host=localhost port=5432",
        "user=a dbname=b host=localhost sslmode=disable",
    ],
)
def test_a_url_says_the_same_as_the_connection_string(dsn: str) -> None:
    """Some clients read only URLs: nothing is lost on the way."""
    assert conninfo_to_dict(dsn) == conninfo_to_dict(as_url(dsn))


async def test_the_last_json_line_of_a_runner_is_its_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rival may print what it likes before it."""
    fake = _environment(tmp_path, monkeypatch, 'import sys; print("hello"); print(\'{"x": %d}\' % len(sys.argv))')
    assert await fake.play("url", "a play", {"count": 1}) == {"x": 4}


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("raise ValueError('no such table')", "ValueError: no such table"),
        ("raise SystemExit(3)", "ended with code 3"),
        ("print('nothing')", "gave no numbers"),
    ],
)
async def test_a_runner_that_fails_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, reason: str
) -> None:
    """The last thing it complained of is the reason."""
    with pytest.raises(Unavailable, match=reason):
        await _environment(tmp_path, monkeypatch, script).play("url", "a play", {})


async def test_an_environment_that_cannot_be_made_says_why_and_is_tried_again(tmp_path: Path) -> None:
    """A half-made environment never counts as one."""
    environment = Environment(Rival("nobody", ("./nowhere-at-all",), ()), tmp_path)
    for _ in range(2):
        with pytest.raises(Unavailable, match="nowhere-at-all"):
            await environment.ready()


def test_the_bare_server_is_a_rival_of_every_comparison() -> None:
    """The budgets that are ratios to the bare limits are judged beside the others, whoever takes part."""
    assert BARE in {line.rival for line in contests.lines_of("W1", [])}


def _environment(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Environment:
    monkeypatch.setattr(rivals, "RUNNERS", folder)
    (folder / "fake_runner.py").write_text(script)
    python = folder / "venv-fake" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    return Environment(Rival("fake", (), ()), folder)


def _tree(rival: str) -> ast.Module:
    return _parsed(f"{rival}_runner")


def _parsed(name: str) -> ast.Module:
    return ast.parse((rivals.RUNNERS / f"{name}.py").read_text())


def _imported(tree: ast.Module) -> set[str]:
    names = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    names |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    return {name.partition(".")[0] for name in names}
