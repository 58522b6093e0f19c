"""The shop's own tables, in the same database: its stock, and a ledger of everything that was really done.

The ledger stands for the world outside. Each line is written by a connection of its own, as a call to a payment
service would be: nothing that happens to the workflow takes it back, so anyone can count what ran how often.
"""

from __future__ import annotations

import os

import psycopg

TABLES = """
create schema if not exists shop;
create table if not exists shop.ledger (
  order_id text not null, step text not null, worker int not null, at timestamptz not null default clock_timestamp()
);
create table if not exists shop.stock (item text primary key, left_over int not null);
create table if not exists shop.reservation (order_id text not null, item text not null);
"""


async def open_shop(items: list[str]) -> None:
    """Make the tables, with some of everything in stock."""
    async with await _connect() as shop:
        # Two orders may open the shop at once, and `if not exists` alone does not keep them apart.
        await shop.execute("select pg_advisory_xact_lock(2417)")
        await shop.execute(TABLES)
        rows = [(item,) for item in sorted(set(items))]
        await shop.cursor().executemany("insert into shop.stock values (%s, 100) on conflict do nothing", rows)


async def note(order_id: str, step: str) -> None:
    """Something was done in the outside world, by this process."""
    async with await _connect() as shop:
        line = (order_id, step, os.getpid())
        await shop.execute("insert into shop.ledger (order_id, step, worker) values (%s, %s, %s)", line)


async def _connect() -> psycopg.AsyncConnection:
    # A worker tells its steps where the store is.
    return await psycopg.AsyncConnection.connect(os.environ["DURABLE_DATABASE_URL"])
