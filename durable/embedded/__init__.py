"""A PostgreSQL server that comes with the package and lives exactly as long as somebody uses it.

Read in this order: `server` (what callers use), `home` (where things are), `cluster` (the data on disk),
`account` and `binaries` (who runs what), `ownership` (who keeps the server up, and what stops it).
"""

from durable.embedded.home import default_data_dir
from durable.embedded.server import EmbeddedPostgres, ServerStatus
from durable.errors import EmbeddedPostgresError

__all__ = ["EmbeddedPostgres", "EmbeddedPostgresError", "ServerStatus", "default_data_dir"]
