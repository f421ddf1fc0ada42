"""What every store needs and the port does not give: checks, rows, sealed events and wake-ups."""

from __future__ import annotations

import asyncio
import json
import secrets
import threading
import time
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from soev.domain import (
    Head,
    Lease,
    LeaseHeldError,
    LeaseLostError,
    LogEntry,
    PositionConflictError,
    StoredEvent,
    ThreadInfo,
    UnencodableError,
    UnknownThreadError,
    reached,
)

T = TypeVar("T")

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MAX_EVENT_BYTES = 1 << 20
MAX_BATCH_BYTES = 8 << 20
FIRST_PAGE, LAST_PAGE = 32, 512
_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", None)


class SystemClock:
    """The clock of this machine."""

    def now(self) -> datetime:
        """Return the wall clock's time in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds that go on while the machine sleeps, where it has such a clock."""
        return time.monotonic() if _BOOT_CLOCK is None else time.clock_gettime(_BOOT_CLOCK)


def new_incarnation() -> str:
    """Return 128 random bits that name one life of a thread."""
    return secrets.token_hex(16)


@dataclass(frozen=True, slots=True)
class Limits:
    """How large what a store takes may be, in bytes of UTF-8.

    Args:
        event: The most bytes of one event's payload.
        batch: The most bytes of the payloads of one append.
    """

    event: int
    batch: int


@dataclass(frozen=True, slots=True)
class Appending:
    """The arguments of one append."""

    thread_id: str
    events: Sequence[StoredEvent]
    after: Head
    batch: str
    lease: Lease | None
    release: bool

    def check(self, limits: Limits) -> None:
        """Refuse what no store takes, before anything is sent.

        Raises:
            ValueError: No events without `release`, or `release` without a lease.
            UnencodableError: A text is no text, or a payload is too large.
        """
        if self.release and self.lease is None:
            raise ValueError(
                "`release=True` has no lease to end. Pass the lease that the run holds."
            )
        if not self.events and not self.release:
            raise ValueError("An append has no events. Pass at least one, or `release=True`.")
        total = 0
        for event in self.events:
            for text in (event.type, event.stream, event.origin, event.version):
                if text is not None and not text.isascii():
                    _size(event.type, text)
            size = _size(event.type, event.data)
            if size > limits.event:
                problem = f"{size} bytes pass the limit of {limits.event}"
                raise UnencodableError(event.type, "$", problem)
            total += size
        if total > limits.batch:
            problem = f"{total} bytes pass the limit of {limits.batch} for one append"
            raise UnencodableError("batch", "$", problem)


def _size(holder: str, text: str) -> int:
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise UnencodableError(holder, "$", "a lone surrogate is no character") from None


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """The lease of a thread as a store keeps it. The epoch stays when nobody holds the lease."""

    epoch: int = 0
    owner: str | None = None
    request: str | None = None
    expires: datetime = EPOCH
    ttl: timedelta = timedelta(0)

    def settled(self, now: datetime) -> LeaseRow:
        """Return the row with an expiry that a clock set back does not put off beyond the ttl."""
        latest = now + self.ttl
        if self.owner is None or self.expires <= latest:
            return self
        return replace(self, expires=latest)

    def valid(self, now: datetime) -> bool:
        """Tell whether somebody holds the lease now."""
        return self.owner is not None and now < self.expires


@dataclass(slots=True)
class ThreadRow:
    """The head row of a thread: where its log stands, and its lease."""

    thread_id: str
    incarnation: str
    agent: str | None
    position: int
    updated: datetime
    lease: LeaseRow = LeaseRow()

    def head(self, now: datetime) -> Head:
        """Return the thread's head at a moment."""
        return Head(self.position, self.incarnation, self.lease_at(now), now)

    def lease_at(self, now: datetime) -> Lease | None:
        """Return the lease that is valid at a moment, or None."""
        settled = self.lease.settled(now)
        return self._lease(settled) if settled.valid(now) else None

    def holds(self, lease: Lease) -> bool:
        """Tell whether a lease is the one of this row, whatever the time is."""
        return (
            self.incarnation == lease.incarnation
            and self.lease.owner == lease.owner
            and self.lease.epoch == lease.epoch
        )

    def settle(self, now: datetime) -> bool:
        """Bound the lease by its ttl from now on, and tell whether that changed the row."""
        before, self.lease = self.lease, self.lease.settled(now)
        return before is not self.lease

    def seen(self, now: datetime) -> Head:
        """Settle the lease and return the head."""
        self.settle(now)
        return self.head(now)

    def acquire(self, owner: str, ttl: float, request: str, now: datetime) -> Lease:
        """Take the lease.

        Raises:
            LeaseHeldError: Another lease is valid. The row may have changed: see `settle`.
        """
        self.settle(now)
        again = (self.lease.owner, self.lease.request) == (owner, request)
        held = None if again else self.lease_at(now)
        if held is not None:
            raise LeaseHeldError(self.thread_id, held)
        epoch = self.lease.epoch + (not again)
        span = timedelta(seconds=ttl)
        self.lease = LeaseRow(epoch, owner, request, now + span, span)
        return self._lease(self.lease)

    def renew(self, lease: Lease, ttl: float, now: datetime) -> Lease:
        """Extend the lease.

        Raises:
            LeaseLostError: The row's lease is another.
        """
        if not self.holds(lease):
            raise LeaseLostError(lease)
        span = timedelta(seconds=ttl)
        self.lease = replace(self.lease, expires=now + span, ttl=span)
        return self._lease(self.lease)

    def release(self) -> None:
        """End the lease."""
        self.lease = LeaseRow(self.lease.epoch)

    def let_go(self, lease: Lease) -> bool:
        """End a lease if it is this row's, and tell whether it was."""
        held = self.holds(lease)
        if held:
            self.release()
        return held

    def activity(self) -> tuple[datetime, str]:
        """Return what threads are listed by."""
        return self.updated, self.thread_id

    def _lease(self, row: LeaseRow) -> Lease:
        return Lease(self.thread_id, self.incarnation, row.owner or "", row.epoch, row.expires)


