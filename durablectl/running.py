"""`durable run`: a file with a worker of its own, or a workflow by name on the workers that there are."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from durable import Durable, Start, Worker, Workflow
from durable.errors import WrongArguments
from durable.runs import RunInfo
from durablectl import database, exits, logs
from durablectl.database import with_client
from durablectl.documents import look_at, required, sound
from durablectl.ending import leave
from durablectl.exits import WrongUse
from durablectl.inputs import named_values
from durablectl.loading import look_here, module_of, programs_in
from durablectl.looking import outcome
from durablectl.serving import Service, serve
from durablectl.starting import ended, ended_as, started
from durablectl.watching import watch
from durablectl.worker import chosen_database
from highway_dsl.keeping import faults_kept
from interpreter.deployment import Deployed, Loaded, built, unrunnable
from interpreter.highway.inputs import INTERVAL, read_inputs
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
    file, name = _parts(order.target)
    if file.endswith(SUFFIXES) or Path(file).is_file():
        return _run_file(order, given, file, name)
    if Path(file).is_dir():
        raise WrongUse(f"{file} is a directory; run one of its files, or a workflow by its name")
    if order.allow:
        raise WrongUse("--allow is for a file that runs here; a name runs on the workers that there are")
    return _run_name(order, given)


def _parts(target: str) -> tuple[str, str | None]:
    """`file.py:name` is one of the workflows of a file."""
    file, colon, name = target.rpartition(":")
    return (file, name) if colon and file.endswith(SUFFIXES) else (target, None)


# ---------------------------------------------------------------- by name


def _run_name(order: Order, given: dict[str, Any]) -> int:
    session = Session(order, given, order.target)

    async def act(client: Durable) -> RunInfo:
        return await session.run(client, stay=order.wait or order.follow)

    run = with_client(order.database_url, act)
    return session.report(run) if order.wait or order.follow else started(run, order.json)


# ---------------------------------------------------------------- as a file


def _run_file(order: Order, given: dict[str, Any], file: str, name: str | None) -> int:
    content = _content(file)
    chosen = content.chosen(file, name)
    content.check_input(chosen, given)
    logs.to_standard_error()
    with ExitStack() as until_end:
        url = chosen_database(order.database_url, until_end)
        deployed = Deployed([*order.allow, *content.allow], Vault(url))
        service = Service.of(url, content.programs, None, database.settings(), deployed)
        session = Session(order, given, chosen, content.loaded)
        serve(service, meanwhile=session.beside)
    return leave(session.interrupted() if session.ended is None else session.report(session.ended))


class Content(NamedTuple):
    """What a file holds: workflows in code, or some to be deployed. Its own functions may be called: it has run."""

    programs: list[Workflow]
    loaded: list[Loaded]
    allow: list[str]

    def chosen(self, file: str, name: str | None) -> str:
        """The workflow to run: the only one, or the one that was named."""
        names = [*(each.name for each in self.programs), *(each.name for each in self.loaded)]
        if name is None and len(names) > 1:
            raise WrongUse(
                f"{file} has several workflows; say which one to run: {', '.join(f'{file}:{n}' for n in names)}"
            )
        if name is not None and name not in names:
            raise WrongUse(f"{file} has no workflow {name!r}; it has {', '.join(names)}")
        return name or names[0]

    def check_input(self, name: str, given: dict[str, Any]) -> None:
        """Refuse a run that could only fail before anything is written; say what nothing would read."""
        for loaded in self.loaded:
            if loaded.name == name:
                params = loaded.params()
                if missing := [each for each in params["required"] if each not in given]:
                    options = " ".join(f"--input {each}=VALUE" for each in missing)
                    raise WrongArguments(f"{name!r} needs {', '.join(map(repr, missing))}: add {options}")
                if (read := read_inputs(loaded.plan)) is not None:
                    for each in sorted({*given} - {*read, *params["required"]}):
                        known = ", ".join(other for other in read if other not in INTERVAL) or "none"
                        print(f"warning: {name!r} reads no input {each!r}; it reads {known}", file=sys.stderr)


def _content(file: str) -> Content:
    if file.endswith(".py"):
        return _of_python(file)
    look_here()
    return Content([], sound([file]), [])


def _of_python(file: str) -> Content:
    """What a Python file holds when it has run once."""
    with faults_kept() as faulty:
        try:
            module = module_of(file)
        except WrongUse as exc:
            if faulty or isinstance(exc.__cause__, ValidationError):
                raise unrunnable(file, exc.__cause__ or exc, faulty) from None
            raise
        programs = programs_in(module)
        if programs and not faulty:
            return Content(programs, [], [])
        written = built(file, vars(module), faulty)
    return Content([], required(look_at(written), file), [module.__name__])


class Session:
    """One run, from its start to its report."""

    def __init__(self, order: Order, given: dict[str, Any], name: str, loaded: Sequence[Loaded] = ()):
        self._order = order
        self._given = given
        self._name = name
        self._loaded = loaded
        self._code: int | None = None
        self._run_id: str | None = None
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
        self._run_id = run_id
        if stay and self._watched:
            # The document is alone on standard output.
            self._code = outcome(await watch(client, run_id, sys.stderr if self._order.json else None))
        elif stay:
            await ended(client, run_id)
        return await client.run(run_id)

    @property
    def _watched(self) -> bool:
        return self._order.follow or not (self._order.wait or self._order.json)

    def interrupted(self) -> int:
        """The worker was asked to end before the run had."""
        said = f"{self._name!r} was started"
        if (run_id := self._run_id) is not None:
            said = (
                f"run {run_id} of {self._name!r}, which goes on as soon as a worker serves it;"
                f" see `durable runs show {run_id}`"
            )
        print(f"durable: ended before {said}", file=sys.stderr)
        return exits.INTERRUPTED

    def report(self, run: RunInfo) -> int:
        """Say how the run ended, as far as that was not seen; the exit code."""
        if self._order.json or self._code is None or run.state == "succeeded":
            return ended_as(run, self._order.json)
        return self._code
