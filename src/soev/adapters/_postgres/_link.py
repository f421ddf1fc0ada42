"""Connections to PostgreSQL: pools, deadlines, and what the server's errors mean."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, finalize

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import ConnStatus, TransactionStatus

from soev.adapters._postgres._schema import SchemaError, bring_up
from soev.adapters._postgres._session import Session
from soev.domain import OutcomeUnknownError, StoreError, StoreUnavailableError, UnencodableError

T = TypeVar("T")
Connection = psycopg.AsyncConnection[tuple[Any, ...]]
Cursor = psycopg.AsyncCursor[tuple[Any, ...]]
Work = Callable[[Session], Awaitable[T]]

AGAIN = frozenset({"40001", "40P01"})
UNKNOWN = frozenset({"08007", "40003"})
MOVED = frozenset({"25006"})
PAUSE = 0.01
SERVER_SHARE = 750  # milliseconds of the server's patience for a second of ours

_PARTS = ("host", "hostaddr", "port", "user", "password", "dbname", "service", "sslpassword")


class Broken(Exception):
    """PostgreSQL failed. It never leaves the adapter.

    Args:
        reason: What the server or its driver said, without any part of the DSN.
        sent: Whether the transaction may have been committed.
        again: Whether the server asks for the same transaction again.
    """

    def __init__(self, reason: str, *, sent: bool = False, again: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.sent, self.again = reason, sent, again

    def refusal(self, operation: str, thread_id: str) -> StoreError:
        """Return the store's answer."""
        if self.sent:
            return OutcomeUnknownError(thread_id, operation, self.reason)
        return StoreUnavailableError(operation, self.reason)


class Address:
    """Where the server is, and with what to log in. No text that it makes shows any of it.

    Args:
        dsn: A connection string or URI.
        patience: The most seconds that the network may keep what was sent.

    Raises:
        ValueError: The text is none.
    """

    def __init__(self, dsn: str, patience: float) -> None:
        try:
            parts = conninfo_to_dict(dsn)
            ours: dict[str, str | int] = {
                "application_name": "soev",
                "client_encoding": "utf8",
                "connect_timeout": max(2, round(patience)),
                "tcp_user_timeout": int(patience * 1000),
            }
            missing = {name: value for name, value in ours.items() if name not in parts}
            self._conninfo = make_conninfo(dsn, **missing)
        except psycopg.Error:
            raise ValueError(
                "`PostgresTraceStore` cannot read its DSN, which is not shown here. Pass one like "
                "'postgresql://user@host/database', with other characters percent-encoded."
            ) from None
        shown = {str(parts[name]) for name in _PARTS if parts.get(name)}
        words = sorted((re.escape(word) for word in shown), key=len, reverse=True)
        self._hidden = re.compile(rf"(?<!\w)(?:{'|'.join(words)})(?!\w)") if words else None

    def scrub(self, error: object) -> str:
        """Return an error's text in one line, without what the DSN says."""
        text = " ".join(str(error).split()) or type(error).__name__
        return self._hidden.sub("…", text) if self._hidden else text

    async def connect(self) -> Connection:
        """Open a connection in autocommit mode that prepares nothing.

        Raises:
            psycopg.OperationalError: There is none to be had.
        """
        try:
            return await psycopg.AsyncConnection.connect(
                self._conninfo, autocommit=True, prepare_threshold=None
            )
        except psycopg.Error as error:
            raise psycopg.OperationalError(self.scrub(error)) from None


