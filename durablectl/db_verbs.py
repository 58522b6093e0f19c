"""`durable db ...`: the database itself."""

from __future__ import annotations

import typer

from durablectl.options import DatabaseUrl, Json

app = typer.Typer(no_args_is_help=True, help="The database: migrate it, or find it.")


@app.command()
def migrate(database_url: DatabaseUrl = None) -> int:
    """Install the store, or bring it up to date."""
    from durablectl.storekeeping import migrate_store

    return migrate_store(database_url)


@app.command()
def url(json: Json = False, database_url: DatabaseUrl = None) -> int:
    """Print the URL that a command here would use, password included."""
    from durablectl.storekeeping import print_url

    return print_url(database_url, as_json=json)
