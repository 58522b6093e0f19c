"""The client: start runs, wait for them, look at them, and act on them."""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Self
from uuid import UUID

import orjson
import psycopg
from orjson import Fragment
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from durable import codec, runs
from durable.borrowed import execute_on
from durable.channel import AMBIGUOUS
from durable.codec import Codec, PlainCodec
from durable.completions import Completions
from durable.embedded import EmbeddedPostgres
from durable.errors import (
    NoSuchRun,
    RunCancelled,
    RunFailed,
    StoreUnavailable,
    UnknownVersion,
    ValueRefused,
    WrongArguments,
)
from durable.ids import child_ids, fine_uuid7, group_start
from durable.link import CONNECT
from durable.migrate import migrate
from durable.reads import refusal
from durable.runs import BranchInfo, HolderInfo, LogLine, ProgressInfo, RunInfo, StepRecord, WaitInfo
from durable.sessions import Sessions
from durable.settings import Settings
from durable.start import DEFAULT_PRIORITY, Start, input_of, row_of
from durable.store import check_store
from durable.versions import Deployment, Version, VersionInfo
from durable.workflow import Workflow

# Between two tries of a read whose connection broke: a database needs a moment to come back.
_RESTS = (0.0, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0)

DEPLOY = "select durable.deploy(%s, %s, %s, %s, %s::json, %s, %s::json)"
ENDED = (
    "select json_build_array(case when finished_at is not null then state end, result, error)"
    " from durable.task where task_id = $1"
)
# The answer names only runs that were there before, by their idempotency keys.
START = "select json_agg(json_build_array(s.asked, s.run_id)) from durable.start_runs({}) s"
START_ALIKE = "select durable.start_alike({}, {}, {}, {})"
EMIT = "select durable.emit({}, {}, {})"


