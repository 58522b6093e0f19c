"""The claim desk: slots roll, only hot lines are asked, and a task that runs alone runs alone."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from durable import claims
from durable.claims import NOTHING, ClaimDesk, Served, Want, best_first
from durable.workflow import workflow


@workflow
async def order(ctx: object) -> None: ...


def desk(slots: int = 10, lines: tuple[int, ...] = (1, 2)) -> ClaimDesk:
    made = ClaimDesk(slots)
    made.serve({line: Served(order, "default") for line in lines})
    return made


def row(line: int = 1, *, prio: int = 5, at: float = 100.0) -> list[Any]:
    return ["t", line, 1, prio, at, {}]


def asked(want: Want) -> list[dict[str, Any]]:
    return sorted(orjson.loads(want.lines or b"[]"), key=lambda start: start["line"])


def test_each_writer_asks_for_its_share() -> None:
    """One claim never takes the slots of all writers: what it brings is worked on while the next is on its way."""
    made = ClaimDesk(5, writers=2)
    made.serve({1: Served(order, "default")})
    assert [made.wanted().number for _ in range(3)] == [3, 2, 0]


def test_claimed_tasks_come_best_first() -> None:
    """Whatever order the store gives them in: by priority, then by age."""
    rows = [row(prio=5, at=2.0), row(prio=5, at=1.0), row(prio=0, at=3.0)]
    assert [(task.prio, task.ready_at) for task in best_first(rows)] == [(0, 3.0), (5, 1.0), (5, 2.0)]


def test_free_slots_are_asked_for_once() -> None:
    """What is asked for counts as taken until the answer comes."""
    made = desk(10)
    want = made.wanted()
    assert (want.number, made.free) == (10, 0)
    assert made.wanted() == NOTHING
    made.answered(want, [row()] * 4)
    assert (made.running, made.free) == (4, 6)


def test_a_task_that_leaves_frees_its_slot() -> None:
    made = desk(2)
    made.answered(made.wanted(), [row(), row()])
    assert made.wanted() == NOTHING
    made.left()
    assert made.wanted().number == 1


def test_no_claim_is_larger_than_the_most() -> None:
    assert desk(100_000).wanted().number == claims.MOST_AT_ONCE


def test_lines_that_had_too_little_are_not_asked_again_until_hinted() -> None:
    """A short answer means that nothing is left there; a hint for one line asks only that line."""
    made = desk()
    made.answered(made.wanted(), [row()])
    assert made.wanted() == NOTHING
    assert made.heat({2, 77}) is True
    assert asked(made.wanted()) == [{"line": 2}]


def test_a_hint_that_comes_while_a_claim_is_under_way_is_kept() -> None:
    """The claim may have looked before the work was there."""
    made = desk()
    want = made.wanted()
    made.heat({2})
    made.answered(want, [])
    assert asked(made.wanted()) == [{"line": 2}]


def test_hints_for_lines_of_others_are_ignored() -> None:
    made = desk()
    made.answered(made.wanted(), [])
    assert made.heat({77}) is False
    assert made.wanted() == NOTHING


def test_a_full_answer_says_where_the_next_claim_begins() -> None:
    """The first row of each line; lines without one begin at the start."""
    made = desk(2)
    first = row(1, prio=3, at=50.0)
    made.answered(made.wanted(), [row(1, prio=5, at=60.0), first])
    made.left()
    assert asked(made.wanted()) == [{"line": 1, "prio": 3, "at": 50.0, "id": first[0]}, {"line": 2}]


def test_a_hint_forgets_where_its_line_began() -> None:
    """Work that came with a better priority or an older time must be found."""
    made = desk(2)
    made.answered(made.wanted(), [row(1), row(2)])
    made.left()
    made.heat({1})
    starts = asked(made.wanted())
    assert starts[0] == {"line": 1}
    assert "at" in starts[1]


def test_a_lost_answer_gives_its_slots_back() -> None:
    made = desk(3)
    made.answered(made.wanted(), None)
    assert made.free == 3


@pytest.mark.parametrize(("slots", "ahead"), [(1, 1), (2, 0)])
def test_one_slot_with_brisk_tasks_asks_for_one_more(slots: int, ahead: int) -> None:
    """After some brisk ones in a row, and until one is not."""
    made = desk(slots)
    for _ in range(8):
        want = made.wanted()
        assert want.number <= slots
        for _ in made.answered(want, [row()] * want.number):
            made.left(0.001)
    made.answered(made.wanted(), [row()] * slots)
    assert made.wanted().number == ahead
    made.left(1.0)
    assert made.free + made.running == slots - ahead


def test_a_closed_desk_asks_for_nothing() -> None:
    made = desk()
    made.open = False
    assert made.wanted() == NOTHING


def test_a_task_that_runs_alone_runs_alone() -> None:
    """The desk runs dry first, asks for one, and fills up again only after it has left."""
    made = desk(2)
    made.answered(made.wanted(), [row(), row()])
    made.heat({-1})
    made.left()
    assert made.wanted() == NOTHING
    made.left()
    want = made.wanted()
    assert (want.number, want.alone, asked(want)) == (1, True, [{"line": -2}, {"line": -1}])
    made.answered(want, [row(-1)])
    made.heat({1})
    assert made.wanted() == NOTHING
    made.left()
    assert made.wanted().alone is True


def test_a_desk_that_cannot_run_dry_goes_on_as_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long steps must not starve everyone for the sake of a lone task: it is tried again later."""
    clock = [0.0]
    monkeypatch.setattr(claims.time, "monotonic", lambda: clock[0])
    made = desk(2)
    made.answered(made.wanted(), [row(), row()])
    made.heat({-1})
    made.left()
    clock[0] = 11.0
    assert made.wanted().number == 1
    made.heat({-1})
    assert made.wanted().alone is False


def test_a_lone_line_without_a_task_costs_nothing() -> None:
    """Someone else took it: the desk fills up again."""
    made = desk(2)
    made.heat({-1})
    made.answered(made.wanted(), [])
    want = made.wanted()
    assert (want.number, want.alone) == (2, False)
