"""Parking: a copy of a task takes itself for parked only when the park that it sent last was accepted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from durable.clock import Clock
from durable.parking import Parking, Phase
from durable.writer import Entry


class Writer:
    """Keeps what it is given until the test answers."""

    def __init__(self) -> None:
        self.parks: list[Entry] = []

    def put(self, entry: Entry) -> None:
        if entry.park is not None:
            self.parks.append(entry)

    def put_lazily(self, entry: Entry) -> None:
        """Wait rows are not looked at here."""

    def kick(self) -> None:
        """Nothing is sent."""


class Copy:
    """A task with two branches, each of which waits for an event."""

    def __init__(self) -> None:
        self.writer, self.parked = Writer(), 0
        loop = asyncio.get_running_loop()
        self.parking = Parking("t", "t", 1, 0, self.writer, Clock(), loop, self._on_parked)  # type: ignore[arg-type]
        self.parking.busy = 2
        self.branches = [asyncio.create_task(self.parking.outcome(key, {}, None)) for key in ("a", "b")]

    def _on_parked(self) -> None:
        self.parked += 1

    async def sent(self, number: int) -> Entry:
        """The park of this number, handed in within a few turns of the loop."""
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(self.writer.parks) == number
        return self.writer.parks[-1]


@pytest.fixture
async def copy() -> Any:
    made = Copy()
    yield made
    made.parking.kill()
    await asyncio.gather(*made.branches, return_exceptions=True)


async def test_an_accepted_park_parks_once(copy: Copy) -> None:
    """The answer to the only park is the park."""
    (await copy.sent(1)).settle()
    assert (copy.parking.phase, copy.parked) == (Phase.PARKED, 1)


async def test_the_answer_to_a_refused_park_is_not_that_of_the_next(copy: Copy) -> None:
    """What woke the task frees no branch, so that it parks again before the first answer is through: the store may
    refuse the second park too, and only a copy that still waits for its answer hears of it."""
    first = await copy.sent(1)
    copy.parking.park_refused(1, None, [["a", None, None]])
    second = await copy.sent(2)
    first.settle()
    assert (copy.parking.phase, copy.parked) == (Phase.PARKING, 0)
    copy.parking.park_refused(2, None, [["a", {"payload": 7}, None]])
    second.settle()
    assert (copy.parking.phase, copy.parked) == (Phase.LIVE, 0)
    assert await copy.branches[0] == {"payload": 7}
    copy.parking.done()
    third = await copy.sent(3)
    third.settle()
    assert (copy.parking.phase, copy.parked) == (Phase.PARKED, 1)


async def test_the_answer_to_a_park_that_a_claim_overtook_counts_for_nothing(copy: Copy) -> None:
    """On another channel the task was claimed again; its next park is another one."""
    first = await copy.sent(1)
    copy.parking.resume(2, 1, None, None)
    second = await copy.sent(2)
    first.settle()
    assert (copy.parking.phase, copy.parked) == (Phase.PARKING, 0)
    second.settle()
    assert (copy.parking.phase, copy.parked) == (Phase.PARKED, 1)
