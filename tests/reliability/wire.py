"""A wire to a PostgreSQL server that counts the statements on it, and ends sessions at one."""

import asyncio
import struct
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Literal

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests import postgres

When = Literal["before", "while", "after"]
Message = tuple[bytes, bytes]

STARTS = (b"Q", b"P")  # a statement's first message: in the simple protocol, in the extended one
PID = struct.Struct("!i")
LENGTH = struct.Struct("!i")
FLUSH = b"H" + LENGTH.pack(4)


async def received(reader: asyncio.StreamReader) -> Message:
    """Read one message: its type, and all of its bytes.

    Raises:
        asyncio.IncompleteReadError: The other side has gone.
    """
    head = await reader.readexactly(5)
    (length,) = LENGTH.unpack(head[1:])
    return head[:1], head + await reader.readexactly(length - 4)


class Session:
    """One session of a client: its messages, in both directions.

    Args:
        wire: The wire that it goes over.
        client: The client's side.
        server: The server's side.
    """

    def __init__(
        self,
        wire: "Wire",
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self._wire = wire
        self._client, self._to_client = client
        self._server, self._to_server = server
        self._pid = 0
        self._held = False
        self._done, self._idle, self._gone = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def run(self) -> None:
        """Carry messages until one side has gone."""
        answering = asyncio.create_task(self._answer())
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            first = await self._client.readexactly(4)
            (length,) = LENGTH.unpack(first)
            self._to_server.write(first + await self._client.readexactly(length - 4))
            while not self._to_server.is_closing():
                await self._ask(await received(self._client))
        self._to_server.close()
        await answering

    async def _ask(self, message: Message) -> None:
        kind, data = message
        when = self._wire.strikes() if kind in STARTS else None
        if when is None:
            self._to_server.write(data)
        elif when == "before":
            await self._end()
        else:
            await self._strike(message, when)

    async def _strike(self, message: Message, when: When) -> None:
        """Let the server have a statement, and end the session instead of its answer."""
        self._held = True
        self._done.clear()
        self._idle.clear()
        kind, data = message
        self._to_server.write(data)
        while kind not in {b"Q", b"E"}:
            kind, data = await received(self._client)
            self._to_server.write(data)
        over = self._idle
        if kind == b"E":
            # Only a statement that is followed by a Sync is a transaction of its own.
            kind, data = await received(self._client)
            over = self._idle if kind == b"S" else self._done
            self._to_server.write(data if kind == b"S" else FLUSH)
        if when == "after":
            await over.wait()
        await self._end()

    async def _end(self) -> None:
        """End the server's side, and wait until it is gone."""
        # The server's own wait would look only every 0.1 s.
        await self._wire.end(self._pid)
        await self._gone.wait()

    async def _answer(self) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                kind, data = await received(self._server)
                if kind == b"K":
                    (self._pid,) = PID.unpack(data[5:9])
                if kind in {b"C", b"E"}:
                    self._done.set()
                if kind == b"Z":
                    self._idle.set()
                if not self._held:
                    self._to_client.write(data)
        for each in (self._done, self._idle, self._gone):
            each.set()
        self._to_server.close()
        self._to_client.close()


class Wire:
    """What stands between a store and its server.

    Args:
        admin: A session of its own, which ends the others.
        directory: Where its socket is.

    Attributes:
        statements: How many statements were begun since `aim`.
    """

    def __init__(self, admin: psycopg.AsyncConnection[tuple[object, ...]], directory: Path) -> None:
        self._admin, self._directory = admin, directory
        self._at = 0
        self._when: When = "before"
        self._carrying: set[asyncio.Task[None]] = set()
        self.statements = 0

    @property
    def dsn(self) -> str:
        """How a store reaches the server over this wire."""
        return make_conninfo(postgres.dsn(), host=str(self._directory), port=5432)

    def aim(self, at: int, when: When = "before") -> None:
        """Count anew, and end the session of a statement: 1 is the first, 0 none."""
        self._at, self._when, self.statements = at, when, 0

    def strikes(self) -> When | None:
        """Count a statement, and tell when its session ends, if it does."""
        self.statements += 1
        return self._when if self.statements == self._at else None

    async def end(self, pid: int) -> None:
        """End a session of the server."""
        await self._admin.execute("SELECT pg_terminate_backend(%s)", (pid,))

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry the messages of one session."""
        parts = conninfo_to_dict(postgres.dsn())
        path = f"{parts['host']}/.s.PGSQL.{parts.get('port', 5432)}"
        server = await asyncio.open_unix_connection(path)
        session = asyncio.create_task(Session(self, (reader, writer), server).run())
        self._carrying.add(session)
        session.add_done_callback(self._carrying.discard)

    async def still(self) -> None:
        """Return when all sessions are over."""
        await asyncio.gather(*self._carrying)


@asynccontextmanager
async def laid_wire() -> AsyncIterator[Wire]:
    """Lay a wire to the server that the tests have started."""
    with tempfile.TemporaryDirectory(prefix="soev-", dir="/tmp") as directory:
        async with await psycopg.AsyncConnection.connect(postgres.dsn(), autocommit=True) as admin:
            wire = Wire(admin, Path(directory))
            path = f"{directory}/.s.PGSQL.5432"
            async with await asyncio.start_unix_server(wire.connected, path):
                try:
                    yield wire
                finally:
                    await wire.still()
