"""A wire between a worker and its database that loses answers, or delivers them in pieces.

It stands in for the network: the server has done what it was asked, and the worker does not hear of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import tempfile
import threading
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from durable.ending import end

# How a connection shows that it is one of a worker's write channels.
CALLS = (b"durable.flush(", b"durable.pass(")
READY_FOR_QUERY = 6  # bytes of the message that ends an answer


class Wire:
    """A proxy on a socket of its own. `lose` is the chance that an answer of a write channel is lost with its
    connection; `split` makes the end of each answer come alone."""

    def __init__(self, dsn: str, seed: int, *, lose: float = 0.0, split: bool = False):
        target = conninfo_to_dict(dsn)
        self._target = f"{target['host']}/.s.PGSQL.{target.get('port') or 5432}"
        self._home = Path(tempfile.mkdtemp(prefix="wire-"))
        self._chance = random.Random(seed)
        self._split = split
        self.lose = lose
        self.lost = 0
        self.dsn = make_conninfo(dsn, host=str(self._home), port=5432)
        self._loop = asyncio.new_event_loop()
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._up.wait()

    def close(self) -> None:
        """Cut everything. Workers that are still at it see a network that is gone."""
        self._loop.call_soon_threadsafe(self._end)
        self._thread.join()
        shutil.rmtree(self._home, ignore_errors=True)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        address = str(self._home / ".s.PGSQL.5432")
        self._server = self._loop.run_until_complete(asyncio.start_unix_server(self._connect, address))
        self._up.set()
        self._loop.run_forever()
        self._loop.run_until_complete(end(asyncio.all_tasks(self._loop)))
        self._loop.close()

    def _end(self) -> None:
        self._server.close()
        self._loop.stop()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_unix_connection(self._target)
        except OSError:
            writer.close()
            return
        line = Line(self, (reader, writer), (far_reader, far_writer))
        ways = [asyncio.create_task(line.questions()), asyncio.create_task(line.answers())]
        # Not a cancelled task at the wire's end: the stream's own callback would complain of it.
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        writer.close()
        far_writer.close()

    def loses_this(self) -> bool:
        lost = self._chance.random() < self.lose
        self.lost += lost
        return lost

    def pieces(self, data: bytes) -> list[bytes]:
        if not self._split or len(data) <= READY_FOR_QUERY:
            return [data]
        return [data[:-READY_FOR_QUERY], data[-READY_FOR_QUERY:]]


Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Line:
    """One connection through the wire."""

    def __init__(self, wire: Wire, near: Stream, far: Stream):
        self._wire = wire
        self._near = near
        self._far = far
        self._writes = False

    async def questions(self) -> None:
        while data := await self._near[0].read(65536):
            self._writes = self._writes or any(call in data for call in CALLS)
            self._far[1].write(data)
            await self._far[1].drain()

    async def answers(self) -> None:
        while data := await self._far[0].read(65536):
            if self._writes and self._wire.loses_this():
                return
            for piece in self._wire.pieces(data):
                self._near[1].write(piece)
                await self._near[1].drain()
                await asyncio.sleep(0.001 if self._writes and len(piece) != len(data) else 0)
