"""Every store gives the same answers, errors and logs to the same calls."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from soev.adapters import InMemoryTraceStore, PostgresTraceStore, SqliteTraceStore
from soev.domain import Head, Lease, Page, SoevError, StoredEvent, TraceStore
from tests import postgres
from tests.clocks import FakeClock
from tests.reliability.report import SOAK

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

THREADS = st.sampled_from(["t", "u", "é"])
OWNERS = st.sampled_from(["a", "b"])
REQUESTS = st.sampled_from(["r", "s"])
EVENTS = st.lists(
    st.builds(
        StoredEvent,
        type=st.sampled_from(["opened", "note"]),
        data=st.sampled_from(['{"agent":"one"}', '{"agent":1}', "{}", '"é \U0001f600"', "[1e2]"]),
        stream=st.sampled_from(["main", "main#1/a", "b"]),
        origin=st.sampled_from([None, "node"]),
        version=st.sampled_from([None, "1.0"]),
    ),
    max_size=4,
)


class Group:
    """Stores of one clock, and the names under which their random ids are the same.

    The first is the model of the others.
    """

    def __init__(self, stores: Sequence[TraceStore], clock: FakeClock) -> None:
        self.stores, self.clock = list(stores), clock
        self.runner = asyncio.Runner()
        self.names: list[dict[str, str]] = [{} for _ in stores]

    def advance(self, seconds: int) -> None:
        """Move the clock of all."""
        self.clock.advance(seconds)

    def close(self) -> None:
        """Let go of all."""
        self.runner.close()

    def call(self, call: Callable[[TraceStore], Awaitable[Any]]) -> Any:
        """Make a call of each, assert that they answer alike, and return all answers."""
        answers = [self.runner.run(_outcome(store, call)) for store in self.stores]
        first, *others = [self.plain(side, answer) for side, answer in enumerate(answers)]
        for other in others:
            assert first == other
        return answers

    def plain(self, side: int, value: Any) -> Any:
        """Return an answer with each random id replaced by the order in which it came."""
        if isinstance(value, SoevError):
            return type(value).__name__, [self.plain(side, each) for each in value.args]
        if is_dataclass(value) and not isinstance(value, type):
            parts = [(each.name, getattr(value, each.name)) for each in fields(value)]
            return [
                self.named(side, part) if name == "incarnation" else self.plain(side, part)
                for name, part in parts
            ]
        if isinstance(value, (list, tuple)):
            return [self.plain(side, each) for each in value]
        assert value is None or isinstance(value, (str, int, datetime)), value
        return value

    def named(self, side: int, incarnation: str | None) -> str | None:
        """Return the name of an incarnation on one side."""
        names = self.names[side]
        return incarnation and names.setdefault(incarnation, f"life {len(names)}")


class WithSqlite(Group):
    """The in-memory store and the SQLite store."""

    def __init__(self) -> None:
        self.directory = tempfile.TemporaryDirectory()
        clock = FakeClock()
        self.sqlite = SqliteTraceStore(Path(self.directory.name, "soev.db"), clock=clock)
        super().__init__([InMemoryTraceStore(clock=clock), self.sqlite], clock)

    def close(self) -> None:
        """Let go of both."""
        self.runner.run(self.sqlite.close())
        super().close()
        self.directory.cleanup()


class WithPostgres(Group):
    """The in-memory store and the PostgreSQL store, whose clock is moved along."""

    def __init__(self) -> None:
        self.schema, self.server_clock = _tables()
        clock = FakeClock()
        postgres.run(
            postgres.dsn(),
            *(f"TRUNCATE {self.schema}.{table}" for table in ("threads", "streams", "events")),
        )
        self.server_clock.set((clock.now() - EPOCH) // timedelta(microseconds=1))
        self.store = PostgresTraceStore(
            postgres.dsn(), schema=self.schema, patience=10, listen=False
        )
        super().__init__([InMemoryTraceStore(clock=clock), self.store], clock)

    def advance(self, seconds: int) -> None:
        """Move the clock of both."""
        super().advance(seconds)
        self.server_clock.advance(seconds)

    def close(self) -> None:
        """Let go of both."""
        self.runner.run(self.store.close())
        super().close()


@cache
def _tables() -> tuple[str, postgres.ServerClock]:
    """Return a schema with tables and a clock of its own, made once."""
    schema = postgres.made_schema()
    return schema, postgres.ServerClock(schema)


async def _outcome(store: TraceStore, call: Callable[[TraceStore], Awaitable[Any]]) -> Any:
    try:
        return await call(store)
    except (SoevError, ValueError) as error:
        return error if isinstance(error, SoevError) else f"ValueError: {error}"


class StoresAgree(RuleBasedStateMachine):
    """Makes the same calls of both stores, with heads and leases of now and of before."""

    group: ClassVar[Callable[[], Group]] = WithSqlite

    @initialize()
    def open(self) -> None:
        """Begin with two empty stores."""
        self.pair = type(self).group()
        self.heads: list[list[Head]] = [[Head(), Head()]]
        self.leases: list[list[Lease]] = []
        self.appends: list[Callable[[int, TraceStore], Awaitable[Any]]] = []

    def teardown(self) -> None:
        """Let go of both stores."""
        if hasattr(self, "pair"):
            self.pair.close()

    def both(self, call: Callable[[int, TraceStore], Awaitable[Any]]) -> list[Any]:
        """Make a call that uses what each store answered before."""
        stores = self.pair.stores
        answers: list[Any] = self.pair.call(lambda store: call(stores.index(store), store))
        return answers

    def lease(self, index: int) -> list[Lease] | list[None]:
        """Return a lease that both stores gave, or none."""
        return self.leases[index % len(self.leases)] if self.leases else [None, None]

    @rule(
        thread=THREADS,
        events=EVENTS,
        head=st.integers(0, 9),
        lease=st.none() | st.integers(0, 9),
        release=st.booleans(),
    )
    def append(
        self, thread: str, events: list[StoredEvent], head: int, lease: int | None, release: bool
    ) -> None:
        """Append after a head of now or before."""
        heads = self.heads[-1 - head % len(self.heads)]
        leases = [None, None] if lease is None else self.lease(lease)
        batch = f"batch {len(self.appends)}"

        def call(side: int, store: TraceStore) -> Awaitable[Any]:
            after, held = heads[side], leases[side]
            return store.append(
                thread, events, after=after, batch=batch, lease=held, release=release
            )

        self.appends.append(call)
        self.both(call)
        self.head(thread)

    @rule(thread=THREADS, events=EVENTS.filter(len))
    def extend(self, thread: str, events: list[StoredEvent]) -> None:
        """Append where a thread stands."""
        self.head(thread)
        self.append(thread, events, 0, None, False)

    @rule(index=st.integers(0, 99))
    def repeat(self, index: int) -> None:
        """Repeat an append of now or before, with the same batch id."""
        if self.appends:
            self.both(self.appends[-1 - index % len(self.appends)])

    @rule(thread=THREADS)
    def head(self, thread: str) -> None:
        """Read a head, and keep it for later appends."""
        self.heads.append(self.both(lambda _, store: store.head(thread)))

    @rule(thread=THREADS, owner=OWNERS, request=REQUESTS, ttl=st.sampled_from([1, 30]))
    def acquire(self, thread: str, owner: str, request: str, ttl: int) -> None:
        """Take a lease, and keep it."""
        leases = self.both(lambda _, store: store.acquire(thread, owner, ttl, request=request))
        if isinstance(leases[0], Lease):
            self.leases.append(leases)

    @rule(index=st.integers(0, 9), ttl=st.sampled_from([1, 30]), release=st.booleans())
    def renew_or_release(self, index: int, ttl: int, release: bool) -> None:
        """Renew or give back a lease of now or before."""
        leases = self.lease(index)

        async def use(side: int, store: TraceStore) -> Any:
            lease = leases[side]
            if lease is not None:
                return await (store.release(lease) if release else store.renew(lease, ttl))
            return None

        self.both(use)

    @rule(thread=THREADS, new=THREADS, through=st.integers(-1, 8))
    def copy(self, thread: str, new: str, through: int) -> None:
        """Copy a thread to an id that may be taken, through a position that may not be there."""
        self.both(lambda _, store: store.copy(thread, new, through=through))

    @rule(thread=THREADS)
    def delete(self, thread: str) -> None:
        """Delete a thread that may not be there."""
        self.both(lambda _, store: store.delete(thread))

    @rule(seconds=st.sampled_from([1, 31, -1, -3600]))
    def advance(self, seconds: int) -> None:
        """Move the clock of both."""
        self.pair.advance(seconds)

    @rule(thread=THREADS, after=st.integers(-1, 9), limit=st.none() | st.integers(0, 5))
    def read(self, thread: str, after: int, limit: int | None) -> None:
        """Read a part of a log."""
        self.both(lambda _, store: store.read(thread, after=after, limit=limit))

    @rule(thread=THREADS, head=st.integers(0, 9))
    def read_back(self, thread: str, head: int) -> None:
        """Read back from a head of now or before."""
        heads = self.heads[-1 - head % len(self.heads)]

        async def entries(side: int, store: TraceStore) -> Any:
            return [entry async for entry in store.read_back(thread, before=heads[side])]

        self.both(entries)

    @rule(agent=st.sampled_from([None, "one"]), limit=st.integers(0, 3))
    def threads(self, agent: str | None, limit: int) -> None:
        """List threads page by page."""

        async def pages(_: int, store: TraceStore) -> Any:
            first = await store.threads(agent=agent, limit=limit)
            rest = await store.threads(agent=agent, before=first[-1]) if first else []
            return [*first, *rest]

        self.both(pages)

    @rule(thread=THREADS, head=st.integers(0, 9))
    def wait(self, thread: str, head: int) -> None:
        """Look whether a thread has moved since a head."""
        heads = self.heads[-1 - head % len(self.heads)]
        self.both(lambda side, store: store.wait(thread, after=heads[side], timeout=0))

    @invariant()
    def logs_agree(self) -> None:
        """Both stores hold the same logs, in positions without a gap."""
        if hasattr(self, "pair"):
            for thread in ("t", "u", "é"):
                page = self.page(thread)
                positions = [each.position for each in page.entries]
                assert positions == list(range(1, page.head.position + 1))

    def page(self, thread: str) -> Page:
        """Return a thread's whole log, which both stores hold."""
        pages: list[Page] = self.both(lambda _, store: store.read(thread))
        return pages[0]


class PostgresAgrees(StoresAgree):
    """Makes the same calls of the in-memory store and the PostgreSQL store."""

    group = WithPostgres


def _case(machine: type[StoresAgree], examples: int, steps: int) -> Any:
    """Return a test of so many examples, ten times as many in a long run."""
    case: Any = type(machine.TestCase.__name__, (machine.TestCase,), {})
    case.settings = settings(
        max_examples=examples * (10 if SOAK > 1 else 1),
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    return case


TestStoresAgree = _case(StoresAgree, 60, 40)
TestPostgresAgrees = _case(PostgresAgrees, *((100, 50) if SOAK > 1 else (15, 40)))


def test_a_difference_is_seen() -> None:
    """The comparison fails when one store answers otherwise."""
    pair = WithSqlite()
    try:
        replaced = pair.stores[1]
        pair.call(lambda store: store.head("t"))

        async def append(store: TraceStore) -> Any:
            version = "2" if store is replaced else "1"
            event = replace(StoredEvent("note", "{}"), version=version)
            return await store.append("t", [event], after=Head(), batch="b")

        with pytest.raises(AssertionError):
            pair.call(append)
    finally:
        pair.close()
