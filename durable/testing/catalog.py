"""What a database's catalog says about the store, as text that two databases can be compared by.

Columns are compared by name: a migration can only add one at the end.
"""

from __future__ import annotations

import psycopg

# What each kind of object is described by. Alembic's own bookkeeping is no part of the store.
QUERIES = {
    "table": """
        select c.relname, format('%s %s %s', c.relkind, c.relpersistence, c.reloptions)
        from pg_class c
        where c.relnamespace = 'durable'::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'S', 'f')""",
    "column": """
        select c.relname || '.' || a.attname,
               concat_ws(' ', format_type(a.atttypid, a.atttypmod), case when a.attnotnull then 'not null' end,
                         'default ' || pg_get_expr(d.adbin, d.adrelid), nullif(a.attidentity::text, ''),
                         nullif(a.attgenerated::text, ''))
        from pg_attribute a join pg_class c on c.oid = a.attrelid
        left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
        where c.relnamespace = 'durable'::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'c')
          and a.attnum > 0 and not a.attisdropped""",
    "constraint": """
        select k.conrelid::regclass || ' ' || k.conname, pg_get_constraintdef(k.oid)
        from pg_constraint k where k.connamespace = 'durable'::regnamespace""",
    "index": """
        select i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid) || ' ' || i.indisvalid
        from pg_index i join pg_class c on c.oid = i.indrelid where c.relnamespace = 'durable'::regnamespace""",
    "function": """
        select p.oid::regprocedure::text, pg_get_functiondef(p.oid) || coalesce(p.proacl::text, '')
        from pg_proc p where p.pronamespace = 'durable'::regnamespace""",
    "view": """
        select c.relname, pg_get_viewdef(c.oid)
        from pg_class c where c.relnamespace = 'durable'::regnamespace and c.relkind in ('v', 'm')""",
    "enum": """
        select t.typname, string_agg(e.enumlabel, ' ' order by e.enumsortorder)
        from pg_type t join pg_enum e on e.enumtypid = t.oid
        where t.typnamespace = 'durable'::regnamespace group by t.typname""",
    "trigger": """
        select t.tgrelid::regclass || ' ' || t.tgname, pg_get_triggerdef(t.oid)
        from pg_trigger t join pg_class c on c.oid = t.tgrelid
        where c.relnamespace = 'durable'::regnamespace and not t.tgisinternal""",
}


def read_catalog(dsn: str) -> dict[str, str]:
    """Every object of the schema `durable`, by its kind and name."""
    with psycopg.connect(dsn) as connection:
        return {
            f"{kind} {name}": definition
            for kind, query in QUERIES.items()
            for name, definition in connection.execute(query).fetchall()
            if "alembic_version" not in name
        }
