"""`durable run`: a file with a worker of its own, or a workflow by name on the workers that there are."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from durable import Durable, Start, Worker, Workflow
from durable.runs import RunInfo
from durablectl import database, logs
from durablectl.database import with_client
from durablectl.documents import look_at, required, sound
from durablectl.ending import leave
from durablectl.exits import WrongUse
from durablectl.inputs import named_values
from durablectl.loading import module_of, programs_in
from durablectl.looking import outcome
from durablectl.serving import Service, serve
from durablectl.starting import ended, ended_as, started
from durablectl.watching import watch
from durablectl.worker import chosen_database
from highway_dsl import faults_of
from interpreter.deployment import Deployed, Loaded, Unloadable, built
from interpreter.secrets import Vault

SUFFIXES = (".yaml", ".yml", ".json", ".py")


class Order(NamedTuple):
    """A run as asked for on the command line."""

    target: str
    input: Sequence[str]
    allow: Sequence[str]
    key: str | None
    wait: bool
    follow: bool
    json: bool
    database_url: str | None


def run_target(order: Order) -> int:
    """Run a file or a name; the exit code is how the run ended."""
    if order.wait and order.follow:
        raise WrongUse("one of --wait and --follow, not both")
    given = named_values(order.input)
    if order.target.endswith(SUFFIXES) or Path(order.target).is_file():
        return _run_file(order, given)
    if order.allow:
        raise WrongUse("--allow is for a file that runs here; a name runs on the workers that there are")
    return _run_name(order, given)


# ---------------------------------------------------------------- by name


def _run_name(order: Order, given: dict[str, Any]) -> int:
    session = Session(order, given, order.target)

    async def act(client: Durable) -> RunInfo:
        return await session.run(client, stay=order.wait or order.follow)

    run = with_client(order.database_url, act)
    return session.report(run) if order.wait or order.follow else started(run, order.json)


# ---------------------------------------------------------------- as a file


def _run_file(order: Order, given: dict[str, Any]) -> int:
    programs, loaded = _content(order.target)
    logs.to_standard_error()
    with ExitStack() as until_end:
        url = chosen_database(order.database_url, until_end)
        service = Service.of(url, programs, None, database.settings(), Deployed(order.allow, Vault(url)))
        name = programs[0].name if programs else loaded[0].name
        session = Session(order, given, name, loaded)
        serve(service, meanwhile=session.beside)
    assert session.ended is not None
    return leave(session.report(session.ended))


def _content(file: str) -> tuple[list[Workflow], list[Loaded]]:
    """A Python file may hold workflows in code; anything else is to be deployed."""
    programs, loaded = _of_python(file) if file.endswith(".py") else ([], sound([file]))
    if len(programs) + len(loaded) > 1:
        names = ", ".join([*(each.name for each in programs), *(each.name for each in loaded)])
        raise WrongUse(f"{file} has several workflows ({names}); deploy them, and run one by its name")
    return programs, loaded


def _of_python(file: str) -> tuple[list[Workflow], list[Loaded]]:
    """What a Python file holds when it has run once."""
    try:
        module = module_of(file)
        if programs := programs_in(module):
            return programs, []
        return [], required(look_at(built(file, vars(module))), file)
    except (WrongUse, ValidationError) as exc:
        cause = exc.__cause__ or exc
        if isinstance(cause, ValidationError):
            raise Unloadable(file, faults_of(cause)) from None
        raise


class Session:
    """One run, from its start to its report."""

    def __init__(self, order: Order, given: dict[str, Any], name: str, loaded: Sequence[Loaded] = ()):
        self._order = order
        self._given = given
        self._name = name
        self._loaded = loaded
        self._code: int | None = None
        self.ended: RunInfo | None = None

    async def beside(self, worker: Worker) -> None:
        """Deploy, start and watch next to the worker that does the work, which ends with the run."""
        async with Durable(worker.dsn) as client:
            for each in self._loaded:
                await client.deploy(each.deployment())
            self.ended = await self.run(client, stay=True)
        worker.stop()

    async def run(self, client: Durable, *, stay: bool) -> RunInfo:
        options = Start(key=self._order.key)
        (run_id,) = await client.start_many(self._name, [self._given], options=options)
        if stay and self._watched:
            # The document is alone on standard output.
            self._code = outcome(await watch(client, run_id, sys.stderr if self._order.json else None))
        elif stay:
            await ended(client, run_id)
        return await client.run(run_id)

    @property
    def _watched(self) -> bool:
        return self._order.follow or not (self._order.wait or self._order.json)

    def report(self, run: RunInfo) -> int:
        """Say how the run ended, as far as that was not seen; the exit code."""
        if self._order.json or self._code is None or run.state == "succeeded":
            return ended_as(run, self._order.json)
        return self._code