class Durable:
    """A connection to the store, for programs. Without a DSN it brings the embedded PostgreSQL along.

    `async with Durable(dsn) as durable: run_id = await durable.start(my_workflow, 42)`
    """

    def __init__(
        self,
        dsn: str | None = None,
        *,
        settings: Settings | None = None,
        codec: Codec | None = None,
        workflows: Iterable[Workflow] = (),
    ):
        self._settings = settings or Settings.from_environment()
        self._dsn = dsn or self._settings.database_url
        self._codec = codec or PlainCodec()
        self._workflows = {workflow.name: workflow for workflow in workflows}
        self._lines: dict[tuple[str | None, str], tuple[int, float | None, dict[str, Any]]] = {}
        self._embedded: EmbeddedPostgres | None = None
        self._pool: AsyncConnectionPool[psycopg.AsyncConnection[Any]] | None = None
        self._sessions: Sessions | None = None
        self._completions: Completions | None = None

    @property
    def dsn(self) -> str:
        if self._dsn is None:
            raise _not_open()
        return self._dsn

    async def __aenter__(self) -> Self:
        if self._dsn is None:
            self._embedded = EmbeddedPostgres()
            self._dsn = await asyncio.to_thread(self._embedded.start)
            await asyncio.to_thread(migrate, self._dsn)
        await check_store(self._dsn)
        options: dict[str, Any] = {"autocommit": True, "application_name": "durable-client", **CONNECT}
        self._pool = AsyncConnectionPool(self._dsn, min_size=1, max_size=8, kwargs=options, open=False, timeout=15)
        await self._pool.open()
        self._sessions = Sessions(self._dsn, "durable-client")
        self._completions = Completions(self._dsn, self._finished)
        if self._workflows:
            await self.register(*self._workflows.values())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._completions is not None:
            await self._completions.close()
        if self._sessions is not None:
            await self._sessions.close()
        if self._pool is not None:
            await self._pool.close()
        if self._embedded is not None:
            await asyncio.to_thread(self._embedded.stop)

    async def register(self, *workflows: Workflow) -> None:
        """Make workflows known to the store, so that they can be started before a worker has run."""
        rows = orjson.dumps([workflow.registration() for workflow in workflows]).decode()
        queues = sorted({workflow.queue for workflow in workflows} | {"default"})
        await self._fetch("select * from durable.register(%s::json, %s)", (rows, queues))
        self._workflows |= {workflow.name: workflow for workflow in workflows}

    # ---------------------------------------------------------------- starting

    async def start(
        self,
        workflow: Workflow | str,
        *args: Any,
        options: Start | None = None,
        connection: Any = None,
        **kwargs: Any,
    ) -> str:
        """Start a run and return its id. With `connection`, inside the caller's own transaction: the run exists if
        and only if that commits. Accepts psycopg and SQLAlchemy connections and sessions, sync and async.
        """
        ids = await self.start_many(
            workflow, [input_of(self._known(workflow), args, kwargs)], options=options, connection=connection
        )
        return ids[0]

    async def start_many(
        self,
        workflow: Workflow | str,
        inputs: Sequence[dict[str, Any]],
        *,
        options: Start | None = None,
        connection: Any = None,
    ) -> list[str]:
        """Start a run for each input, all in one transaction; their ids in that order."""
        known = self._known(workflow)
        chosen = options or Start()
        if chosen.key is not None and len(inputs) > 1:
            raise WrongArguments("one idempotency key cannot stand for several runs; start them one by one")
        name = known if isinstance(known, str) else known.name
        # Started by its name, it goes to the queue that it was registered with.
        queue = chosen.queue or (known.queue if isinstance(known, Workflow) else None)
        line, deadline, params = await self._line(known, queue)
        row = row_of(options, deadline)
        sealed = self._inputs(name, params, inputs)
        if len(sealed) > 1 and row.keys() <= {"prio"}:
            return await self._start_alike(line, row.get("prio", DEFAULT_PRIORITY), sealed, connection)
        base = {"line": line, **row}
        if chosen.key is not None:
            base |= {"key": chosen.key, "scope": f"run:{name}"}
        rows = [{**base, "id": own, "input": Fragment(given)} for own, given in zip(_ids(sealed), sealed, strict=True)]
        had = dict(orjson.loads(await self._call(START, (orjson.dumps(rows),), ("json",), connection) or b"[]"))
        return [had.get(row["id"], row["id"]) for row in rows]

    async def _start_alike(self, line: int, priority: int, sealed: list[bytes], connection: Any) -> list[str]:
        """Start runs that differ in nothing but their inputs."""
        ids = _ids(sealed)
        params = (b"%d" % line, b"%d" % priority, f"{{{','.join(ids)}}}".encode(), b"[" + b",".join(sealed) + b"]")
        await self._call(START_ALIKE, params, ("int", "int", "uuid[]", "json"), connection)
        return ids

    # ---------------------------------------------------------------- looking

    async def result(self, run_id: str, timeout: float | None = None) -> Any:
        """Wait for a run's end: its result, or `RunFailed` or `RunCancelled`."""
        if self._completions is None:
            raise _not_open()
        own = str(_uuid(run_id))
        async with asyncio.timeout(timeout):
            state, result, error = await self._completions.wait(own, lambda: self._ended(own))
        if state == "succeeded":
            return self._opened(result)
        raise (RunCancelled if state == "cancelled" else RunFailed)(str(run_id), error or {})

    async def run(self, run_id: str) -> RunInfo:
        """One run, with its input, result and error."""
        rows = await self._ask("run_query", _uuid(run_id))
        if not rows:
            raise NoSuchRun(f"no run {run_id}. It never existed, or was pruned by retention.")
        return self._info(rows[0])

    async def state(self, run_id: str) -> str:
        """ready, running, parked, queued, delayed, succeeded, failed or cancelled."""
        return (await self.run(run_id)).state

    async def runs(
        self,
        *,
        state: str | None = None,
        workflow: str | None = None,
        tag: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        before: str | None = None,
        parent: str | None = None,
        limit: int = 50,
    ) -> list[RunInfo]:
        """The newest runs that fit, `limit` of them; `before` a run id pages on; `parent` started them."""
        if state is not None and state not in runs.STATES:
            raise WrongArguments(f"there is no state {state!r}; known are {', '.join(runs.STATES)}")
        rows = await self._ask(
            "runs_query",
            state=state,
            workflow=workflow,
            tag=tag,
            since=since,
            until=until,
            before=before,
            parent=parent and str(_uuid(parent)),
            limit=limit,
        )
        return [self._info(row) for row in rows]

    async def steps(self, run_id: str) -> Sequence[StepRecord]:
        """Everything that is recorded of a run, in order."""
        rows = await self._ask("steps_query", str(_uuid(run_id)))
        return [StepRecord(**{**row, "body": self._opened(row["body"])}) for row in rows]

    async def history(self, run_id: str) -> Sequence[StepRecord]:
        """As `steps`, with large values in their places."""
        rows = await self._ask("steps_query", str(_uuid(run_id)))
        hashes = sorted({ref for row in rows if (ref := codec.referenced(row["body"]))})
        values: dict[str | None, Any] = {}
        if hashes:
            found = await self._fetch("select durable.read_values(%s, %s) as v", (_uuid(run_id), hashes))
            values = found[0]["v"] or {}
        bodies = [values.get(codec.referenced(row["body"]), row["body"]) for row in rows]
        return [StepRecord(**{**row, "body": self._opened(body)}) for row, body in zip(rows, bodies, strict=True)]

    async def waits(self, run_id: str) -> Sequence[WaitInfo]:
        """What a run waits for now, besides times."""
        rows = await self._ask("waits_query", str(_uuid(run_id)))
        return [WaitInfo(**row) for row in rows]

    async def holders(self, run_id: str) -> Sequence[HolderInfo]:
        """Who holds the slots that a queued run stands in line for."""
        rows = await self._fetch("select * from durable.holders(%s)", (_uuid(run_id),))
        return [HolderInfo(**row) for row in rows]

    async def branches(self, run_id: str) -> Sequence[BranchInfo]:
        """The tasks that a run has spawned and the runs that it started, in the order of their ids."""
        rows = await self._ask("branches_query", str(_uuid(run_id)))
        return [
            BranchInfo(**{**row, "input": self._opened(row["input"]), "result": self._opened(row["result"])})
            for row in rows
        ]

    async def progress(self, run_id: str) -> Sequence[ProgressInfo]:
        """How far a run and its children say they are."""
        rows = await self._ask("progress_query", str(_uuid(run_id)))
        return [ProgressInfo(**row) for row in rows]

    async def logs(self, run_id: str) -> Sequence[LogLine]:
        rows = await self._ask("logs_query", str(_uuid(run_id)))
        return [LogLine(**row) for row in rows]

    async def versions(self, workflow: str | None = None) -> list[VersionInfo]:
        """What was deployed: the versions of one workflow or of all, newest first."""
        rows = await self._ask("versions_query", workflow)
        return [VersionInfo(**row) for row in rows]

    async def version(self, workflow: str, version: str | None = None) -> Version:
        """One version with its source and plan; without a hash the current one."""
        rows = await self._send(
            "select durable.read_version(w.name, coalesce(%s, w.version)) from durable.workflow w where w.name = %s",
            (version, workflow),
            None,
        )
        if not rows or rows[0][0] is None:
            what = f"version {version}" if version else "version"
            raise UnknownVersion(f"no {what} of {workflow!r} was ever deployed here")
        return Version.model_validate(rows[0][0])

    # ---------------------------------------------------------------- acting

    async def deploy(self, what: Deployment, *, by: str | None = None, connection: Any = None) -> bool:
        """Make a version the one that new runs get; false if it was already. Runs that have begun keep theirs."""
        rows = await self._send(DEPLOY, what.params(by or getpass.getuser()), connection)
        self._lines = {key: line for key, line in self._lines.items() if key[1] != what.workflow}
        return bool(rows[0][0])

    async def undeploy(self, workflow: str, *, by: str | None = None) -> None:
        """Take a deployed workflow away, with its schedule, backfills and triggers. Its runs and versions stay to be
        read. Refused while runs of it have not ended."""
        await self._send("select durable.undeploy(%s, %s)", (workflow, by or getpass.getuser()), None)
        self._lines = {key: line for key, line in self._lines.items() if key[1] != workflow}

    async def emit(self, name: str, payload: Any = None, *, key: str | None = None, connection: Any = None) -> str:
        """Emit an event; the same `key` emits once."""
        params = (_text("name", name), self._sealed(payload), None if key is None else _text("key", key))
        return (await self._call(EMIT, params, ("text", "json", "text"), connection) or b"").decode()

    async def cancel(self, run_id: str, reason: str = "cancelled by a person", *, connection: Any = None) -> None:
        """Ask a run to end, with everything below it."""
        await self._send("select durable.cancel(%s, %s)", (_uuid(run_id), reason), connection)

    async def retry(self, run_id: str, *, version: str | None = None) -> None:
        """Let a failed or cancelled run go on from the step that failed; as the version that it has, or as another of
        its deployed workflow, or as the "current" one."""
        await self._send("select durable.retry(%s, _version => %s)", (_uuid(run_id), version), None)

    async def fork(
        self, run_id: str, step: str | None = None, *, input: dict[str, Any] | None = None, version: str | None = None
    ) -> str:
        """A new run that takes over the records before `step` (none without one), with the old or a new input, and with
        the old, another or the "current" version."""
        pos = 0
        if step is not None:
            records = [r for r in await self.steps(run_id) if str(r.task_id) == str(_uuid(run_id))]
            at = [record.pos for record in records if record.name == step]
            if not at:
                known = ", ".join(dict.fromkeys(record.name for record in records))
                raise WrongArguments(f"run {run_id} has no step {step!r}; it has {known or 'none'}")
            pos = min(at)
        body = None if input is None else self._sealed(input).decode()
        params = (_uuid(run_id), pos, body, version)
        rows = await self._send("select durable.fork(%s, %s, %s::json, _version => %s)::text", params, None)
        return str(rows[0][0])

    async def decide(
        self, run_id: str, step: str, *, ran: Any = None, again: bool = False, fail: str | None = None
    ) -> None:
        """Tell a run that waits at an uncertain at-most-once step what happened: it ran (with this result), it did
        not and shall run again, or it failed."""
        payload = {"again": True} if again else {"fail": fail} if fail is not None else {"ran": ran}
        await self.emit(f"durable.decide/{_uuid(run_id)}/{step}", payload)

    # ---------------------------------------------------------------- inside

    async def _line(self, workflow: Workflow | str, queue: str | None) -> tuple[int, float | None, dict[str, Any]]:
        name = workflow if isinstance(workflow, str) else workflow.name
        if (queue, name) not in self._lines:
            if isinstance(workflow, Workflow) and name not in self._workflows:
                await self.register(workflow)
            rows = await self._fetch(
                "select durable.line_of(%s, %s) as line, extract(epoch from w.deadline) as deadline, w.params"
                " from (values (1)) x left join durable.workflow w on w.name = %s",
                (queue, name, name),
            )
            deadline = rows[0]["deadline"]
            self._lines[queue, name] = (rows[0]["line"], deadline and float(deadline), rows[0]["params"])
        return self._lines[queue, name]

    def _known(self, workflow: Workflow | str) -> Workflow | str:
        return self._workflows.get(workflow, workflow) if isinstance(workflow, str) else workflow

    def _inputs(self, name: str, params: dict[str, Any], inputs: Sequence[dict[str, Any]]) -> list[bytes]:
        required = frozenset(params.get("required", ()))
        known = required | frozenset(params.get("optional", ()))
        takes_any = params.get("open", True)
        for given in inputs:
            keys = given.keys()
            if not (keys >= required and (takes_any or keys <= known)):
                raise _wrong_arguments(name, required, known, given, takes_any)
        limit = self._settings.max_value_bytes
        encoded = [codec.encode(given, limit) for given in inputs]
        if isinstance(self._codec, PlainCodec):
            return encoded
        return [codec.sealed_with(self._codec, data) for data in encoded]

    def _sealed(self, value: Any) -> bytes:
        return codec.sealed_with(self._codec, codec.encode(value, limit=self._settings.max_value_bytes))

    def _opened(self, value: Any) -> Any:
        return codec.unsealed_with(self._codec, value)

    def _info(self, row: dict[str, Any]) -> RunInfo:
        return RunInfo(**{**row, "input": self._opened(row["input"]), "result": self._opened(row["result"])})

    async def _ended(self, run_id: str) -> list[Any] | None:
        """State, result and error of a run that is over."""
        for rest in (*_RESTS, None):
            try:
                raw = await self._calls().call(ENDED, [run_id.encode()])
                break
            except (StoreUnavailable, *AMBIGUOUS):
                if rest is None:
                    raise
                await asyncio.sleep(rest)
        if raw is None:
            raise NoSuchRun(f"no run {run_id}. It never existed, or was pruned by retention.")
        ended: list[Any] = orjson.loads(raw)
        return ended if ended[0] is not None else None

    async def _finished(self, run_ids: list[str]) -> set[str]:
        rows = await self._fetch(
            "select task_id::text as id, finished_at is not null as final from durable.task"
            " where task_id = any(%s::uuid[])",
            (run_ids,),
        )
        if not rows and len(run_ids) == 1:
            raise NoSuchRun(f"no run {run_ids[0]}. It never existed, or was pruned by retention.")
        return {row["id"] for row in rows if row["final"]}

    async def _call(
        self, sql: str, params: Sequence[bytes | None], types: Sequence[str], connection: Any
    ) -> bytes | None:
        """One of the calls that programs make most: on a lean session, or on the caller's own connection."""
        if connection is not None:
            given = [param and param.decode() for param in params]
            rows = await self._send(sql.format(*(f"%s::{type_}" for type_ in types)), given, connection)
            value = rows[0][0]
            return value if value is None else value.encode() if isinstance(value, str) else orjson.dumps(value)
        try:
            return await self._calls().call(sql.format(*(f"${n}" for n in range(1, len(types) + 1))), params)
        except psycopg.Error as exc:
            raise refusal(exc) from None

    def _calls(self) -> Sessions:
        if self._sessions is None:
            raise _not_open()
        return self._sessions

    async def _send(self, sql: str, params: Sequence[Any], connection: Any) -> list[Any]:
        """Run one statement, on the caller's connection if there is one."""
        try:
            if connection is not None:
                return await execute_on(connection, sql, params)
            async with self._connection() as own:
                return list(await (await own.execute(sql, params)).fetchall())
        except psycopg.Error as exc:
            raise refusal(exc) from None

    async def _ask(self, name: str, *args: Any, **kwargs: Any) -> list[dict[str, Any]]:
        """The rows of one of the named queries."""
        # Imported here: SQLAlchemy costs half a second, and not every program looks at runs.
        from durable import queries
        from durable.models import compiled

        return await self._fetch(*compiled(getattr(queries, name)(*args, **kwargs)))

    async def _fetch(self, sql: str, params: Any) -> list[dict[str, Any]]:
        """Read. A broken connection is asked again on another one for a while: nothing here changes by being asked."""
        for rest in (*_RESTS, None):
            try:
                async with self._connection() as own:
                    cursor = own.cursor(row_factory=dict_row)
                    return list(await (await cursor.execute(sql, params)).fetchall())
            except psycopg.Error as exc:
                if rest is None or not isinstance(exc, psycopg.OperationalError):
                    raise refusal(exc) from None
                await asyncio.sleep(rest)
        raise AssertionError("unreachable")

    def _connection(self) -> Any:
        if self._pool is None:
            raise _not_open()
        return self._pool.connection()


