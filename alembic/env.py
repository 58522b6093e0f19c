"""Alembic's environment: migrations of the store, run by `durable db migrate`.

The migrations are SQL; their bookkeeping table lives in the store's own schema.
"""

import psycopg
from sqlalchemy import create_engine, pool

from alembic import context

dsn = context.config.attributes["dsn"]
engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(dsn), poolclass=pool.NullPool)

with engine.connect() as connection:
    connection.exec_driver_sql("create schema if not exists durable")
    context.configure(connection=connection, version_table_schema="durable", transaction_per_migration=True)
    with context.begin_transaction():
        context.run_migrations()
    connection.commit()
