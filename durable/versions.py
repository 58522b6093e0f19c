"""Versions: what was deployed, and how a worker learns of it while it runs.

A version never changes, so what was made of one is kept for as long as there is room.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Protocol

import orjson
from pydantic import BaseModel, ConfigDict

from durable.claims import Served
from durable.context import DurableContext
from durable.errors import UnknownVersion
from durable.reads import Reads
from durable.workflow import Params, Workflow

DEPLOYED_LINES = "select durable.deployed_lines($1, $2)"
READ_VERSION = "select durable.read_version($1, $2)"
# Plans are small beside what they run on; a worker seldom meets so many versions.
_KEPT = 256


class VersionInfo(BaseModel):
    """One version of a deployed workflow. `current`: what new runs get."""

    model_config = ConfigDict(frozen=True)

    workflow: str
    version: str
    language: str
    deployed_at: datetime
    deployed_by: str
    current: bool


class Version(VersionInfo):
    """A version with what it was made from and what it is run by."""

    source: str
    plan: Any


class Deployment(BaseModel):
    """What is to be deployed. `settings` are those of a registered workflow: params, caps, deadline in seconds,
    deadline_action."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    workflow: str
    version: str
    language: str
    source: str
    plan: Any
    settings: dict[str, Any] = {}

    def params(self, by: str) -> tuple[str, ...]:
        """The arguments of `durable.deploy`."""
        plan, settings = orjson.dumps(self.plan).decode(), orjson.dumps(self.settings).decode()
        return self.workflow, self.version, self.language, self.source, plan, by, settings


class Catalogue(Protocol):
    """Who can make deployed versions run."""

    @property
    def languages(self) -> Sequence[str]:
        """The languages that it knows; a worker takes no run of another."""

    def workflow(self, version: Version) -> Workflow:
        """What runs this version. Called once per version and worker; an error fails the run that asked."""


class Library:
    """The deployed workflows of one worker: their lines, and their versions on demand."""

    def __init__(self, reads: Reads, catalogue: Catalogue):
        self._reads = reads
        self._catalogue = catalogue
        self._made: OrderedDict[tuple[str, str], Workflow] = OrderedDict()

    async def lines(self, queues: Sequence[str]) -> dict[int, Served]:
        """Every line of a deployed workflow on these queues that can be run here."""
        params = [_array(self._catalogue.languages), _array(queues)]
        rows = orjson.loads(await self._reads.call(DEPLOYED_LINES, params) or b"[]")
        return {line: Served(_stand_in(name), queue, True) for line, queue, name in rows}

    async def workflow(self, name: str, version: str | None) -> Workflow:
        """What runs this version of a workflow."""
        if version is None:
            raise UnknownVersion(f"a run of {name!r} without a version: it began before the workflow was deployed")
        if (name, version) not in self._made:
            self._made[name, version] = self._catalogue.workflow(await self._read(name, version))
        self._made.move_to_end((name, version))
        while len(self._made) > _KEPT:
            self._made.popitem(last=False)
        return self._made[name, version]

    async def _read(self, name: str, version: str) -> Version:
        found = await self._reads.call(READ_VERSION, [name.encode(), version.encode()])
        if found is None:
            raise UnknownVersion(f"no version {version} of {name!r} was ever deployed here")
        return Version.model_validate_json(found)


def _stand_in(name: str) -> Workflow:
    """A deployed workflow before anybody knows which version of it."""

    async def unknown(ctx: DurableContext, **given: Any) -> None:
        raise UnknownVersion(f"{name!r} was asked to run without a version")

    return Workflow(name, unknown, Params.of(unknown, name))


def _array(items: Sequence[str]) -> bytes:
    quoted = (item.replace("\\", "\\\\").replace('"', '\\"') for item in items)
    return ("{" + ",".join(f'"{item}"' for item in quoted) + "}").encode()
