"""`durable secrets ...`: the secrets in the store. Values are typed or piped in, never arguments."""

from __future__ import annotations

from typing import Annotated

import typer

from durablectl.options import DatabaseUrl, Json

app = typer.Typer(no_args_is_help=True, help="Secrets of deployed workflows, encrypted in the store.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="As in {{secrets.NAME}}.")]


@app.command()
def key() -> int:
    """Print a new key for DURABLE_SECRETS_KEY."""
    from durablectl.secretkeeping import print_key

    return print_key()


@app.command("set")
def put(name: Name, database_url: DatabaseUrl = None) -> int:
    """Set a secret to what is typed, or piped in."""
    from durablectl.secretkeeping import set_secret

    return set_secret(name, database_url)


@app.command("list")
def names(json: Json = False, database_url: DatabaseUrl = None) -> int:
    """The names of the secrets in the store, and who set them when."""
    from durablectl.secretkeeping import list_secrets

    return list_secrets(as_json=json, database_url=database_url)


@app.command()
def remove(name: Name, database_url: DatabaseUrl = None) -> int:
    """Forget a secret."""
    from durablectl.secretkeeping import remove_secret

    return remove_secret(name, database_url)


@app.command()
def rotate(database_url: DatabaseUrl = None) -> int:
    """Encrypt every secret anew with the first key of DURABLE_SECRETS_KEY; the others can go afterwards."""
    from durablectl.secretkeeping import rotate_secrets

    return rotate_secrets(database_url)
