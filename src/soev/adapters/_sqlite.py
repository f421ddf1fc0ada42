"""A trace store in one SQLite file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar
from weakref import finalize

from soev.adapters import _tables as tables
from soev.adapters._database import Database, File, pragma
from soev.adapters._rows import (
    EPOCH,
    MAX_BATCH_BYTES,
    MAX_EVENT_BYTES,
    Appending,
    Limits,
    SystemClock,
    Waiters,
    agent_of,
    info_of,
    may_repeat,
    moved,
    new_incarnation,
    page_sizes,
    refuse_append,
    seal,
)
from soev.adapters._worker import Worker
from soev.domain import (
    Clock,
    Head,
    Lease,
    LeaseLostError,
    LogEntry,
    OutcomeUnknownError,
    Page,
    PositionOutOfRangeError,
    StoredEvent,
    StoreUnavailableError,
    ThreadExistsError,
    ThreadInfo,
    UnknownThreadError,
    reached,
)

T = TypeVar("T")
Entry = LogEntry[StoredEvent]
POLL = 0.1


class SqliteTraceStore:
    """A trace store in one SQLite file, for the processes of one machine.

    Every commit is on the disk before it is answered. The file is opened at the first call, and
    two threads own its connections, one to write and one to read, until `close`. It must lie on a
    local file system.

    Args:
        path: The file. It is made when it is not there; its directory must be.
        clock: The clock of timestamps and leases.
        patience: The most seconds to wait for other processes before a call is unavailable. Keep
            it under a third of the shortest lease.
        max_event: The most bytes of one event's payload.
        max_batch: The most bytes of the payloads of one append.

    Raises:
        ValueError: The path names no file.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        clock: Clock | None = None,
        patience: float = 2.0,
        max_event: int = MAX_EVENT_BYTES,
        max_batch: int = MAX_BATCH_BYTES,
    ) -> None:
        name = fspath(path)
        if name in {"", ":memory:"} or name.startswith("file:"):
            raise ValueError(
                f"`SqliteTraceStore` refuses {name!r}: it keeps threads in a file. Give it a path, "
                "or use `InMemoryTraceStore`."
            )
        self._clock = clock or SystemClock()
        self._limits = Limits(max_event, max_batch)
        self._waiters = Waiters()
        self._set_back = False
        file = File(Path(name), tables.MIGRATIONS, patience)
        self._writer = Worker(file, "write", self._waiters.wake)
        self._reader = Worker(file, "read", self._waiters.wake)
        self._finalizer = finalize(self, _stop, self._reader, self._writer)

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
        """Answer the calls that are under way, then close the file. Later calls are refused."""
        self._finalizer.detach()
        for worker in (self._reader, self._writer):
            await worker.stopped()

    async def _write(self, operation: str, thread_id: str, work: Callable[[Database], T]) -> T:
        reached(f"store.{operation}.sending")
        job = self._writer.submit(operation, thread_id, work)
        reached(f"store.{operation}.sent")
        answer = await job.future
        reached(f"store.{operation}.answered")
        return answer

    async def _read(self, operation: str, thread_id: str, work: Callable[[Database], T]) -> T:
        reached(f"store.{operation}.sending")
        answer = await self._reader.submit(operation, thread_id, work).future
        if self._set_back:
            self._set_back = False
            try:
                await self._writer.submit(operation, thread_id, self._settle_leases).future
            except OutcomeUnknownError as error:  # a read is repeated, whatever became of it
                raise StoreUnavailableError(operation, error.reason) from None
        return answer

    def _settle_leases(self, database: Database) -> None:
        tables.settle_leases(database, self._clock.now())

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

    def _append(self, call: Appending, database: Database) -> list[Entry]:
        row, now = tables.find(database, call.thread_id), self._clock.now()
        position = call.after.position
        if row is not None and may_repeat(row, call.after):
            stored = tables.batch_at(database, row, position + 1, call.batch)
            if stored is not None:
                return stored
        refuse_append(row, call, now)
        if row is None:
            agent = agent_of(call.events[0])
            row = tables.Row(call.thread_id, new_incarnation(), agent, 0, EPOCH)
            tables.create(database, row)
        streams = tables.Streams.of(database, row, call.events)
        ts = max(now, row.updated)
        entries = seal(call.events, position, streams.seqs, ts)
        if entries:
            row.position, row.updated = entries[-1].position, ts
            streams.save(database, row)
            tables.insert(database, row, entries, streams, call.batch)
            tables.save_position(database, row)
            database.touched.add(call.thread_id)
        if call.release:
            row.release()
            tables.save_lease(database, row)
        return entries

    async def read(self, thread_id: str, *, after: int = 0, limit: int | None = None) -> Page:
        """Read the events after a position."""
        return await self._read("read", thread_id, partial(self._page, thread_id, after, limit))

    def _page(self, thread_id: str, after: int, limit: int | None, database: Database) -> Page:
        row, head = self._look(thread_id, database)
        after = max(after, 0)
        if row is None or after >= row.position:
            return Page([], head)
        last = row.position if limit is None else min(row.position, after + limit)
        return Page(list(tables.entries(database, row, after + 1, last)), head)

    def _look(self, thread_id: str, database: Database) -> tuple[tables.Row | None, Head]:
        row = tables.find(database, thread_id)
        return row, self._seen(row) if row else Head(now=self._clock.now())

    def _seen(self, row: tables.Row) -> Head:
        """Return a row's head, and note a lease that a clock set back has put off."""
        now = self._clock.now()
        if row.settle(now):
            self._set_back = True
        return row.head(now)

    async def read_back(self, thread_id: str, *, before: Head) -> AsyncIterator[Entry]:
        """Yield the events up to a head, the newest first."""
        last = before.position
        for size in page_sizes():
            work = partial(self._page_back, thread_id, before, last - size + 1, last)
            for entry in await self._read("read_back", thread_id, work):
                yield entry
            last -= size
            if last <= 0:
                return

    def _page_back(
        self, thread_id: str, before: Head, first: int, last: int, database: Database
    ) -> list[Entry]:
        row = tables.find(database, thread_id)
        if row is None or row.incarnation != before.incarnation:
            raise UnknownThreadError(thread_id)
        return list(tables.entries(database, row, first, last, newest_first=True))

    async def head(self, thread_id: str) -> Head:
        """Read where a thread stands."""
        _, head = await self._read("head", thread_id, partial(self._look, thread_id))
        return head

    async def wait(self, thread_id: str, *, after: Head, timeout: float) -> Head:
        """Wait until a thread's position passes a head's or its incarnation differs.

        An append of this process wakes it at once, one of another process within 0.1 s.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        version = None
        with self._waiters.listen(thread_id) as bell:
            while True:
                work = partial(self._changed, thread_id, version)
                version, head = await self._read("wait", thread_id, work)
                left = deadline - loop.time()
                if head is not None and moved(head, after):
                    return head
                if left <= 0:
                    return head or await self.head(thread_id)
                await bell.heard(min(left, POLL))

    def _changed(
        self, thread_id: str, known: int | None, database: Database
    ) -> tuple[int, Head | None]:
        """Read the head, unless no other connection has committed since a version of the file."""
        version: int = pragma(database.connection, "data_version")
        return version, None if version == known else self._look(thread_id, database)[1]

    async def threads(
        self, *, agent: str | None = None, before: ThreadInfo | None = None, limit: int = 50
    ) -> Sequence[ThreadInfo]:
        """List threads, those with the newest activity first."""
        return await self._read("threads", "", partial(self._infos, agent, before, limit))

    def _infos(
        self, agent: str | None, before: ThreadInfo | None, limit: int, database: Database
    ) -> list[ThreadInfo]:
        rows, now = tables.rows(database, agent, before, limit), self._clock.now()
        for row in rows:
            self._seen(row)
        return [info_of(row, *tables.ends(database, row), now) for row in rows]

    async def copy(self, thread_id: str, new_id: str, *, through: int) -> None:
        """Copy a thread's first events into a new thread, envelopes included."""
        await self._write("copy", new_id, partial(self._copy, thread_id, new_id, through))

    def _copy(self, thread_id: str, new_id: str, through: int, database: Database) -> None:
        if tables.find(database, new_id) is not None:
            raise ThreadExistsError(new_id)
        source = tables.find(database, thread_id)
        if source is None:
            raise UnknownThreadError(thread_id)
        if not 1 <= through <= source.position:
            raise PositionOutOfRangeError(thread_id, through, source.position)
        last = tables.cut(database, source, through)
        if isinstance(last, tuple):
            raise PositionOutOfRangeError(thread_id, through, source.position, last)
        updated = last.event.ts or EPOCH
        row = tables.Row(new_id, new_incarnation(), source.agent, through, updated)
        tables.create(database, row)
        tables.copy(database, source, row)
        database.touched.add(new_id)

    async def delete(self, thread_id: str, *, incarnation: str | None = None) -> None:
        """Remove a thread's log and lease, and every trace of them in the file."""
        await self._write("delete", thread_id, partial(self._delete, thread_id, incarnation))

    def _delete(self, thread_id: str, incarnation: str | None, database: Database) -> None:
        row = tables.find(database, thread_id)
        if row is not None and incarnation in {None, row.incarnation}:
            tables.remove(database, row)
            database.touched.add(thread_id)
            database.scrub = True

    async def acquire(self, thread_id: str, owner: str, ttl: float, *, request: str) -> Lease:
        """Take a thread's lease."""
        work = partial(self._acquire, thread_id, owner, ttl, request)
        return await self._write("acquire", thread_id, work)

    def _acquire(
        self, thread_id: str, owner: str, ttl: float, request: str, database: Database
    ) -> Lease:
        row, now = tables.find(database, thread_id), self._clock.now()
        if row is None:
            raise UnknownThreadError(thread_id)
        if row.settle(now):
            tables.save_lease(database, row)
        lease = row.acquire(owner, ttl, request, now)
        tables.save_lease(database, row)
        return lease

    async def renew(self, lease: Lease, ttl: float) -> tuple[Lease, Head]:
        """Extend a lease that nobody else took, and read the head."""
        return await self._write("renew", lease.thread_id, partial(self._renew, lease, ttl))

    def _renew(self, lease: Lease, ttl: float, database: Database) -> tuple[Lease, Head]:
        row, now = tables.find(database, lease.thread_id), self._clock.now()
        if row is None:
            raise LeaseLostError(lease)
        renewed = row.renew(lease, ttl, now)
        tables.save_lease(database, row)
        return renewed, row.head(now)

    async def release(self, lease: Lease) -> None:
        """Give a lease back. One that is no longer held is left as it is."""
        await self._write("release", lease.thread_id, partial(self._release, lease))

    def _release(self, lease: Lease, database: Database) -> None:
        row = tables.find(database, lease.thread_id)
        if row is not None and row.let_go(lease):
            tables.save_lease(database, row)


def _stop(*workers: Worker) -> None:
    """Let go of the file of a store that nobody closed."""
    for worker in workers:
        worker.abandon()
