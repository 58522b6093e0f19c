"""Connections break at any moment: a write whose answer is lost is applied once, and the worker finds out."""

from __future__ import annotations

import asyncio
import random
import time

import psycopg
import pytest

from durable.link import Link
from tests.faults.fleet import eventually
from tests.faults.scene import Scene
from tests.faults.wire import Wire

CUTS = 80
SESSIONS = "select pid from pg_stat_activity where application_name like 'durable%:%' and datname = current_database()"


@pytest.mark.parametrize("seed", [1, 2])
def test_ended_sessions_cost_no_run_and_repeat_no_step(scene: Scene, seed: int) -> None:
    """An administrator ends sessions of the workers at random: flushes, passes, beats, listeners, transactions."""
    chance = random.Random(seed)
    scene.begin(scene.fleet.start(lease=30), scene.fleet.start(lease=30))
    scene.start_mixture("ended", 4)
    with psycopg.connect(scene.dsn, autocommit=True) as admin:
        for _ in range(CUTS):
            pids = [row[0] for row in admin.execute(SESSIONS)]
            if pids:
                admin.execute("select pg_terminate_backend(%s)", (chance.choice(pids),))
            time.sleep(chance.uniform(0, 0.08))
    scene.finish()


@pytest.mark.parametrize("seed", [1, 2])
def test_a_write_whose_answer_was_lost_is_applied_once(scene: Scene, seed: int) -> None:
    """The server has committed a flush or a pass, and the answer never arrives: it is sent again under its number,
    counts once, and what the worker holds is found again."""
    wire = Wire(scene.dsn, seed, lose=0.15)
    try:
        scene.begin(scene.fleet.start(dsn=wire.dsn, lease=30), scene.fleet.start(dsn=wire.dsn, lease=30))
        scene.start_mixture("lost", 4)
        scene.finish(60)
        eventually(lambda: wire.lost > 20, "enough answers were lost")
    finally:
        wire.close()


def test_an_answer_in_pieces_is_one_answer(scene: Scene) -> None:
    """The end of an answer comes alone, after the rest: nobody waits for more, and nobody goes on too early."""
    wire = Wire(scene.dsn, 0, split=True)
    try:
        scene.begin(scene.fleet.start(dsn=wire.dsn))
        scene.start_mixture("pieces", 2)
        scene.finish()
    finally:
        wire.close()


async def test_closing_a_broken_session_leaves_the_others_alone(durable_dsn: str) -> None:
    """A broken session's socket is closed by the driver, and a new session gets its number: when the broken one is
    closed at last, the new one still hears its answers."""
    broken = await Link.open(durable_dsn, "broken")
    pid = await broken.call("select pg_backend_pid()", ())
    async with await psycopg.AsyncConnection.connect(durable_dsn, autocommit=True) as admin:
        await admin.execute("select pg_terminate_backend(%s)", (int(pid or b"0"),))
        async with asyncio.timeout(10):
            while not broken.broken:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    others = [await Link.open(durable_dsn, "other") for _ in range(5)]
    await broken.close()
    try:
        async with asyncio.timeout(10):
            assert [await other.call("select 1", ()) for other in others] == [b"1"] * 5
    finally:
        for other in others:
            await other.close()
