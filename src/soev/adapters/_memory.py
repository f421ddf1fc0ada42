"""A trace store in the memory of one process: the model that the others are compared with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from soev import domain
from soev.adapters import _rows as rows
from soev.domain import Clock, Head, Lease, Page, StoredEvent, ThreadInfo, reached

Entry = domain.LogEntry[StoredEvent]


@dataclass(slots=True)
class _Log:
    """One thread: its head row, its events, and which append they came with."""

    row: rows.ThreadRow
    entries: list[Entry] = field(default_factory=list)
    seqs: dict[str, int] = field(default_factory=dict)
    batches: dict[int, tuple[str, int]] = field(default_factory=dict)

    def extend(self, entries: Iterable[Entry]) -> None:
        self.entries.extend(entries)
        last = self.entries[-1]
        self.row.position, self.row.updated = last.position, last.event.ts or rows.EPOCH

    def info(self, now: datetime) -> ThreadInfo:
        self.row.settle(now)
        return rows.info_of(self.row, self.entries[0].event, self.entries[-1].event, now)


class InMemoryTraceStore:
    """A trace store that lasts as long as the object. It keeps to the whole store contract.

    Args:
        clock: The clock of timestamps and leases.
        max_event: The most bytes of one event's payload.
        max_batch: The most bytes of the payloads of one append.
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        max_event: int = rows.MAX_EVENT_BYTES,
        max_batch: int = rows.MAX_BATCH_BYTES,
    ) -> None:
        self._clock = clock or rows.SystemClock()
        self._limits = rows.Limits(max_event, max_batch)
        self._logs: dict[str, _Log] = {}
        self._waiters = rows.Waiters()

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
        call = rows.Appending(thread_id, events, after, batch, lease, release)
        call.check(self._limits)
        return rows.performed("append", lambda: self._append(call))

    def _append(self, call: rows.Appending) -> list[Entry]:
        log, now, position = self._logs.get(call.thread_id), self._clock.now(), call.after.position
        if log is not None and rows.may_repeat(log.row, call.after):
            stored, count = log.batches.get(position + 1, ("", 0))
            if stored == call.batch and count:
                return log.entries[position : position + count]
        rows.refuse_append(log.row if log else None, call, now)
        if log is None:
            agent, life = rows.agent_of(call.events[0]), rows.new_incarnation()
            log = _Log(rows.ThreadRow(call.thread_id, life, agent, 0, now))
            self._logs[call.thread_id] = log
        entries = rows.seal(call.events, position, log.seqs, max(now, log.row.updated))
        if entries:
            log.batches[position + 1] = call.batch, len(entries)
            log.extend(entries)
            self._waiters.wake(call.thread_id)
        if call.release:
            log.row.release()
        return entries

    async def read(self, thread_id: str, *, after: int = 0, limit: int | None = None) -> Page:
        """Read the events after a position."""
        reached("store.read.sending")
        log = self._logs.get(thread_id)
        stop = None if limit is None else max(after, 0) + limit
        return Page(log.entries[max(after, 0) : stop] if log else [], self._head(thread_id))

    async def read_back(self, thread_id: str, *, before: Head) -> AsyncIterator[Entry]:
        """Yield the events up to a head, the newest first."""
        stop = before.position
        for size in rows.page_sizes():
            reached("store.read_back.sending")
            log = self._logs.get(thread_id)
            if log is None or log.row.incarnation != before.incarnation:
                raise domain.UnknownThreadError(thread_id)
            for entry in log.entries[max(stop - size, 0) : stop][::-1]:
                yield entry
            stop -= size
            if stop <= 0:
                return

    async def head(self, thread_id: str) -> Head:
        """Read where a thread stands."""
        reached("store.head.sending")
        return self._head(thread_id)

    def _head(self, thread_id: str) -> Head:
        log, now = self._logs.get(thread_id), self._clock.now()
        return log.row.seen(now) if log is not None else Head(now=now)

    async def wait(self, thread_id: str, *, after: Head, timeout: float) -> Head:
        """Wait until a thread's position passes a head's or its incarnation differs."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        with self._waiters.listen(thread_id) as bell:
            while not rows.moved(head := await self.head(thread_id), after):
                if (left := deadline - loop.time()) <= 0:
                    break
                await bell.heard(left)
        return head

    async def threads(
        self, *, agent: str | None = None, before: ThreadInfo | None = None, limit: int = 50
    ) -> Sequence[ThreadInfo]:
        """List threads, those with the newest activity first."""
        reached("store.threads.sending")
        chosen = [log for log in self._logs.values() if agent in {None, log.row.agent}]
        if before is not None:
            last = before.updated, before.thread_id
            chosen = [log for log in chosen if log.row.activity() < last]
        chosen.sort(key=lambda log: log.row.activity(), reverse=True)
        return [log.info(self._clock.now()) for log in chosen[: max(limit, 0)]]

    async def copy(self, thread_id: str, new_id: str, *, through: int) -> None:
        """Copy a thread's first events into a new thread, envelopes included."""
        rows.performed("copy", lambda: self._copy(thread_id, new_id, through))

    def _copy(self, thread_id: str, new_id: str, through: int) -> None:
        if new_id in self._logs:
            raise domain.ThreadExistsError(new_id)
        source, last = self._known(thread_id), self._known(thread_id).row.position
        if not 1 <= through <= last or source.entries[through - 1].event.left:
            nearest = rows.ends_around(source.entries, through) if 1 <= through <= last else ()
            raise domain.PositionOutOfRangeError(thread_id, through, last, nearest)
        row = rows.ThreadRow(new_id, rows.new_incarnation(), source.row.agent, 0, rows.EPOCH)
        log = self._logs[new_id] = _Log(row)
        log.extend(source.entries[:through])
        log.seqs = {entry.event.stream: entry.event.seq or 0 for entry in log.entries}
        self._waiters.wake(new_id)

    def _known(self, thread_id: str) -> _Log:
        if thread_id not in self._logs:
            raise domain.UnknownThreadError(thread_id)
        return self._logs[thread_id]

    async def delete(self, thread_id: str, *, incarnation: str | None = None) -> None:
        """Remove a thread's log and lease."""
        rows.performed("delete", lambda: self._delete(thread_id, incarnation))
        self._waiters.wake(thread_id)

    def _delete(self, thread_id: str, incarnation: str | None) -> None:
        if thread_id in self._logs and incarnation in {None, self._logs[thread_id].row.incarnation}:
            del self._logs[thread_id]

    async def acquire(self, thread_id: str, owner: str, ttl: float, *, request: str) -> Lease:
        """Take a thread's lease."""
        return rows.performed("acquire", lambda: self._acquire(thread_id, owner, ttl, request))

    def _acquire(self, thread_id: str, owner: str, ttl: float, request: str) -> Lease:
        return self._known(thread_id).row.acquire(owner, ttl, request, self._clock.now())

    async def renew(self, lease: Lease, ttl: float) -> tuple[Lease, Head]:
        """Extend a lease that nobody else took, and read the head."""
        return rows.performed("renew", lambda: self._renew(lease, ttl))

    def _renew(self, lease: Lease, ttl: float) -> tuple[Lease, Head]:
        log, now = self._logs.get(lease.thread_id), self._clock.now()
        if log is not None:
            return log.row.renew(lease, ttl, now), log.row.head(now)
        raise domain.LeaseLostError(lease)

    async def release(self, lease: Lease) -> None:
        """Give a lease back. One that is no longer held is left as it is."""
        rows.performed("release", lambda: self._release(lease))

    def _release(self, lease: Lease) -> None:
        if lease.thread_id in self._logs:
            self._logs[lease.thread_id].row.let_go(lease)