class Local:
    """What a store has in one event loop: connections, and the calls under way.

    A pool of this size has no tasks of its own: connections are made by the calls that need them,
    which are told why there is none, and nothing is left behind in a loop that ends.

    Args:
        address: Where the server is.
        size: The most connections.
    """

    def __init__(self, address: Address, size: int) -> None:
        self._address, self._size = address, size
        self._tasks: set[asyncio.Task[Any]] = set()
        self._free = asyncio.Semaphore(size)
        # A cursor that is used again knows how the types of a statement are written and read.
        self._idle: list[Cursor] = []
        self._made: set[Cursor] = set()
        self.abandon = finalize(self, _finish, self._made, os.getpid())

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """Run something to its end, whatever becomes of who waits for its answer."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        answer.add_done_callback(_looked_at)
        task = loop.create_task(_deliver(work, answer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return answer

    async def borrow(self, deadline: float) -> Cursor:
        """Return a cursor of an open connection, as far as one can know without asking the server.

        Raises:
            Broken: There is none before the deadline.
        """
        if self._free.locked():
            try:
                async with asyncio.timeout_at(deadline):
                    await self._free.acquire()
            except TimeoutError:
                raise Broken(f"all {self._size} connections were busy") from None
        else:
            await self._free.acquire()
        try:
            while self._idle:
                cursor = self._idle.pop()
                if _usable(cursor.connection):
                    return cursor
                await self._drop(cursor)
            return await self._connect(deadline)
        except BaseException:
            self._free.release()
            raise

    async def _connect(self, deadline: float) -> Cursor:
        try:
            async with asyncio.timeout_at(deadline):
                connection = await self._address.connect()
        except TimeoutError:
            raise Broken("no connection: the server does not answer") from None
        except psycopg.Error as error:
            raise Broken(f"no connection: {error}") from None
        cursor = connection.cursor()
        self._made.add(cursor)
        return cursor

    async def give_back(self, cursor: Cursor) -> None:
        """Take a connection back for the next call, unless it is broken."""
        if cursor.connection.pgconn.transaction_status == TransactionStatus.IDLE:
            self._idle.append(cursor)
        else:
            await self._drop(cursor)
        self._free.release()

    async def _drop(self, cursor: Cursor) -> None:
        self._made.discard(cursor)
        await cursor.connection.close()

    async def close(self) -> None:
        """Wait for the calls under way, then close the connections."""
        while self._tasks:
            await asyncio.wait(self._tasks)
        for cursor in list(self._made):
            await self._drop(cursor)
        self._idle.clear()


def _finish(made: set[Cursor], process: int) -> None:
    """Close connections without an event loop.

    Those that a fork has copied are the parent's: their sockets are exchanged first, so that no
    farewell ends its sessions.
    """
    for connection in [cursor.connection for cursor in made]:
        if os.getpid() != process and not connection.closed:
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, connection.pgconn.socket)
            os.close(nowhere)
        connection.pgconn.finish()
    made.clear()


def _usable(connection: Connection) -> bool:
    """Tell whether the server has left a connection open, as far as its socket says."""
    try:
        for _ in range(2):  # the first look may find the server's farewell, the second the end
            connection.pgconn.consume_input()
    except psycopg.Error:
        return False
    return connection.pgconn.status == ConnStatus.OK


def _looked_at(answer: asyncio.Future[Any]) -> None:
    """Take an error as seen, since whoever waited for it may have gone."""
    if not answer.cancelled():
        answer.exception()


async def _deliver(work: Coroutine[Any, Any, T], answer: asyncio.Future[T]) -> None:
    try:
        outcome = await work
    except Exception as error:  # noqa: BLE001 -- whoever waits raises it
        if not answer.done():
            answer.set_exception(error)
    except BaseException:
        answer.cancel()
        raise
    else:
        if not answer.done():
            answer.set_result(outcome)


class Link:
    """A store's way to its server, from every event loop that it is used in.

    Args:
        dsn: The server.
        schema: The schema of the store's tables.
        patience: The most seconds of a call.
        size: The most connections of an event loop.
    """

    def __init__(self, dsn: str, schema: str, patience: float, size: int) -> None:
        self.address = Address(dsn, patience)
        self._schema, self._patience, self._size = schema, patience, size
        self._locals: WeakKeyDictionary[asyncio.AbstractEventLoop, Local] = WeakKeyDictionary()
        self._process = os.getpid()
        self._ready = self.closed = False

    def local(self) -> Local:
        """Return what belongs to the running event loop."""
        loop = asyncio.get_running_loop()
        if self._process != os.getpid():
            self._process = os.getpid()
            self._abandon_all()
        if loop not in self._locals:
            for other, local in list(self._locals.items()):
                if other.is_closed():
                    local.abandon()
            self._locals[loop] = Local(self.address, self._size)
        return self._locals[loop]

    def submit(self, operation: str, thread_id: str, work: Work[T]) -> asyncio.Future[T]:
        """Begin a call, which goes on to its end whatever becomes of who waits for it.

        Raises:
            StoreUnavailableError: The store is closed.
        """
        if self.closed:
            raise StoreUnavailableError(operation, "the store is closed")
        local = self.local()
        return local.start(self._perform(local, operation, thread_id, work))

    async def _perform(self, local: Local, operation: str, thread_id: str, work: Work[T]) -> T:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience
        try:
            while True:
                try:
                    if not self._ready:
                        await self._bring_up(local, deadline)
                    return await self._attempt(local, work, deadline)
                except Broken as broken:
                    if not broken.again or loop.time() + PAUSE > deadline:
                        raise
                await asyncio.sleep(PAUSE)
        except Broken as broken:
            raise broken.refusal(operation, thread_id) from None

    async def _attempt(self, local: Local, work: Work[T], deadline: float) -> T:
        cursor = await local.borrow(deadline)
        loop = asyncio.get_running_loop()
        # The server gives up first, so that its answer says what became of the transaction.
        session = Session(cursor, max(1, int((deadline - loop.time()) * SERVER_SHARE)))
        timer = loop.call_at(deadline, session.cut)
        try:
            return await work(session)
        except psycopg.Error as error:
            raise await self._broken(error, session) from None
        except UnicodeEncodeError:
            raise _no_text("a lone surrogate is no character") from None
        finally:
            if cursor.connection.pgconn.transaction_status != TransactionStatus.IDLE:
                await session.tidy()
            timer.cancel()
            await local.give_back(cursor)

    async def _bring_up(self, local: Local, deadline: float) -> None:
        try:
            await self._attempt(local, lambda session: bring_up(session, self._schema), deadline)
        except SchemaError as error:
            raise ValueError(f"`PostgresTraceStore` cannot use this database: {error}.") from None
        except Broken as broken:
            # Whatever became of the tables: the call itself was not sent, and may try it again.
            raise Broken(broken.reason, again=broken.again or broken.sent) from None
        self._ready = True

    async def _broken(self, error: psycopg.Error, session: Session) -> Exception:
        """Return what an error of the driver means: the one place that knows its errors."""
        state, diag = error.sqlstate, error.diag
        if state is None and isinstance(error, psycopg.DataError):
            return _no_text("PostgreSQL keeps no NUL character in a text")
        lost = isinstance(error, psycopg.OperationalError) and state is None
        fatal = lost or diag.severity_nonlocalized in {"FATAL", "PANIC"}
        if fatal or state in MOVED:
            await session.connection.close()
        said = self.address.scrub(diag.message_primary or error)
        reason = f"{said} ({state})" if state else said
        if session.is_cut:
            reason = f"no answer within {self._patience:g} s"
        sent = session.sent and (fatal or state is None or state in UNKNOWN)
        return Broken(reason, sent=sent, again=state in AGAIN or (fatal and not sent))

    async def close(self) -> None:
        """Wait for the calls under way in this event loop, then close all connections."""
        self.closed = True
        here = self._locals.pop(asyncio.get_running_loop(), None)
        if here is not None and self._process == os.getpid():
            await here.close()
        self._abandon_all()

    def _abandon_all(self) -> None:
        for local in list(self._locals.values()):
            local.abandon()
        self._locals.clear()


def _no_text(problem: str) -> UnencodableError:
    return UnencodableError("an id or a name", "$", problem)
