"""What the clauses of the store contract share: hooks, the runner, and short ways to say things."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Collection, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar, Self, TypeVar

import pytest

from soev.domain import Head, Lease, LogEntry, StoredEvent, TraceStore

SECOND_HANDLE = "second handle"
"""The capability to open the same data twice, as two processes do."""
SET_BACK = "clock set back"
"""The capability to move the store's clock backwards in a test."""

Entries = list[LogEntry[StoredEvent]]
S = TypeVar("S", bound="StoreClauses")
Scenario = Callable[[S, TraceStore], Coroutine[Any, Any, None]]


class StoreClauses:
    """The hooks that a store's author fills, and the runner of one clause.

    Attributes:
        lacks: The capabilities that the store or its tests do not have: `SECOND_HANDLE`,
            `SET_BACK`. Their clauses are reported as skipped.
        patience: The most seconds that a wake-up may take.
    """

    lacks: ClassVar[Collection[str]] = ()
    patience: ClassVar[float] = 5.0

    def open_store(self) -> AbstractAsyncContextManager[TraceStore]:
        """Open an empty store, and close it at the end of the block."""
        raise NotImplementedError(f"{type(self).__name__} must say how to open an empty store.")

    async def advance(self, seconds: float) -> None:
        """Move the store's clock, backwards when the number is negative."""
        raise NotImplementedError(f"{type(self).__name__} must say how its clock moves.")

    def reopen(self, store: TraceStore) -> AbstractAsyncContextManager[TraceStore]:
        """Open the data of an open store a second time, as another process would."""
        raise NotImplementedError(
            f"{type(self).__name__} must say how to open its data twice, or list "
            "`SECOND_HANDLE` in `lacks`."
        )

    def play(self, scenario: Scenario[Self]) -> None:
        """Run a clause on a fresh store, in an event loop of its own."""

        async def main() -> None:
            async with self.open_store() as store:
                await scenario(self, store)

        asyncio.run(main())


def clause(scenario: Scenario[S]) -> Callable[[S], None]:
    """Make a test of a scenario: a plain function without fixtures, named like the scenario."""

    def run(self: S) -> None:
        self.play(scenario)

    return _named_like(scenario, run)


def clause_with(capability: str) -> Callable[[Scenario[S]], Callable[[S], None]]:
    """Make a test that is skipped when the store declares that it lacks a capability."""

    def decorate(scenario: Scenario[S]) -> Callable[[S], None]:
        def run(self: S) -> None:
            if capability in self.lacks:
                pytest.skip(f"{type(self).__name__} declares that it lacks {capability!r}")
            self.play(scenario)

        return _named_like(scenario, run)

    return decorate


def _named_like(scenario: Scenario[S], run: Callable[[S], None]) -> Callable[[S], None]:
    # `functools.wraps` would show pytest the scenario's `store` parameter, a fixture to it.
    run.__name__, run.__qualname__ = scenario.__name__, scenario.__qualname__
    run.__doc__, run.__module__ = scenario.__doc__, scenario.__module__
    return run


def fresh() -> str:
    """Return a fresh id of 128 bits."""
    return secrets.token_hex(16)


def note(number: int = 0, stream: str = "main") -> StoredEvent:
    """Return an event that is told apart by a number."""
    return StoredEvent("note", f'{{"n":{number}}}', stream, "node", "1.0")


def opening(agent: str = "assistant") -> StoredEvent:
    """Return the first event of a catalog's thread."""
    return StoredEvent("opened", f'{{"agent":"{agent}"}}')


async def begin(store: TraceStore, thread_id: str = "t", count: int = 1) -> Head:
    """Make a thread of some events, appended together, and return its head."""
    await store.append(thread_id, [note(n) for n in range(count)], after=Head(), batch=fresh())
    return await store.head(thread_id)


async def add(store: TraceStore, *events: StoredEvent, lease: Lease | None = None) -> Entries:
    """Append events to the thread `t` where it stands."""
    after = await store.head("t")
    return list(await store.append("t", events, after=after, batch=fresh(), lease=lease))


async def log(store: TraceStore, thread_id: str = "t") -> Entries:
    """Return all entries of a thread."""
    return list((await store.read(thread_id)).entries)


def seqs(entries: Entries) -> list[int | None]:
    """Return the seq of each entry."""
    return [entry.event.seq for entry in entries]


def positions(entries: Entries) -> list[int]:
    """Return the position of each entry."""
    return [entry.position for entry in entries]
