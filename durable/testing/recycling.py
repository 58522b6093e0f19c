"""A used test database made like new: much cheaper than a new copy of the template.

Only a database in which a test left nothing but rows of the store is used again; any other object, statistic or
setting means that it is dropped.
"""

from __future__ import annotations

import psycopg

# Tables smaller than this are emptied row by row: a truncate makes new files for the table and all its indexes.
_SMALL = 256 * 1024

_TERMINATE = """
    select bool_and(pg_terminate_backend(pid, 5000)) from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'"""

# What a test may have changed besides rows. A table without statistics counts -1 rows.
_FINGERPRINT = """
    select (select string_agg(x, ' ' order by x) from (
              select format('%s %s', c.oid, c.relname) from pg_class c where c.oid >= 16384
              union all select format('%s %s', p.oid, p.proname) from pg_proc p where p.oid >= 16384
              union all select format('%s %s', n.oid, n.nspname) from pg_namespace n where n.nspname !~ '^pg_'
              union all select format('%s %s', t.oid, t.tgname) from pg_trigger t where t.oid >= 16384) o (x)),
           (select count(*) from pg_db_role_setting s join pg_database d on d.oid = s.setdatabase
            where d.datname = current_database()),
           (select sum(c.reltuples) from pg_class c where c.oid >= 16384 and c.relkind = 'r')"""

_EMPTY = f"""
do $$
declare
  _table regclass;
  _used  boolean;
begin
  for _table in
    select c.oid from pg_class c
    where c.relnamespace = 'durable'::regnamespace and c.relkind = 'r' and c.relname <> 'alembic_version'
    order by c.relname = 'workflow'
  loop
    execute format('select exists (select from %s)', _table) into _used;
    if pg_total_relation_size(_table) > {_SMALL} then
      execute format('truncate %s cascade', _table);
    elsif _used then
      execute format('delete from %s', _table);
    end if;
  end loop;
  perform setval(s.oid, 1, false) from pg_class s where s.relnamespace = 'durable'::regnamespace and s.relkind = 'S';
end
$$"""


def fingerprint(dsn: str) -> tuple[object, ...]:
    """What a database holds besides rows."""
    with psycopg.connect(dsn) as connection:
        return connection.execute(_FINGERPRINT).fetchone() or ()


def recycle(dsn: str, fresh: tuple[object, ...]) -> bool:
    """Empty a database that looked like `fresh` when it was made; False when it must be dropped instead."""
    try:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(_TERMINATE)
            if connection.execute(_FINGERPRINT).fetchone() != fresh:
                return False
            connection.execute("set lock_timeout = '5s'")
            connection.execute(_EMPTY.encode())
            return True
    except psycopg.Error:
        return False
