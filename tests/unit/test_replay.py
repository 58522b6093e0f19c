"""Replay: records are given back by name, in their one recorded order, and nothing new starts before."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable import journal
from durable.errors import Diverged
from durable.journal import Record, Replay


def records(*names: str, kind: str = "step") -> list[Record]:
    return [Record(pos, kind, name, pos) for pos, name in enumerate(names)]


async def test_records_come_back_by_name_in_order() -> None:
    replay = Replay("r", records("a", "b"))
    assert (await replay.take("a")).body == 0
    assert not replay.over
    assert (await replay.take("b")).body == 1
    assert replay.over
    assert await replay.take("c") is None


@given(st.permutations(["a", "b", "c", "d", "e"]))
def test_branches_see_the_recorded_order_whoever_asks_first(order: list[str]) -> None:
    """Branches that all ask at once go on in the order of the journal, one after the other."""

    async def ask() -> list[str]:
        replay, seen = Replay("r", records("a", "b", "c", "d", "e")), []

        async def branch(name: str) -> None:
            await replay.take(name)
            seen.append(name)

        await asyncio.gather(*(branch(name) for name in order))
        return seen

    assert asyncio.run(ask()) == ["a", "b", "c", "d", "e"]


async def test_a_new_step_waits_until_the_past_is_used_up() -> None:
    """A branch that is past its records must not run ahead of one that is not."""
    replay = Replay("r", records("a", "b"))
    new = asyncio.create_task(replay.take("new"))
    await replay.take("a")
    await asyncio.sleep(0)
    assert not new.done()
    await replay.take("b")
    assert await new is None


async def test_code_that_asks_for_another_step_diverges(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error shows both: what the journal holds, and what the workflow asked for."""
    monkeypatch.setattr(journal, "PATIENCE", 0.01)
    replay = Replay("r1", records("a", "charge"))
    await replay.take("a")
    with pytest.raises(Diverged) as caught:
        await replay.take("ship")
    for said in ("run r1", "holds step 'charge' at position 1", "asked for 'ship'", "fork it"):
        assert said in str(caught.value)


async def test_code_that_returns_early_diverges() -> None:
    """A record that nobody asked for is a divergence, not a result."""
    replay = Replay("r1", records("a", "charge"))
    await replay.take("a")
    with pytest.raises(Diverged, match=r"holds step 'charge' at position 1, but the workflow returned"):
        replay.finish()


async def test_slow_code_is_no_divergence(monkeypatch: pytest.MonkeyPatch) -> None:
    """While branches ask or read, the others wait as long as it takes."""
    monkeypatch.setattr(journal, "PATIENCE", 0.02)
    replay = Replay("r", records("a", "b"))
    waiting = asyncio.create_task(replay.take("b"))
    await asyncio.sleep(0)
    replay.reading = 1
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await replay.take("a")
    assert (await waiting).name == "b"


def retry(pos: int, void: int | None) -> Record:
    return Record(pos, "retry", "retry", {"void": void})


async def taken(replay: Replay, *names: str) -> list[Any]:
    return [record and record.body for record in [await replay.take(name) for name in names]]


async def test_a_retry_takes_the_failure_away_with_its_attempts() -> None:
    """What came before stays, the failed step is performed again, with all its attempts."""
    past = [*records("a", "ship", "ship"), retry(3, 2)]
    replay = Replay("r", past)
    assert await taken(replay, "a", "ship") == [0, None]
    replay.finish()


async def test_what_was_recorded_after_a_voided_failure_is_offered_and_not_demanded() -> None:
    """Another branch may still ask for its record; nobody has to."""
    past = [*records("a", "ship", "later"), retry(3, 1)]
    asked = Replay("r", past)
    assert await taken(asked, "a", "ship", "later") == [0, None, 2]
    ignored = Replay("r", past)
    assert await taken(ignored, "a", "ship") == [0, None]
    ignored.finish()


async def test_a_second_retry_voids_the_second_failure() -> None:
    """Retries apply in the order in which they were asked for."""
    past = [*records("a", "ship"), retry(2, 1), Record(3, "failed", "ship", 3), retry(4, 3)]
    assert await taken(Replay("r", past), "a", "ship") == [0, None]


async def test_a_retry_that_names_nothing_changes_nothing() -> None:
    """A run that was cancelled has no failure to take away."""
    replay = Replay("r", [*records("a", "b"), retry(2, None)])
    assert await taken(replay, "a", "b", "c") == [0, 1, None]


def retry_all(pos: int, *voids: int) -> Record:
    return Record(pos, "retry", "retry", {"void": voids[0], "voids": list(voids)})


async def test_a_retry_takes_all_the_failures_that_it_names() -> None:
    """Each is performed again; what succeeded beside them is offered."""
    past = [*records("a", "ship", "fine", "bill"), retry_all(4, 1, 3)]
    assert await taken(Replay("r", past), "a", "ship", "fine", "bill") == [0, None, 2, None]


async def test_a_retry_may_name_a_failure_that_an_earlier_one_left_on_offer() -> None:
    """A failure that was taken over from before the first retry is taken back by the second."""
    past = [*records("a", "ship", "bill"), retry(3, 1), Record(4, "step", "ship", 4), retry(5, 2)]
    assert await taken(Replay("r", past), "a", "ship", "bill") == [0, 4, None]


async def test_a_replay_has_caught_up_when_the_last_taker_has_its_record() -> None:
    """A record that is on its way to a branch has not happened again yet."""
    replay = Replay("r", records("a", "b"))
    waiting = asyncio.create_task(replay.take("b"))
    await asyncio.sleep(0)
    await replay.take("a")
    assert not replay.caught_up
    await waiting
    assert replay.caught_up
