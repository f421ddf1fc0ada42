"""One life of the process under test, and its handle on the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any

from pytest_soev.harness._crash import CrashPlan
from pytest_soev.harness._errors import ProcessCrash
from soev.domain import Head, Lease, LogEntry, Page, StoredEvent, ThreadInfo, TraceStore

Entry = LogEntry[StoredEvent]


class Life:
    """The process from its start to its death.

    Args:
        plan: Says at which point it dies.
    """

    def __init__(self, plan: CrashPlan) -> None:
        self._plan = plan
        self.crash: ProcessCrash | None = None
        self.struck: set[asyncio.Task[Any]] = set()

    def reached(self, point: str) -> None:
        """Die at a named point, if that is the plan; the dead get no further than the next one."""
        self.check()
        if self._plan.strikes(point):
            self.end(point)
            self.check()

    def end(self, point: str) -> None:
        """End it."""
        if self.crash is None:
            self.crash = ProcessCrash(point)

    def check(self) -> None:
        """Let only the living pass.

        Raises:
            ProcessCrash: It is dead. Nothing that catches `Exception` stops this.
        """
        if self.crash is None:
            return
        # A thread of an executor has no task.
        with suppress(RuntimeError):
            task = asyncio.current_task()
            if task is not None:
                self.struck.add(task)
        raise ProcessCrash(self.crash.point)


class LifeStore:
    """The store as one life sees it: every call is refused once that is over.

    Args:
        store: The store.
        life: The life.
    """

    def __init__(self, store: TraceStore, life: Life) -> None:
        self._store, self._life = store, life

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
        self._life.check()
        return await self._store.append(
            thread_id, events, after=after, batch=batch, lease=lease, release=release
        )

    async def read(self, thread_id: str, *, after: int = 0, limit: int | None = None) -> Page:
        """Read the events after a position."""
        self._life.check()
        return await self._store.read(thread_id, after=after, limit=limit)

    async def read_back(self, thread_id: str, *, before: Head) -> AsyncIterator[Entry]:
        """Yield the events up to a head, the newest first."""
        self._life.check()
        async for entry in self._store.read_back(thread_id, before=before):
            yield entry

    async def head(self, thread_id: str) -> Head:
        """Read where a thread stands."""
        self._life.check()
        return await self._store.head(thread_id)

    async def wait(self, thread_id: str, *, after: Head, timeout: float) -> Head:
        """Wait until a thread changes."""
        self._life.check()
        return await self._store.wait(thread_id, after=after, timeout=timeout)

    async def threads(
        self, *, agent: str | None = None, before: ThreadInfo | None = None, limit: int = 50
    ) -> Sequence[ThreadInfo]:
        """List threads."""
        self._life.check()
        return await self._store.threads(agent=agent, before=before, limit=limit)

    async def copy(self, thread_id: str, new_id: str, *, through: int) -> None:
        """Copy a thread's first events into a new thread."""
        self._life.check()
        await self._store.copy(thread_id, new_id, through=through)

    async def delete(self, thread_id: str, *, incarnation: str | None = None) -> None:
        """Remove a thread's log and lease."""
        self._life.check()
        await self._store.delete(thread_id, incarnation=incarnation)

    async def acquire(self, thread_id: str, owner: str, ttl: float, *, request: str) -> Lease:
        """Take a thread's lease."""
        self._life.check()
        return await self._store.acquire(thread_id, owner, ttl, request=request)

    async def renew(self, lease: Lease, ttl: float) -> tuple[Lease, Head]:
        """Extend a lease, and read the head."""
        self._life.check()
        return await self._store.renew(lease, ttl)

    async def release(self, lease: Lease) -> None:
        """Give a lease back."""
        self._life.check()
        await self._store.release(lease)
