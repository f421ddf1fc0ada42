"""A trace store in a PostgreSQL database, for many machines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

from soev.adapters._postgres._schema import check_name
from soev.adapters._postgres._session import Session
from soev.adapters._postgres._statements import Entry, Row, Statements
from soev.adapters._rows import (
    MAX_BATCH_BYTES,
    MAX_EVENT_BYTES,
    Appending,
    Limits,
    Waiters,
    may_repeat,
    moved,
    page_sizes,
    refuse_append,
)
from soev.domain import (
    Head,
    Lease,
    LeaseHeldError,
    LeaseLostError,
    OutcomeUnknownError,
    Page,
    StoredEvent,
    StoreUnavailableError,
    ThreadExistsError,
    ThreadInfo,
    UnknownThreadError,
    reached,
)

T = TypeVar("T")
Work = Callable[[Session], Awaitable[T]]
POLL = 0.25
POLL_BESIDE_HINTS = 1.0


class PostgresTraceStore:
    """A trace store in a PostgreSQL database, for the processes of many machines.

    The first call connects, and makes the tables where they are not there yet. Appends to one
    thread are ordered by the lock of its row. Nothing is kept in a session of the server, so a
    pooler that shares connections by transaction may stand in between. Leases and timestamps go
    by the server's clock.

    Args:
        dsn: The server, as a connection string or URI. It appears in no text that the store makes.
        schema: The schema of the store's tables.
        patience: The most seconds of a call before it is unavailable or its outcome unknown. Keep
            it under a third of the shortest lease.
        connections: The most connections at a time.
        listen: Whether to hear of other processes' appends at once, on a connection of its own.
            Name another DSN where `dsn` leads to a pooler. Without it, waits look every 0.25 s.
        max_event: The most bytes of one event's payload.
        max_batch: The most bytes of the payloads of one append.

    Raises:
        ImportError: `psycopg` is not installed.
        ValueError: The DSN or the name of the schema cannot be used.
    """

    def __init__(  # noqa: PLR0913 -- each is an option of its own, three of them every store's
        self,
        dsn: str,
        *,
        schema: str = "soev",
        patience: float = 2.0,
        connections: int = 16,
        listen: bool | str = True,
        max_event: int = MAX_EVENT_BYTES,
        max_batch: int = MAX_BATCH_BYTES,
    ) -> None:
        try:
            from soev.adapters._postgres._hints import Hints  # noqa: PLC0415 -- an optional client
            from soev.adapters._postgres._link import Address, Link  # noqa: PLC0415 -- the same
        except ImportError as error:
            raise ImportError(
                "`PostgresTraceStore` needs psycopg. "
                "Install it with `pip install 'soev[postgres]'`."
            ) from error
        self._link = Link(dsn, check_name(schema), patience, connections)
        self._limits = Limits(max_event, max_batch)
        self._statements = Statements(schema)
        self._waiters = Waiters()
        self._hints: Hints | None = None
        if listen:
            address = Address(listen, patience) if isinstance(listen, str) else self._link.address
            self._hints = Hints(self._link, address, schema, self._waiters.wake)
        self._set_back = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Answer the calls that are under way, then disconnect. Later calls are refused."""
        if self._hints is not None:
            await self._hints.close()
        await self._link.close()

    async def _write(self, operation: str, thread_id: str, work: Work[T]) -> T:
        reached(f"store.{operation}.sending")
        under_way = self._link.submit(operation, thread_id, work)
        reached(f"store.{operation}.sent")
        answer = await under_way
        reached(f"store.{operation}.answered")
        return answer

    async def _read(self, operation: str, thread_id: str, work: Work[T]) -> T:
        reached(f"store.{operation}.sending")
        answer = await self._link.submit(operation, thread_id, work)
        if self._set_back:
            self._set_back = False
            settle = self._statements.settle_leases
            try:
                await self._link.submit(operation, thread_id, settle)
            except OutcomeUnknownError as error:  # a read is repeated, whatever became of it
                raise StoreUnavailableError(operation, error.reason) from None
        return answer

    def _changed(self, thread_id: str) -> None:
        self._waiters.wake(thread_id)
        if self._hints is not None:
            self._hints.tell(thread_id)

    async def append(
        self,
        thread_id: str,
        events: Sequence[StoredEvent],
        *,
        after: Head,
        batch: str,
        lease: Lease | None = None,
        release: bool = False,
    ) -> Sequence[Entry]:
        """Append events to a thread, all of them or none."""
        call = Appending(thread_id, events, after, batch, lease, release)
        call.check(self._limits)
        return await self._write("append", thread_id, partial(self._append, call))

    async def _append(self, call: Appending, session: Session) -> list[Entry]:
        while True:
            entries = None
            if _plain(call):
                entries = await self._statements.append(session, call)
            if entries is None:
                session.sent = False  # what answers no row has changed nothing
                entries = await self._under_lock(call, session)
            if entries is not None:
                if entries:
                    self._changed(call.thread_id)
                return entries

    async def _under_lock(self, call: Appending, session: Session) -> list[Entry] | None:
        """Decide an append in the order of the contract; None when it may be stored now."""
        now, row = await self._statements.lock(session, call.thread_id)
        if row is not None and may_repeat(row, call.after):
            first = call.after.position + 1
            stored = await self._statements.batch_at(session, row, first, call.batch)
            if stored is not None:
                # Its session may have ended while it waited for a standby, so this one waits too.
                await session.commit(self._statements.save_lease(row))
                return stored
        refuse_append(row, call, now)
        if call.events or row is None:
            await session.tidy()
            return None
        row.release()
        await session.commit(self._statements.save_lease(row))
        return []

    async def read(self, thread_id: str, *, after: int = 0, limit: int | None = None) -> Page:
        """Read the events after a position."""

        async def work(session: Session) -> Page:
            now, row, entries = await self._statements.page(session, thread_id, after, limit)
            return Page(entries, self._seen(now, row))

        return await self._read("read", thread_id, work)

    def _seen(self, now: datetime, row: Row | None) -> Head:
        """Return a row's head, and note a lease that a clock set back has put off."""
        if row is None:
            return Head(now=now)
        if row.settle(now):
            self._set_back = True
        return row.head(now)

    async def read_back(self, thread_id: str, *, before: Head) -> AsyncIterator[Entry]:
        """Yield the events up to a head, the newest first."""
        last = before.position
        for size in page_sizes():
            work = partial(
                self._statements.page_back,
                thread_id=thread_id,
                life=before.incarnation,
                first=last - size + 1,
                last=last,
            )
            entries = await self._read("read_back", thread_id, work)
            if entries is None:
                raise UnknownThreadError(thread_id)
            for entry in entries:
                yield entry
            last -= size
            if last <= 0:
                return

    async def head(self, thread_id: str) -> Head:
        """Read where a thread stands."""
        return await self._look("head", thread_id)

    async def _look(self, operation: str, thread_id: str) -> Head:
        async def work(session: Session) -> Head:
            return self._seen(*await self._statements.find(session, thread_id))

        return await self._read(operation, thread_id, work)

    async def wait(self, thread_id: str, *, after: Head, timeout: float) -> Head:
        """Wait until a thread's position passes a head's or its incarnation differs.

        An append of this process wakes it at once, and so does one of another process when the
        store listens; in any case it looks once a second.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        with self._waiters.listen(thread_id) as bell:
            while not moved(head := await self._look("wait", thread_id), after):
                left = deadline - loop.time()
                if left <= 0:
                    break
                poll = POLL
                if self._hints is not None:
                    self._hints.listen()
                    poll = POLL_BESIDE_HINTS if self._hints.live else POLL
                await bell.heard(min(left, poll))
        return head

    async def threads(
        self, *, agent: str | None = None, before: ThreadInfo | None = None, limit: int = 50
    ) -> Sequence[ThreadInfo]:
        """List threads, those with the newest activity first."""

        async def work(session: Session) -> list[ThreadInfo]:
            now, rows = await self._statements.threads(session, agent, before, limit)
            for row in rows:
                self._seen(now, row)
            return [row.info(now) for row in rows]

        return await self._read("threads", "", work)

    async def copy(self, thread_id: str, new_id: str, *, through: int) -> None:
        """Copy a thread's first events into a new thread, envelopes included."""
        await self._write("copy", new_id, partial(self._copy, thread_id, new_id, through))

    async def _copy(self, thread_id: str, new_id: str, through: int, session: Session) -> None:
        _, source = await self._statements.lock(session, thread_id, shared=True)
        _, taken = await self._statements.find(session, new_id)
        if taken is not None:
            raise ThreadExistsError(new_id)
        if source is None:
            raise UnknownThreadError(thread_id)
        if not await self._statements.copy(session, source, new_id, through):
            raise ThreadExistsError(new_id)
        self._changed(new_id)

    async def delete(self, thread_id: str, *, incarnation: str | None = None) -> None:
        """Remove a thread's log and lease."""
        await self._write("delete", thread_id, partial(self._delete, thread_id, incarnation))

    async def _delete(self, thread_id: str, incarnation: str | None, session: Session) -> None:
        _, row = await self._statements.lock(session, thread_id)
        if row is not None and incarnation in {None, row.incarnation}:
            await session.commit(*self._statements.delete(row))
            self._changed(thread_id)

    async def acquire(self, thread_id: str, owner: str, ttl: float, *, request: str) -> Lease:
        """Take a thread's lease."""
        work = partial(self._acquire, thread_id, owner, ttl, request)
        return await self._write("acquire", thread_id, work)

    async def _acquire(
        self, thread_id: str, owner: str, ttl: float, request: str, session: Session
    ) -> Lease:
        taken = await self._statements.acquire(session, thread_id, owner, ttl, request)
        if taken is not None:
            return taken
        session.sent = False  # what answers no row has changed nothing
        now, row = await self._statements.lock(session, thread_id)
        if row is None:
            raise UnknownThreadError(thread_id)
        settled = row.settle(now)
        try:
            lease = row.acquire(owner, ttl, request, now)
        except LeaseHeldError:
            if settled:
                await session.commit(self._statements.save_lease(row))
            raise
        await session.commit(self._statements.save_lease(row))
        return lease

    async def renew(self, lease: Lease, ttl: float) -> tuple[Lease, Head]:
        """Extend a lease that nobody else took, and read the head."""
        return await self._write("renew", lease.thread_id, partial(self._renew, lease, ttl))

    async def _renew(self, lease: Lease, ttl: float, session: Session) -> tuple[Lease, Head]:
        now, row = await self._statements.lock(session, lease.thread_id)
        if row is None:
            raise LeaseLostError(lease)
        renewed = row.renew(lease, ttl, now)
        await session.commit(self._statements.save_lease(row))
        return renewed, row.head(now)

    async def release(self, lease: Lease) -> None:
        """Give a lease back. One that is no longer held is left as it is."""
        await self._write("release", lease.thread_id, partial(self._release, lease))

    async def _release(self, lease: Lease, session: Session) -> None:
        _, row = await self._statements.lock(session, lease.thread_id)
        if row is not None and row.let_go(lease):
            await session.commit(self._statements.save_lease(row))


def _plain(call: Appending) -> bool:
    """Tell whether one statement can decide an append, if nothing stands in its way."""
    if not call.events:
        return False
    life, lease = call.after.incarnation, call.lease
    if life is None:
        return call.after.position == 0 and lease is None
    return lease is None or lease.incarnation == life
