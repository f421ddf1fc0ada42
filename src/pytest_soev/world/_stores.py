"""A process's handle on the store: each call takes time, may fail, and dies with the process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, TypeVar

from pytest_soev.world._errors import ProcessDiedError
from pytest_soev.world._lives import STORE, Life, current_life
from pytest_soev.world._loop import WorldLoop
from pytest_soev.world._plans import Fault
from pytest_soev.world._points import Counting
from soev.domain import (
    Head,
    Lease,
    LogEntry,
    OutcomeUnknownError,
    Page,
    StoredEvent,
    StoreUnavailableError,
    ThreadInfo,
    TraceStore,
)

R = TypeVar("R")
Entry = LogEntry[StoredEvent]

REASONS: Final = {
    "refuse": "it refused the call",
    "busy": "it is locked by somebody else",
    "full": "its disk is full",
    "disconnect": "the connection broke",
}


class ProcessStore:
    """The store as one life of a process sees it.

    A call waits at a boundary on its way there, and a write also on its way back, so that a
    schedule can put anything in between. A write whose caller is cancelled on its way there still
    arrives. Nothing gets through once the process is dead.

    Args:
        store: The store, which all processes share.
        loop: The loop.
        life: The process.
        calls: Counts the calls and knows the faults.
    """

    def __init__(self, store: TraceStore, loop: WorldLoop, life: Life, calls: Counting) -> None:
        self._store, self._loop, self._life, self._calls = store, loop, life, calls

    def _begun(self, operation: str) -> Fault | None:
        if self._life.dead or self._loop.is_closed():
            raise ProcessDiedError(self._life.name)
        return self._calls.next(operation, str(self._life))

    async def _reading(self, operation: str, work: Callable[[], Awaitable[R]]) -> R:
        fault = self._begun(operation)
        await self._loop.boundary()
        if fault is not None and fault.kind == "slow":
            await asyncio.sleep(fault.seconds)
        elif fault is not None and fault.kind in {"refuse", "busy", "disconnect", "lost", "late"}:
            raise StoreUnavailableError(operation, REASONS.get(fault.kind, "no answer came"))
        return await self._at_store(work)

    async def _writing(self, operation: str, thread_id: str, work: Callable[[], Awaitable[R]]) -> R:
        fault = self._begun(operation)
        try:
            await self._loop.boundary()
            if fault is not None and fault.kind == "slow":
                await asyncio.sleep(fault.seconds)
        except asyncio.CancelledError:
            if fault is None or fault.kind == "slow":
                self._loop.in_store(self._land, work)
            raise
        if fault is None or fault.kind in {"slow", "corrupt"}:
            answer = await self._at_store(work)
            await self._loop.boundary()
            return answer
        return await self._failing(fault, operation, thread_id, work)

    async def _failing(
        self, fault: Fault, operation: str, thread_id: str, work: Callable[[], Awaitable[R]]
    ) -> R:
        """Fail a write as a fault says."""
        if fault.kind in {"refuse", "busy", "full"}:
            raise StoreUnavailableError(operation, REASONS[fault.kind])
        if fault.kind == "late":
            self._loop.in_store(self._loop.call_later, fault.seconds, self._land, work)
        elif fault.kind == "lost":
            await self._at_store(work)
            await self._loop.boundary()
        reason = REASONS.get(fault.kind, "no answer came")
        raise OutcomeUnknownError(thread_id, operation, reason)

    def _land(self, work: Callable[[], Awaitable[object]]) -> None:
        """Let a write arrive that nobody waits for any more."""

        async def landing() -> None:
            # Nobody is there to hear of an error.
            with suppress(Exception):
                await work()

        self._loop.create_task(landing(), name="late write")

    async def _at_store(self, work: Callable[[], Awaitable[R]]) -> R:
        """Do the call in the store's own name, so that it wakes others whatever becomes of us."""
        token = current_life.set(STORE)
        try:
            return await work()
        finally:
            # Taken down with its loop, a call ends in another context than it began in.
            if not self._loop.is_closed():
                current_life.reset(token)

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
        """Append events to a thread."""
        return await self._writing(
            "append",
            thread_id,
            lambda: self._store.append(
                thread_id, events, after=after, batch=batch, lease=lease, release=release
            ),
        )

    async def read(self, thread_id: str, *, after: int = 0, limit: int | None = None) -> Page:
        """Read the events after a position."""
        corrupt = self._corrupts("read")
        page = await self._reading(
            "read", lambda: self._store.read(thread_id, after=after, limit=limit)
        )
        if corrupt and page.entries:
            *rest, last = page.entries
            return Page([*rest, _damaged(last)], page.head)
        return page

    def _corrupts(self, operation: str) -> bool:
        """Tell whether the call that comes next reads a damaged row."""
        fault = self._calls.peek(operation)
        return fault is not None and fault.kind == "corrupt"

    async def read_back(self, thread_id: str, *, before: Head) -> AsyncIterator[Entry]:
        """Yield the events up to a head, the newest first."""
        corrupt = self._corrupts("read_back")
        await self._reading("read_back", _nothing)
        async for entry in self._store.read_back(thread_id, before=before):
            yield _damaged(entry) if corrupt else entry
            corrupt = False

    async def head(self, thread_id: str) -> Head:
        """Read where a thread stands."""
        return await self._reading("head", lambda: self._store.head(thread_id))

    async def wait(self, thread_id: str, *, after: Head, timeout: float) -> Head:
        """Wait until a thread changes."""
        return await self._reading(
            "wait", lambda: self._store.wait(thread_id, after=after, timeout=timeout)
        )

    async def threads(
        self, *, agent: str | None = None, before: ThreadInfo | None = None, limit: int = 50
    ) -> Sequence[ThreadInfo]:
        """List threads."""
        return await self._reading(
            "threads", lambda: self._store.threads(agent=agent, before=before, limit=limit)
        )

    async def copy(self, thread_id: str, new_id: str, *, through: int) -> None:
        """Copy a thread's first events into a new thread."""
        await self._writing(
            "copy", thread_id, lambda: self._store.copy(thread_id, new_id, through=through)
        )

    async def delete(self, thread_id: str, *, incarnation: str | None = None) -> None:
        """Remove a thread's log and lease."""
        await self._writing(
            "delete",
            thread_id,
            lambda: self._store.delete(thread_id, incarnation=incarnation),
        )

    async def acquire(self, thread_id: str, owner: str, ttl: float, *, request: str) -> Lease:
        """Take a thread's lease."""
        return await self._writing(
            "acquire",
            thread_id,
            lambda: self._store.acquire(thread_id, owner, ttl, request=request),
        )

    async def renew(self, lease: Lease, ttl: float) -> tuple[Lease, Head]:
        """Extend a lease, and read the head."""
        return await self._writing("renew", lease.thread_id, lambda: self._store.renew(lease, ttl))

    async def release(self, lease: Lease) -> None:
        """Give a lease back."""
        await self._writing("release", lease.thread_id, lambda: self._store.release(lease))


async def _nothing() -> Any:
    """Fetch nothing: the pages of a backward read come from an iterator."""


def _damaged(entry: Entry) -> Entry:
    """Return an entry whose payload was cut in the middle."""
    event = entry.event
    return replace(entry, event=replace(event, data=event.data[: len(event.data) // 2]))