def _wrong_arguments(
    name: str, required: frozenset[str], known: frozenset[str], given: dict[str, Any], takes_any: bool
) -> WrongArguments:
    said = [f"missing {param!r}" for param in sorted(required) if param not in given]
    said += [] if takes_any else [f"unknown {key!r}" for key in given if key not in known]
    return WrongArguments(
        f"wrong arguments for {name!r}: {', '.join(said)}; it takes {', '.join(sorted(known)) or 'none'}"
    )


def _ids(inputs: Sequence[bytes]) -> list[str]:
    """New ids in a row, behind those of earlier starts: each goes into its indexes right behind the last one."""
    return [fine_uuid7()] if len(inputs) == 1 else child_ids(group_start(), len(inputs))


def _text(what: str, text: str) -> bytes:
    try:
        data = text.encode()
    except UnicodeEncodeError as exc:
        raise ValueRefused(f"an event's {what} is not text that can be stored: {exc}") from None
    if b"\0" in data:
        raise ValueRefused(f"an event's {what} holds a NUL character, which PostgreSQL cannot store: {text!r}")
    return data


def _not_open() -> StoreUnavailable:
    return StoreUnavailable("the client is not open yet: use `async with Durable(...) as durable:`")


def _uuid(text: str | UUID) -> UUID:
    try:
        return text if isinstance(text, UUID) else UUID(str(text))
    except ValueError:
        raise NoSuchRun(f"{text!r} is not a run id; they look like 0190b6c4-7e1a-7cc3-9f6e-2d1f0a3b4c5d") from None
