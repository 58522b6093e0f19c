"""The one error of the embedded server.

Its text says where it happened and what to do next.
"""

from __future__ import annotations


class EmbeddedPostgresError(Exception):
    """The embedded PostgreSQL server cannot be had as asked."""
