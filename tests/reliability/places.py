"""Where a machine's threads are kept: in memory, in a file, on a server.

The deterministic world is one thread that nothing may disturb, and a real store has threads and
sockets of its own. So the store lives in an event loop of another thread, and the world stands
still while a call is there: what a real store does takes no time in the world, and all of it.
"""

import asyncio
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Protocol, TypeVar

import psycopg

from soev.adapters import InMemoryTraceStore, PostgresTraceStore, SqliteTraceStore
from soev.domain import (
    Clock,
    Head,
    Lease,
    LogEntry,
    Page,
    StoredEvent,
    ThreadInfo,
    TraceStore,
    fault_plan,
)
from tests import postgres
from tests.clocks import FakeClock

T = TypeVar("T")
Entry = LogEntry[StoredEvent]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Place(Protocol):
    """Where threads are kept."""

    def begin(self, clock: Clock) -> TraceStore:
        """Return an empty store that goes by a clock."""
        ...

    def end(self, threads: Sequence[str]) -> None:
        """Remove what an example has left."""
        ...


class Memory:
    """A store in memory, a new one for each example."""

    def begin(self, clock: Clock) -> TraceStore:
        return InMemoryTraceStore(clock=clock)

    def end(self, threads: Sequence[str]) -> None:
        """The store goes with its example."""


class Elsewhere:
    """An event loop in a thread of its own, which the caller waits for."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Do work there, and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        """End the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Remote:
    """A store that lives elsewhere. Only waiting is done here, in the world's own time.

    Args:
        store: The store.
        elsewhere: Its event loop.
        before: Called before each call.
    """

    def __init__(self, store: TraceStore, elsewhere: Elsewhere, before: Callable[[], None]) -> None:
        self._store, self._elsewhere, self._before = store, elsewhere, before
        self._bells: dict[str, list[asyncio.Future[None]]] = {}

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        # The work takes this context with it, and a store is not to die of what was planned here.
        token = fault_plan.set(None)
        try:
            with _standing_still():
                self._before()
                return self._elsewhere.call(work)
        finally:
            fault_plan.reset(token)

    def _wake(self, thread_id: str) -> None:
        for bell in self._bells.pop(thread_id, []):
            _ring(bell)

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
        entries = self._call(
            self._store.append(
                thread_id, events, after=after, batch=batch, lease=lease, release=release
            )
        )
        self._wake(thread_id)
        return entries

    async def read(self, thread_id: str, *, after: int = 0, limit: int | None = None) -> Page:
        return self._call(self._store.read(thread_id, after=after, limit=limit))

    async def read_back(self, thread_id: str, *, before: Head) -> AsyncIterator[Entry]:
        async def entries() -> list[Entry]:
            return [entry async for entry in self._store.read_back(thread_id, before=before)]

        for entry in self._call(entries()):
            yield entry

    async def head(self, thread_id: str) -> Head:
        return self._call(self._store.head(thread_id))

    async def wait(self, thread_id: str, *, after: Head, timeout: float) -> Head:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while True:
            head = await self.head(thread_id)
            left = deadline - loop.time()
            moved = head.position > after.position or head.incarnation != after.incarnation
            if moved or left <= 0:
                return head
            bell: asyncio.Future[None] = loop.create_future()
            self._bells.setdefault(thread_id, []).append(bell)
            timer = loop.call_later(left, _ring, bell)
            try:
                await bell
            finally:
                timer.cancel()

    async def threads(
        self, *, agent: str | None = None, before: ThreadInfo | None = None, limit: int = 50
    ) -> Sequence[ThreadInfo]:
        return self._call(self._store.threads(agent=agent, before=before, limit=limit))

    async def copy(self, thread_id: str, new_id: str, *, through: int) -> None:
        self._call(self._store.copy(thread_id, new_id, through=through))
        self._wake(new_id)

    async def delete(self, thread_id: str, *, incarnation: str | None = None) -> None:
        self._call(self._store.delete(thread_id, incarnation=incarnation))
        self._wake(thread_id)

    async def acquire(self, thread_id: str, owner: str, ttl: float, *, request: str) -> Lease:
        return self._call(self._store.acquire(thread_id, owner, ttl, request=request))

    async def renew(self, lease: Lease, ttl: float) -> tuple[Lease, Head]:
        return self._call(self._store.renew(lease, ttl))

    async def release(self, lease: Lease) -> None:
        self._call(self._store.release(lease))


@contextmanager
def _standing_still() -> Iterator[None]:
    """Let the running event loop wait, which nothing else may do to it."""
    running = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(running)


def _ring(bell: asyncio.Future[None]) -> None:
    if not bell.done():
        bell.set_result(None)


class LentClock:
    """A clock of the store that is the clock of the example that runs now."""

    def __init__(self) -> None:
        self.clock: Clock = FakeClock()

    def now(self) -> datetime:
        return self.clock.now()

    def monotonic(self) -> float:
        return self.clock.monotonic()


class Real:
    """A real store, opened once: an example leaves it as empty as it found it."""

    def __init__(self) -> None:
        self.elsewhere, self.clock = Elsewhere(), LentClock()
        self.store = self._open()

    def _open(self) -> Any:
        raise NotImplementedError

    def begin(self, clock: Clock) -> TraceStore:
        self.clock.clock = clock
        return Remote(self.store, self.elsewhere, self._before)

    def end(self, threads: Sequence[str]) -> None:
        for thread_id in threads:
            self.elsewhere.call(self.store.delete(thread_id))

    def _before(self) -> None:
        """Do nothing before a call: the store reads the clock by itself."""

    def close(self) -> None:
        """Let go of the store."""
        self.elsewhere.call(self.store.close())
        self.elsewhere.close()


class Sqlite(Real):
    """A SQLite file."""

    def _open(self) -> SqliteTraceStore:
        # Where there is a disk in memory, nobody waits for another: no machine loses its power.
        fast = "/dev/shm" if Path("/dev/shm").is_dir() else None
        self.directory = tempfile.TemporaryDirectory(dir=fast)
        return SqliteTraceStore(Path(self.directory.name, "soev.db"), clock=self.clock)

    def close(self) -> None:
        super().close()
        self.directory.cleanup()


class Postgres(Real):
    """A schema of a PostgreSQL server, whose clock is moved along."""

    def _open(self) -> PostgresTraceStore:
        self.schema = postgres.made_schema()
        postgres.ServerClock(self.schema)
        self.hand = psycopg.connect(postgres.dsn(), autocommit=True)
        self.shows: int | None = None
        return PostgresTraceStore(postgres.dsn(), schema=self.schema, patience=10, listen=False)

    def _before(self) -> None:
        micros = (self.clock.now() - EPOCH) // timedelta(microseconds=1)
        if micros != self.shows:
            self.hand.execute(f"UPDATE {self.schema}.tests SET now = {micros}".encode())
            self.shows = micros

    def close(self) -> None:
        super().close()
        self.hand.close()


@cache
def memory() -> Memory:
    """Return the place in memory."""
    return Memory()


@cache
def sqlite() -> Sqlite:
    """Return the file of this process."""
    return _opened(Sqlite())


@cache
def server() -> Postgres:
    """Return the schema of this process."""
    return _opened(Postgres())


OPENED: list[Real] = []
R = TypeVar("R", bound=Real)


def _opened(place: R) -> R:
    OPENED.append(place)
    return place


def close_all() -> None:
    """Let go of every store that was opened."""
    sqlite.cache_clear()
    server.cache_clear()
    while OPENED:
        OPENED.pop().close()