def info_of(row: ThreadRow, first: StoredEvent, last: StoredEvent, now: datetime) -> ThreadInfo:
    """Return what a list of threads shows of one at a moment."""
    created, lease = first.ts or EPOCH, row.lease_at(now)
    return ThreadInfo(
        row.thread_id, row.agent, row.position, created, row.updated, last.type, lease
    )


def performed(operation: str, work: Callable[[], T]) -> T:
    """Do what is sent and answered in one breath, and pass the fault points of a call."""
    reached(f"store.{operation}.sending")
    answer = work()
    reached(f"store.{operation}.sent")
    reached(f"store.{operation}.answered")
    return answer


def may_repeat(row: ThreadRow | None, after: Head) -> bool:
    """Tell whether an append may stand in the log already: in this life, or in a new thread's."""
    return row is not None and after.incarnation in (None, row.incarnation)


def refuse_append(row: ThreadRow | None, call: Appending, now: datetime) -> None:
    """Refuse an append whose batch is not there yet, in the order of the contract.

    Raises:
        UnknownThreadError: The thread, or its incarnation, is gone.
        LeaseLostError: The lease is another's.
        PositionConflictError: The log does not end where the caller read it.
    """
    after, lease = call.after, call.lease
    fresh = after.incarnation is None
    if not fresh and (row is None or row.incarnation != after.incarnation):
        raise UnknownThreadError(call.thread_id)
    if lease is not None and (row is None or not row.holds(lease)):
        raise LeaseLostError(lease)
    if row is None:
        if after.position:
            raise PositionConflictError(call.thread_id, after.position, Head(now=now))
    elif fresh or row.position != after.position:
        raise PositionConflictError(call.thread_id, after.position, row.head(now))


def seal(
    events: Sequence[StoredEvent], position: int, seqs: dict[str, int], ts: datetime
) -> list[LogEntry[StoredEvent]]:
    """Give events what a store sets: position, seq, ts and `left`.

    Args:
        events: The events of one append.
        position: The last position before them.
        seqs: The last seq of each stream; it is moved on.
        ts: When they are stored.
    """
    left = Counter(event.stream for event in events) if len(events) > 1 else None
    entries = []
    for event in events:
        stream = event.stream
        seqs[stream] = seq = seqs.get(stream, 0) + 1
        position += 1
        if left is not None:
            left[stream] -= 1
        entries.append(
            LogEntry(
                position,
                StoredEvent(
                    event.type,
                    event.data,
                    stream,
                    event.origin,
                    event.version,
                    seq,
                    ts,
                    left[stream] if left is not None else 0,
                ),
            )
        )
    return entries


def agent_of(first: StoredEvent) -> str | None:
    """Return the agent that a thread's first event names, or None."""
    if first.type != "opened":
        return None
    try:
        payload = json.loads(first.data)
    except ValueError:
        return None
    agent = payload.get("agent") if isinstance(payload, dict) else None
    return agent if isinstance(agent, str) else None


def ends_around(log: Sequence[LogEntry[StoredEvent]], position: int) -> tuple[int, ...]:
    """Return the ends of appends before and after a position that is none."""
    ends = [entry.position for entry in log if entry.event.left == 0]
    after = bisect(ends, position)
    return tuple(ends[max(after - 1, 0) : after + 1])


def moved(head: Head, after: Head) -> bool:
    """Tell whether a thread went on, or lives another life, since a head."""
    return head.position > after.position or head.incarnation != after.incarnation


def page_sizes() -> Iterator[int]:
    """Yield how many events each page of a backward read fetches: few, then more."""
    size = FIRST_PAGE
    while True:
        yield size
        size = min(2 * size, LAST_PAGE)


class Waiters:
    """The tasks that wait for threads to change. Each is woken in its own event loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bells: dict[str, set[Bell]] = {}

    @contextmanager
    def listen(self, thread_id: str) -> Iterator[Bell]:
        """Hear of a thread's changes as long as the block lasts."""
        bell = Bell()
        with self._lock:
            self._bells.setdefault(thread_id, set()).add(bell)
        try:
            yield bell
        finally:
            with self._lock:
                bells = self._bells[thread_id]
                bells.discard(bell)
                if not bells:
                    del self._bells[thread_id]

    def wake(self, thread_id: str) -> None:
        """Wake who waits for a thread. Any thread of the process may call it."""
        if thread_id in self._bells:
            with self._lock:
                bells = list(self._bells.get(thread_id, ()))
            for bell in bells:
                bell.ring()


class Bell:
    """A wake-up for one task, rung from anywhere."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Wake the task, unless its loop is over."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._rung.set)

    async def heard(self, timeout: float) -> None:
        """Wait for the bell, or until the time is over."""
        try:
            async with asyncio.timeout(timeout):
                await self._rung.wait()
        except TimeoutError:
            return
        self._rung.clear()
