"""Ports: what the runtime asks of the outside."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Protocol

from soev.domain._chat import ChatDelta, ChatReply, ChatRequest, PreparedRequest
from soev.domain._lease import Head, Lease
from soev.domain._log import LogEntry, Page, StoredEvent, ThreadInfo


class Clock(Protocol):
    """Tells the time."""

    def now(self) -> datetime:
        """Return the wall clock's time in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never fall, and go on while the machine sleeps where they can."""
        ...


class Ids(Protocol):
    """Makes ids."""

    def new(self) -> str:
        """Return a fresh id of 128 random bits."""
        ...


class ChatModel(Protocol):
    """A model that answers a conversation.

    Making one and `prepare` need no key and open nothing; a key is read at the first send.

    Attributes:
        name: The model that is asked for when a request names none.
    """

    name: str

    def prepare(self, request: ChatRequest) -> PreparedRequest | None:
        """Return what would go over the wire, or None when the adapter cannot say. No I/O."""
        ...

    def stream(self, request: ChatRequest) -> AsyncIterator[ChatDelta | ChatReply]:
        """Send a request and yield the answer as it is written, the whole reply last.

        Raises:
            TransientError: The provider failed for a moment.
            RealModelBlockedError: Real models are blocked.
        """
        ...


class TraceStore(Protocol):
    """Keeps, for each thread, a log of events and one lease.

    Every answer is a result or one of the errors named here and in the store contract; a
    driver's exception never leaves. A write that may have been stored without an answer raises
    OutcomeUnknownError, one that certainly was not StoreUnavailableError.
    """

    async def append(
        self,
        thread_id: str,
        events: Sequence[StoredEvent],
        *,
        after: Head,
        batch: str,
        lease: Lease | None = None,
        release: bool = False,
    ) -> Sequence[LogEntry[StoredEvent]]:
        """Append events to a thread, all of them or none.

        The store gives each event its position, seq, timestamp and `left`.

        Args:
            thread_id: The thread.
            events: The events, in the order to record them. At least one, except with `release`.
            after: The head that the caller has read. `Head()` makes a new thread.
            batch: A fresh id of this append, the same one when the call is repeated.
            lease: The caller's lease, when it runs the thread.
            release: Whether the lease ends in the same transaction.

        Returns:
            The log entries, in the same order; those of the first time when the batch is there.

        Raises:
            UnknownThreadError: The thread, or its incarnation, is gone.
            LeaseLostError: The lease is another's.
            PositionConflictError: Another append came first.
            UnencodableError: An event or the batch is too large.
            ValueError: No events without `release`, or `release` without a lease.
        """
        ...

    async def read(self, thread_id: str, *, after: int = 0, limit: int | None = None) -> Page:
        """Read the events after a position. An unknown thread has an empty page.

        Args:
            thread_id: The thread.
            after: The position to read after, 0 from the start.
            limit: The most entries to return, None for all.
        """
        ...

    def read_back(self, thread_id: str, *, before: Head) -> AsyncIterator[LogEntry[StoredEvent]]:
        """Yield the events up to a head, the newest first, fetched in pages.

        Raises:
            UnknownThreadError: The thread is unknown, or lives another incarnation.
        """
        ...

    async def head(self, thread_id: str) -> Head:
        """Read where a thread stands."""
        ...

    async def wait(self, thread_id: str, *, after: Head, timeout: float) -> Head:
        """Wait until a thread's position passes a head's or its incarnation differs.

        Args:
            thread_id: The thread.
            after: The head that the caller knows.
            timeout: The most seconds to wait.

        Returns:
            The head, changed or not.
        """
        ...

    async def threads(
        self, *, agent: str | None = None, before: ThreadInfo | None = None, limit: int = 50
    ) -> Sequence[ThreadInfo]:
        """List threads, those with the newest activity first.

        Args:
            agent: Only threads that were opened for this agent.
            before: The last one of the page before.
            limit: The most threads to return.
        """
        ...

    async def copy(self, thread_id: str, new_id: str, *, through: int) -> None:
        """Copy a thread's first events into a new thread, envelopes included.

        Raises:
            UnknownThreadError: There is no such thread.
            ThreadExistsError: The new id is taken.
            PositionOutOfRangeError: `through` is not in the log, or inside an append.
        """
        ...

    async def delete(self, thread_id: str, *, incarnation: str | None = None) -> None:
        """Remove a thread's log and lease. Deleting an unknown thread does nothing.

        Args:
            thread_id: The thread.
            incarnation: The life that is meant, None for whichever there is. Another life is left
                alone, so a call that lands late never removes a thread that was made anew.
        """
        ...

    async def acquire(self, thread_id: str, owner: str, ttl: float, *, request: str) -> Lease:
        """Take a thread's lease.

        Args:
            thread_id: The thread.
            owner: Who takes it.
            ttl: The seconds that it stays valid without renewal.
            request: A fresh id of this acquire, the same one when the call is repeated.

        Raises:
            LeaseHeldError: Another lease is valid.
            UnknownThreadError: There is no such thread.
        """
        ...

    async def renew(self, lease: Lease, ttl: float) -> tuple[Lease, Head]:
        """Extend a lease that nobody else took, even one that expired, and read the head.

        Raises:
            LeaseLostError: It was taken, released, or its thread is gone.
        """
        ...

    async def release(self, lease: Lease) -> None:
        """Give a lease back. One that is no longer held is left as it is."""
        ...
