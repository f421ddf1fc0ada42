"""Readers that follow a thread's log while it grows. Nothing runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from soev.domain import (
    Event,
    Head,
    LogEntry,
    StoreRewoundError,
    Trace,
    TraceBuilder,
    TraceStore,
)
from soev.runtime._codec import EventTypes, entry_of
from soev.runtime._ledger import PAGE
from soev.runtime._live import Listener, LiveDelta

LONGEST_WAIT: Final = 30.0
LEASE_WAIT: Final = 1.0
SHORTEST_WAIT: Final = 0.01


class Reader:
    """One reader's place in a log: every entry once, in order, of one life of the thread.

    Args:
        store: The store.
        thread_id: The thread.
        types: The classes to read its events into.
        after: The position to read after.
    """

    def __init__(self, store: TraceStore, thread_id: str, types: EventTypes, after: int) -> None:
        self._store, self._thread_id, self._types = store, thread_id, types
        self._after, self._head, self._begun = after, Head(), False
        self.gone = False

    @property
    def position(self) -> int:
        """The position of the last entry that was read."""
        return self._after

    @property
    def free(self) -> bool:
        """Whether nobody held the lease at the last read."""
        return self._head.lease is None

    async def read(self) -> Sequence[LogEntry[Event]]:
        """Return what comes next, nothing at the end of the log. `gone` tells of a deletion.

        Raises:
            StoreRewoundError: The store lost events that were there before.
        """
        page = await self._store.read(self._thread_id, after=self._after, limit=PAGE)
        self._note(page.head)
        if self.gone or not page.entries:
            return ()
        self._after = page.entries[-1].position
        return [entry_of(self._types, self._thread_id, entry) for entry in page.entries]

    def _note(self, head: Head) -> None:
        known = self._head.incarnation if self._begun else head.incarnation
        if head.incarnation is None or head.incarnation != known:
            self.gone = True
        elif head.position < self._head.position:
            raise StoreRewoundError(self._thread_id, self._head.position, head.position)
        self._head, self._begun = head, True

    async def wait(self, timeout: float) -> None:
        """Wait until the store has more, or until the time is over."""
        await self._store.wait(self._thread_id, after=self._head, timeout=timeout)

    def until_free(self) -> float:
        """Return how long to wait at most before the lease is looked at again."""
        head = self._head
        if head.lease is None or head.now is None:
            return LEASE_WAIT
        left = (head.lease.expires - head.now).total_seconds()
        return min(max(left, SHORTEST_WAIT), LEASE_WAIT)


async def watch(reader: Reader, *, follow: bool) -> AsyncGenerator[LogEntry[Event], None]:
    """Yield entries, and with `follow` wait for more until the thread is deleted.

    Args:
        reader: The reader's place.
        follow: Whether to wait for more at the end of the log.
    """
    while True:
        entries = await reader.read()
        for entry in entries:
            yield entry
        if reader.gone:
            return
        if not entries:
            if not follow:
                return
            await reader.wait(LONGEST_WAIT)


async def whole(begin: Callable[[], Reader]) -> Trace:
    """Return a thread's trace.

    Args:
        begin: Makes a reader from the start of the log.
    """
    while True:
        reader, builder = begin(), TraceBuilder()
        async for entry in watch(reader, follow=False):
            builder.feed(entry.event)
        # A thread that was made anew meanwhile is read from its new beginning.
        if not (reader.gone and len(builder)):
            return builder.trace()


async def while_held(reader: Reader) -> AsyncGenerator[LogEntry[Event], None]:
    """Yield entries while somebody holds the lease, then what is left, then end.

    Args:
        reader: The reader's place.
    """
    seen_free = False
    while True:
        entries = await reader.read()
        for entry in entries:
            yield entry
        if reader.gone or (seen_free and reader.free and not entries):
            return
        seen_free = reader.free
        if not entries and not seen_free:
            await reader.wait(reader.until_free())


async def while_running(
    reader: Reader, run: asyncio.Future[Any]
) -> AsyncGenerator[LogEntry[Event], None]:
    """Yield entries while a run goes on, then what is left, then end.

    Args:
        reader: The reader's place.
        run: Done when the run ended.
    """
    while True:
        ended = run.done()
        entries = await reader.read()
        for entry in entries:
            yield entry
        if reader.gone or (ended and not entries):
            return
        if not entries:
            await _either(run, reader)


async def while_heard(
    reader: Reader, run: asyncio.Future[Any], listener: Listener
) -> AsyncGenerator[LogEntry[Event] | LiveDelta, None]:
    """Yield entries as `while_running` does, and in between what models write.

    A piece of text comes after the entries that were recorded before it, and before those that
    were recorded after it.

    Args:
        reader: The reader's place.
        run: Done when the run ended.
        listener: Hears the run.
    """
    while True:
        ended = run.done()
        while entries := await reader.read():
            for entry in entries:
                for piece in listener.up_to(entry.position - 1):
                    yield piece
                yield entry
        async with _waiting(reader) as more:
            while True:
                for piece in listener.up_to(reader.position):
                    yield piece
                if reader.gone or ended:
                    return
                if more.done() or run.done() or listener.waits_for(reader.position):
                    break
                bell = listener.bell()
                await asyncio.wait((run, more, bell), return_when=asyncio.FIRST_COMPLETED)


async def _either(run: asyncio.Future[Any], reader: Reader) -> None:
    """Wait until the run ended or the store has more."""
    async with _waiting(reader) as more:
        await asyncio.wait((run, more), return_when=asyncio.FIRST_COMPLETED)


@asynccontextmanager
async def _waiting(reader: Reader) -> AsyncGenerator[asyncio.Task[None], None]:
    """Wait in the background until the store has more."""
    waiting = asyncio.create_task(reader.wait(LONGEST_WAIT))
    try:
        yield waiting
    finally:
        waiting.cancel()
        await asyncio.wait((waiting,))
    if not waiting.cancelled():
        waiting.result()
