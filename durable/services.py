"""What a worker lends to the tasks it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

import orjson

from durable.clock import Clock
from durable.codec import Codec, PlainCodec, referenced
from durable.gate import Gate
from durable.journal import Record
from durable.lanes import Lanes
from durable.reads import Reads
from durable.settings import Settings
from durable.transactions import Transactions

if TYPE_CHECKING:
    from durable.versions import Library

READ_JOURNAL = "select durable.read_journal($1, $2)"
READ_VALUES = "select durable.read_values($1, $2)"
READ_CHILDREN = "select durable.read_children($1, $2, $3)"
READ_LOGGED = "select durable.read_logged($1, $2, $3, $4, $5)"
LINE_OF = (
    "select json_build_array(durable.line_of($1, $2),"
    " (select extract(epoch from w.deadline) from durable.workflow w where w.name = $2))"
)

# As `Record(*row)`, without a call in Python for each of the ten thousand rows of a long past.
_record: Callable[[tuple[Any, ...]], Record] = partial(tuple.__new__, Record)


class Services:
    """Shared by all tasks of one worker."""

    def __init__(
        self,
        settings: Settings,
        codec: Codec,
        clock: Clock,
        gate: Gate,
        lanes: Lanes,
        reads: Reads,
        transactions: Transactions,
        library: Library | None = None,
    ):
        # Asked for once: for the running loop the interpreter asks the system who it is, every time.
        self.loop = asyncio.get_running_loop()
        self.settings = settings
        self.codec = codec
        self.sealing = not isinstance(codec, PlainCodec)
        self.clock = clock
        self.gate = gate
        self.lanes = lanes
        self.transactions = transactions
        self.library = library
        self._reads = reads
        self._lines: dict[tuple[str, str], tuple[int, float | None]] = {}

    async def line_of(self, queue: str, workflow: str) -> tuple[int, float | None]:
        """The line of a workflow on a queue, and the workflow's own deadline."""
        found = self._lines.get((queue, workflow))
        if found is None:
            answer = orjson.loads(await self._reads.call(LINE_OF, [queue.encode(), workflow.encode()]) or b"null")
            found = self._lines[queue, workflow] = (answer[0], answer[1])
        return found

    async def read_journal(self, run_id: str, task_id: str) -> list[Record]:
        """The recorded past of a task, with large values put back in."""
        raw = await self._reads.call(READ_JOURNAL, [run_id.encode(), task_id.encode()]) or b"[null]"
        columns = orjson.loads(raw)
        records = list(map(_record, zip(*columns, strict=True))) if columns[0] else []
        return await self._with_values(run_id, records) if b'"ref"' in raw else records

    async def read_children(self, which: dict[str, Any]) -> list[Any]:
        """How children ended: [task, state, result, error], in id order."""
        ids = which.get("kids")
        first, last = which.get("first"), which.get("last")
        params = [first and first.encode(), last and last.encode(), _array(ids)]
        return list(orjson.loads(await self._reads.call(READ_CHILDREN, params) or b"[]"))

    async def read_logged(self, run_id: str, task_id: str, level: str, first: UUID, last: UUID) -> list[Any]:
        """Log lines of a task: [step, message, fields]."""
        params = [part.encode() for part in (run_id, task_id, level, str(first), str(last))]
        return list(orjson.loads(await self._reads.call(READ_LOGGED, params) or b"[]"))

    async def _with_values(self, run_id: str, records: list[Record]) -> list[Record]:
        hashes = {found for record in records if (found := referenced(record.body))}
        values = orjson.loads(await self._reads.call(READ_VALUES, [run_id.encode(), _array(sorted(hashes))]) or b"{}")
        return [
            record._replace(body=values[found]) if (found := referenced(record.body)) else record for record in records
        ]


def _array(items: list[str] | None) -> bytes | None:
    return None if items is None else b"{" + b",".join(item.encode() for item in items) + b"}"
