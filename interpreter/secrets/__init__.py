"""Secrets of documents: `{{secrets.name}}` is a reference everywhere but inside the call that it is for.

Vault                 puts values in the place of references, audits each access, hides values afterwards
EnvironmentSecrets    `DURABLE_SECRET_<NAME>`
FileSecrets           a directory with a file for each
TableSecrets          the store's own table, encrypted with a key from the environment
"""

from __future__ import annotations

from interpreter.secrets.providers import EnvironmentSecrets, FileSecrets, Provider, TableSecrets
from interpreter.secrets.vault import UnknownSecret, Vault

__all__ = ["EnvironmentSecrets", "FileSecrets", "Provider", "TableSecrets", "UnknownSecret", "Vault"]
